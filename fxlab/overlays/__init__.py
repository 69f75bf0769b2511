"""Values by which a graph is coloured: costs, errors, dtypes, or anybody's own."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.overlays.overlay import Overlay as Overlay
    from fxlab.overlays.overlay import Value as Value
    from fxlab.overlays.overlay import from_table as from_table
    from fxlab.overlays.overlay import read_overlays as read_overlays
    from fxlab.overlays.sources import SOURCES as SOURCES
    from fxlab.overlays.sources import Source as Source
    from fxlab.overlays.sources import Subject as Subject
    from fxlab.overlays.sources import source as source
else:
    __all__, __getattr__ = on_first_use(__name__)
