"""Values by which a graph is coloured: costs, errors, dtypes, or anybody's own.

>>> import pandas as pd
>>> from fxlab.overlays import from_table
>>> (overlay,) = from_table(pd.Series({"a": 1, "b": 2}, name="rank"))
>>> overlay.title, overlay.of(["a", "b"])
('rank', 3.0)
"""

from fxlab.overlays.overlay import Overlay, Source, Subject, Value, from_table
from fxlab.overlays.sources import SOURCES, source

__all__ = ["SOURCES", "Overlay", "Source", "Subject", "Value", "from_table", "source"]
