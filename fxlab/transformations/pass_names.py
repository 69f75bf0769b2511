"""Names of passes in any common spelling, and tuples in which they find passes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from fxlab.first_use import pd
from fxlab.other_names import OF_PASS_NAMES, bare, spelt_alike
from fxlab.results import OtherNames
from fxlab.transformations.base import Transformation

if TYPE_CHECKING:
    _Tuple: TypeAlias = tuple[Transformation, ...]
else:
    _Tuple = tuple


def find_names(
    name: str, passes: Iterable[Transformation | str], argument: str = "pass_", *, by_prefix: bool = False
) -> list[str]:
    """Return the names of the passes meant by a name; capitals, spaces, hyphens, underscores do not matter.

    That is the one of this name; else the one whose name has all its words, such as ``div-to-mul``, or all
    such passes, if they are of one kind, such as ``fuse-batch-norm``: they derive from a class of that name.

    ``passes``: those on offer, or their names. ``argument``: the argument that an error names. ``by_prefix``:
    whether an unambiguous prefix is accepted. Raises ValueError if there is no such name, or several passes
    that have nothing else in common.
    """
    classes = {each if isinstance(each, str) else str(each.name): type(each) for each in passes}
    known = [*classes]
    if name in known:
        return [name]
    wanted, spellings = bare(name), {other: bare(other) for other in known}
    wanted = bare(OF_PASS_NAMES.get(wanted, wanted))
    found = [other for other, spelling in spellings.items() if wanted == spelling]
    if not found and (words := {*_words(name)}):
        found = [other for other in known if words <= _spellings(other)]
        if len(found) > 1 and _are_one_kind([classes[other] for other in found], found):
            return found
    if not found and by_prefix and wanted:
        found = [other for other, spelling in spellings.items() if spelling.startswith(wanted)]
    if found:
        return [the_one(found, name, argument)]
    close = difflib.get_close_matches(wanted, spellings.values(), n=1)
    begun = [other for other, spelling in spellings.items() if wanted and spelling.startswith(wanted)]
    near = begun or [other for other, spelling in spellings.items() if spelling in close]
    near = near or _sharing_words(name, known)
    if name[:1].isupper() and name.isalnum():  # as the classes are called
        near = ["".join(part[0].upper() + part[1:] for part in other.split("-")) for other in near]
    meant = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    all_of_them = f"On offer: {', '.join(known) or 'none'}."
    if len(known) > _LISTED:
        all_of_them = f"{len(known)} are on offer: session.passes, or `fxlab doctor`."
    raise ValueError(f"{argument}: there is no pass {name!r}. {meant}{all_of_them}")


def the_one(found: list[str], name: object, argument: str = "pass_") -> str:
    """Return the only name that was found; raises ValueError if there are several."""
    if len(found) > 1:
        raise ValueError(f"{argument}: {name!r} may be {', '.join(found)}. Write the whole name.")
    return found[0]


def _are_one_kind(classes: list[type], names: list[str]) -> bool:
    """Tell whether passes derive from a class whose words all of their names have."""
    return any(
        cls not in classes
        and all(issubclass(each, cls) for each in classes)
        and all({*_words(cls.__name__)} <= _spellings(name) for name in names)
        for cls in classes[0].__mro__
    )


def _words(name: str) -> list[str]:
    words = _BORDER.sub("-", name).lower().split("-")
    return [part for word in words if word for part in _ABBREVIATED.get(word, word).split()]


def _spellings(name: str) -> set[str]:
    """Return the words of a name, without dimensions too, and neighbours written as one: ``batchnorm``."""
    parts = _words(name)
    joined = {"".join(parts[first:last]) for last in range(1, len(parts) + 1) for first in range(last)}
    return joined | {_DIMENSIONS.sub("", each) for each in joined}


def _sharing_words(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that share the most words with this one, of which some are related to others."""
    words = {other for word in _words(name) if len(word) > 1 for other in _RELATED.get(word, word).split()}
    shared = {
        other: sum(not {word, f"{word}s"}.isdisjoint(_spellings(other)) for word in words) for other in known
    }
    most = max(shared.values(), default=0)
    return [other for other, count in shared.items() if count == most][:3] if most else []


_LISTED = 5
_BORDER = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Between two words of a name."""
_DIMENSIONS = re.compile(r"[123]d$")
_ABBREVIATED = {"bn": "batch norm", "ln": "layer norm"}
_RELATED = {
    "dropout": "identities", "flash": "attention", "gelu": "activation", "qkv": "linears",
    "sdpa": "attention", "silu": "activation",
}  # fmt: skip


class Passes(OtherNames, _Tuple):
    """A tuple of passes that are found by name, as :func:`find_names` does; a call returns the tuple.

    A list is compared with it item by item: names, or the passes.
    """

    __hash__ = tuple.__hash__

    among: tuple[Transformation, ...] = ()
    """The passes among which a part of a name has to mean one; left out, these themselves."""

    def meant(self, wanted: object) -> list[Transformation]:
        """Return those of them that a name, a class or a pass means."""
        found = [each for each in self if _is_meant(wanted, each)]
        if isinstance(wanted, str) and not found:
            with suppress(ValueError):
                names = find_names(wanted, self.among or self)
                found = [each for each in self if each.name in names]
        return found

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

    def __call__(self, *asked: Any) -> Passes:
        """Return itself."""
        if asked:
            raise TypeError(
                f"Passes are listed without arguments, got {asked[0]!r}. session.apply(pass_) switches one "
                "on, session.preview(pass_) returns the graph with it, session.is_on(pass_) tells if it is."
            )
        return self

    def items(self) -> list[tuple[str, Transformation]]:
        """Return the name of each, and the pass."""
        return [*zip(self.names, self, strict=True)]

    def __contains__(self, wanted: object) -> bool:
        return bool(self.meant(wanted))

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return super().__getitem__(place)
        if found := self.meant(place):
            return found[0] if len(found) == 1 else Passes(found)
        raise KeyError(f"{place!r} is none of {', '.join(self.names) or 'no passes'}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return tuple.__eq__(self, other) if isinstance(other, tuple) else False
        found = [one for each in other for one in self.meant(each)]
        return (len(other) == len(self) and all(map(_is_meant, other, self))) or found == [*self]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _repr_html_(self) -> str:
        return str(self.table.to_html())


def _is_meant(wanted: object, pass_: Transformation) -> bool:
    if isinstance(wanted, str):
        return spelt_alike(wanted, str(pass_.name)) or wanted == pass_.signature
    return wanted is type(pass_) or (isinstance(wanted, Transformation) and wanted == pass_)
