"""Which passes the words of a person mean."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fxlab.command_line.exit_code import CommandError

ALL = "all"


def chosen_names(words: str, offered: Sequence[str]) -> list[str]:
    """Return the names of passes that a list, separated by commas, means.

    Parameters
    ----------
    words
        Names, or beginnings that only one name has (``fuse-bias`` for ``fuse-bias-in-linear``); ``all`` for
        every pass.
    offered
        All names.

    Returns
    -------
    list of str
        In the order of ``offered``, which is that of application.

    Raises
    ------
    CommandError
        If there is no word, or one means no pass, or several.

    Examples
    --------
    >>> chosen_names("merge,fuse-bias", ["merge-linears", "fuse-bias-in-linear", "fuse-attention"])
    ['merge-linears', 'fuse-bias-in-linear']
    """
    if words.strip() == ALL:
        return list(offered)
    if not words.replace(",", " ").strip():
        raise CommandError(
            f"--passes: expected names of passes or `{ALL}`, got {words!r}. Leave it out for none."
        )
    chosen = {_meant(word.strip(), offered) for word in words.split(",") if word.strip()}
    return [name for name in offered if name in chosen]


def _meant(word: str, offered: Sequence[str]) -> str:
    if word in offered:
        return word
    found = [name for name in offered if name.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"--passes: {word!r} may be {', '.join(found)}. Write more of the name.")
    close = difflib.get_close_matches(word, offered, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise CommandError(f"--passes: there is no pass {word!r}. {meant}`fxlab passes` lists them.")
