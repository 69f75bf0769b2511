"""See, switch and check ``torch.fx`` graph transformations.

The stub beside this file lists the public names. Each is imported when it is first used.
"""

from typing import Any

from fxlab._version import __version__ as __version__
from fxlab.base.first_use import import_first, stub_homes

_HOMES = stub_homes(__name__)
_MODULES = {name for name, home in _HOMES.items() if home == __name__}  # such as fxlab.rewriting
__all__ = sorted(["__version__", *(_HOMES.keys() - _MODULES)])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return import_first(__name__, _HOMES[name], name)
    if name.startswith("_"):  # IPython, pickle and copy ask for these
        raise AttributeError(name)
    from fxlab.base.hints import NOT_IN_FXLAB, no_such_name

    homes = ((name, each) for each in _MODULES if name in import_first(__name__, __name__, each).__all__)
    moved = NOT_IN_FXLAB if name in NOT_IN_FXLAB else {n: f"Write fxlab.{home}.{n}." for n, home in homes}
    raise no_such_name("module 'fxlab'", name, __all__, moved)


def __dir__() -> list[str]:
    return __all__
