"""Names of passes, understood in any common spelling."""

import difflib
import re
from collections.abc import Iterable


def find_name(name: str, names: Iterable[str], argument: str = "pass_", *, by_prefix: bool = False) -> str:
    """Return the name of a pass that is meant; capitals, spaces, hyphens and underscores do not matter.

    Parameters
    ----------
    name
        The name as a person writes it.
    names
        The names to choose from.
    argument
        The argument that it was given for, to begin an error with.
    by_prefix
        Whether an unambiguous prefix is accepted.

    Raises
    ------
    ValueError
        If there is no such name, or several.

    Examples
    --------
    >>> names = ["merge-linears", "fuse-attention"]
    >>> {find_name(name, names) for name in ("merge_linears", "MergeLinears", "Merge linears")}
    {'merge-linears'}
    >>> find_name("merge-linear", names)
    Traceback (most recent call last):
        ...
    ValueError: pass_: there is no pass 'merge-linear'. Did you mean 'merge-linears'? On offer: ...
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
    meant = next((f"Did you mean {o!r}? " for o, spelling in spellings.items() if spelling in close), "")
    raise ValueError(f"{argument}: there is no pass {name!r}. {meant}On offer: {', '.join(known) or 'none'}.")


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
