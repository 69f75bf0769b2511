"""Values by which a graph is coloured: costs, errors, dtypes, or anybody's own.

>>> import pandas as pd
>>> from fxlab.overlays import from_table
>>> (overlay,) = from_table(pd.Series({"a": 1, "b": 2}, name="rank"))
>>> overlay.title, overlay.of(["a", "b"])
('rank', 3.0)
"""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.overlays.given import read_overlays as read_overlays
    from fxlab.overlays.overlay import Overlay as Overlay
    from fxlab.overlays.overlay import Value as Value
    from fxlab.overlays.overlay import from_table as from_table
    from fxlab.overlays.sources import SOURCES as SOURCES
    from fxlab.overlays.sources import Source as Source
    from fxlab.overlays.sources import Subject as Subject
    from fxlab.overlays.sources import offered as offered
    from fxlab.overlays.sources import source as source
else:
    __all__, __getattr__ = on_first_use(__name__)
