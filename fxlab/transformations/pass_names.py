"""Names of passes, and tuples in which they find passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from fxlab.base.first_use import pd
from fxlab.base.hints import nearest
from fxlab.transformations.base import Transformation

if TYPE_CHECKING:
    _Tuple: TypeAlias = tuple[Transformation, ...]
else:
    _Tuple = tuple

_LISTED = 5


def no_such_pass(name: str, known: Iterable[str], argument: str = "pass_") -> ValueError:
    """Return the error for the name of a pass that is not on offer, with the nearest one that is."""
    names = [*known]
    if name == "all":
        return ValueError(f"{argument}: there is no pass 'all'. Give each: *session.passes.")
    words = {word for word in name.lower().replace("_", "-").split("-") if len(word) > 1}
    shared = {other: len(words & {*other.split("-")}) for other in names}
    most = max(shared.values(), default=0)
    near = nearest(name.lower(), names) or nearest(name, [n for n in names if most and shared[n] == most], 3)
    if not near and most:
        near = f" Did you mean {' or '.join(repr(n) for n in names if shared[n] == most)}?"
    offered = f"On offer: {', '.join(names) or 'none'}."
    if len(names) > _LISTED:
        offered = f"session.passes.names lists the {len(names)} on offer."
    return ValueError(f"{argument}: there is no pass {name!r}.{near} {offered}")


class Passes(_Tuple):
    """A tuple of passes that finds them by name, too: ``"merge-linears" in session.applied``."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(str(each.name) for each in self)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each, by its ``name``: its ``class``, with the package, and its ``description``."""
        rows = {
            str(each.name): (
                f"{type(each).__module__.partition('.')[0]}.{type(each).__name__}",
                " ".join(str(each.description).strip().split("\n\n")[0].split()),
            )
            for each in self
        }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["class", "description"])
        return table.rename_axis("name")

    def __contains__(self, wanted: object) -> bool:
        return wanted in self.names if isinstance(wanted, str) else tuple.__contains__(self, wanted)

    def __getitem__(self, place: Any) -> Any:
        """Return the pass of a name or at a place."""
        if not isinstance(place, str):
            return super().__getitem__(place)
        if place not in self.names:
            raise KeyError(str(no_such_pass(place, self.names)))
        return self[self.names.index(place)]

    def _repr_html_(self) -> str:
        return str(self.table.to_html())
