"""Passes in their order, found by name and compared with names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from fxlab.transformations.base import Transformation
from fxlab.transformations.pass_names import spelt_alike

if TYPE_CHECKING:
    import pandas as pd

    _Tuple: TypeAlias = tuple[Transformation, ...]
else:
    _Tuple = tuple


class Passes(_Tuple):
    """A tuple of passes that are found by name, in any common spelling; called, it is itself.

    A list is compared with it item by item: names, or the passes.
    """

    __hash__ = tuple.__hash__

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return [str(each.name) for each in self]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each, by its ``name``: its ``class``, with the package, and its ``description``."""
        import pandas as pd

        rows = {
            str(each.name): (
                f"{type(each).__module__.partition('.')[0]}.{type(each).__name__}",
                " ".join(str(each.description).strip().split("\n\n")[0].split()),
            )
            for each in self
        }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["class", "description"])
        return table.rename_axis("name")

    def to_frame(self) -> pd.DataFrame:
        """Return :attr:`table`."""
        return self.table

    def __call__(self) -> Passes:
        """Return itself."""
        return self

    def __contains__(self, wanted: object) -> bool:
        return any(_is_meant(wanted, each) for each in self)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return super().__getitem__(place)
        for each in self:
            if _is_meant(place, each):
                return each
        raise KeyError(f"{place!r} is none of {', '.join(self.names) or 'no passes'}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return tuple.__eq__(self, other) if isinstance(other, tuple) else False
        return len(other) == len(self) and all(map(_is_meant, other, self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _repr_html_(self) -> str:
        return str(self.table.to_html())


def _is_meant(wanted: object, pass_: Transformation) -> bool:
    if isinstance(wanted, str):
        return spelt_alike(wanted, str(pass_.name)) or wanted == pass_.signature
    return wanted is type(pass_) or (isinstance(wanted, Transformation) and wanted == pass_)
