"""The overlays that screens offer. One more is a file beside this one and a line here."""

from fxlab.overlays.dtype import DTYPE
from fxlab.overlays.flops import FLOPS
from fxlab.overlays.introduced_error import INTRODUCED_ERROR
from fxlab.overlays.memory import MEMORY
from fxlab.overlays.output_error import OUTPUT_ERROR
from fxlab.overlays.overlay import Source
from fxlab.overlays.parameters import PARAMETERS
from fxlab.overlays.time import TIME

SOURCES: tuple[Source, ...] = (
    OUTPUT_ERROR,
    INTRODUCED_ERROR,
    TIME,
    FLOPS,
    MEMORY,
    PARAMETERS,
    DTYPE,
)


def source(name: str) -> Source:
    """Return an overlay's source by its name; raises ``ValueError`` if there is none."""
    for known in SOURCES:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in SOURCES)
    raise ValueError(f"There is no overlay {name!r}. There are: {names}.")
