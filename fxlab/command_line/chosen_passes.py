"""The passes that ``--passes`` names, and the session of a command with these passes on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches

from fxlab.command_line.answer import CommandError, ExitCode, ends_with
from fxlab.command_line.model_source import Source, loaded, traced
from fxlab.front_desk.named_models import is_named_in_code, made_in_code
from fxlab.session import Session, TransformationError
from fxlab.transformations import Transformation, offered
from fxlab.transformations.registry import as_pass


def chosen_passes(words: str | None) -> tuple[list[Transformation], list[str]]:
    """Return the passes on offer, with those in Python code that are named, and the names of those to apply.

    Raises CommandError if a word means no pass, or several.
    """
    passes = [*offered()]
    if words is None:
        return passes, []
    names = [word.strip() for word in words.split(",")]
    own = []
    for name in filter(is_named_in_code, names):
        with ends_with(ExitCode.BAD_USAGE, TypeError, ValueError, hint=f"(--passes {name})"):
            own.append(as_pass(made_in_code(name, 0, calls=False), "--passes"))
    known = ",".join(name for name in names if not is_named_in_code(name))
    chosen = [] if own and not known else chosen_names(known, [str(pass_.name) for pass_ in passes])
    return [*passes, *own], [*chosen, *(str(pass_.name) for pass_ in own)]


def session_with_passes(
    options: argparse.Namespace, chosen: tuple[list[Transformation], list[str]]
) -> tuple[Session, Source]:
    """Load and trace the model of a command, and apply the passes."""
    source = loaded(options)
    passes, names = chosen
    session = Session(*traced(source, options), passes=passes)
    for name in names:
        with ends_with(ExitCode.PASS_FAILED, TransformationError):
            session.apply(name)
    return session, source


def chosen_names(words: str, offered: Sequence[str]) -> list[str]:
    """Return the names of the passes in a list, separated by commas, in the order of application.

    ``words``: exact names; ``all`` for every pass. ``offered``: the names on offer, in that order. Raises
    CommandError if there is no word, or one that is no name.
    """
    if words.strip() == "all":
        return [*offered]
    given = {word.strip() for word in words.split(",") if word.strip()}
    if not given:
        raise CommandError(
            f"--passes: expected names of passes or `all`, got {words!r}. Leave it out for none."
        )
    for word in sorted(given - {*offered}):
        near = get_close_matches(word, offered, n=1, cutoff=0.5) or [n for n in offered if word in n]
        hint = f"Did you mean {near[0]}?" if near else "`fxlab doctor` lists those on offer."
        raise CommandError(f"--passes: there is no pass {word!r}. {hint}")
    return [name for name in offered if name in given]
