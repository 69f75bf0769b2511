"""Names of passes as people write them, and the passes that they mean."""

from __future__ import annotations

from collections.abc import Sequence

from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with

ALL = "all"


def chosen_names(words: str, offered: Sequence[str]) -> list[str]:
    """Return the names of passes that a list, separated by commas, means.

    ``words``: names in any common spelling, or unambiguous prefixes of names (``fuse-bias`` for
    ``fuse-bias-in-linear``); ``all`` for every pass. Raises CommandError if there is no
    word, or one means no pass, or several.

    Returns
    -------
    list of str
        In the order of ``offered``, which is that of application.

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
    from fxlab.transformations.pass_names import find_name

    given = [word.strip() for word in words.split(",") if word.strip()]
    with ends_with(ExitCode.BAD_USAGE, ValueError):
        chosen = {find_name(word, offered, "--passes", by_prefix=True) for word in given}
    return [name for name in offered if name in chosen]
