"""Names of passes, understood in any common spelling."""

import difflib
import re
from collections.abc import Iterable


def find_name(name: str, names: Iterable[str], argument: str = "pass_", *, by_prefix: bool = False) -> str:
    """Return the name of a pass that is meant; capitals, spaces, hyphens and underscores do not matter.

    ``argument``: the argument that it was given for, to begin an error with. ``by_prefix``: whether an
    unambiguous prefix is accepted. Raises ValueError if there is no such name, or several.
    """
    known = list(names)
    if name in known:
        return name
    wanted, spellings = _bare(name), {other: _bare(other) for other in known}
    found = [other for other, spelling in spellings.items() if wanted == spelling]
    if not found and by_prefix and wanted:
        found = [other for other, spelling in spellings.items() if spelling.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{argument}: {name!r} may be {', '.join(found)}. Write the whole name.")
    close = difflib.get_close_matches(wanted, spellings.values(), n=1)
    near = [other for other, spelling in spellings.items() if spelling in close] or _sharing_words(
        name, known
    )
    if name[:1].isupper() and name.isalnum():  # as the classes are called
        near = ["".join(part[0].upper() + part[1:] for part in other.split("-")) for other in near]
    meant = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    all_of_them = f"On offer: {', '.join(known) or 'none'}."
    if len(known) > _LISTED:
        all_of_them = f"{len(known)} are on offer: session.passes, or `fxlab passes`."
    raise ValueError(f"{argument}: there is no pass {name!r}. {meant}{all_of_them}")


def _sharing_words(name: str, known: Iterable[str]) -> list[str]:
    """Return the names with the most words of this one, of which some are short for several."""
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
    "batchnorm": "batch norm",
    "bn": "batch norm",
    "cse": "common subexpressions",
    "dce": "dead code",
    "dropout": "identities",
    "flash": "attention",
    "gelu": "activation",
    "ln": "layer norm",
    "qkv": "linears",
    "sdpa": "attention",
    "silu": "activation",
}


def spelt_alike(name: str, other: str) -> bool:
    """Tell whether two spellings are of one name: capitals, spaces, hyphens and underscores do not matter."""
    return _bare(name) == _bare(other) != ""


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
