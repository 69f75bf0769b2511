"""Names of passes in any common spelling, and tuples in which they find passes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from fxlab.first_use import pd
from fxlab.other_names import bare, spelt_alike
from fxlab.results import OtherNames
from fxlab.transformations.base import Transformation

if TYPE_CHECKING:
    _Tuple: TypeAlias = tuple[Transformation, ...]
else:
    _Tuple = tuple


def find_name(name: str, names: Iterable[str], argument: str = "pass_", *, by_prefix: bool = False) -> str:
    """Return the name of a pass from any spelling; capitals, spaces, hyphens and underscores do not matter.

    ``argument``: the argument that an error names. ``by_prefix``: whether an
    unambiguous prefix is accepted. Raises ValueError if there is no such name, or several.
    """
    known = list(names)
    if name in known:
        return name
    wanted, spellings = bare(name), {other: bare(other) for other in known}
    found = [other for other, spelling in spellings.items() if wanted == spelling]
    if not found and by_prefix and wanted:
        found = [other for other, spelling in spellings.items() if spelling.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{argument}: {name!r} may be {', '.join(found)}. Write the whole name.")
    close = difflib.get_close_matches(wanted, spellings.values(), n=1)
    begun = [other for other, spelling in spellings.items() if wanted and spelling.startswith(wanted)]
    near = begun or [other for other, spelling in spellings.items() if spelling in close]
    near = near or _sharing_words(name, known)
    if name[:1].isupper() and name.isalnum():  # as the classes are called
        near = ["".join(part[0].upper() + part[1:] for part in other.split("-")) for other in near]
    meant = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    all_of_them = f"On offer: {', '.join(known) or 'none'}."
    if len(known) > _LISTED:
        all_of_them = f"{len(known)} are on offer: session.passes, or `fxlab passes`."
    raise ValueError(f"{argument}: there is no pass {name!r}. {meant}{all_of_them}")


def _sharing_words(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that share the most words with this one; some words are short for several."""
    found = (word.lower() for word in _WORD.findall(name) if len(word) > 1)
    words = {other for word in found for other in _SHORT.get(word, word).split()}
    shared = {
        other: sum(
            any(word in (part, part.rstrip("123dehsx")) for part in other.split("-")) for word in words
        )
        for other in known
    }
    most = max(shared.values(), default=0)
    return [other for other, count in shared.items() if count == most][:3] if most else []


_LISTED = 5
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHORT = {
    "batchnorm": "batch norm", "bn": "batch norm", "cse": "common subexpressions", "dce": "dead code",
    "dropout": "identities", "flash": "attention", "gelu": "activation", "ln": "layer norm", "qkv": "linears",
    "sdpa": "attention", "silu": "activation",
}  # fmt: skip


class Passes(OtherNames, _Tuple):
    """A tuple of passes that are found by name, in any common spelling; a call returns the tuple.

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
