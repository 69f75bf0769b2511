"""From the options of a command to a session with passes on."""

from __future__ import annotations

import argparse

from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.model_source import Source, loaded
from fxlab.command_line.pass_names import chosen_names
from fxlab.command_line.progress import Progress
from fxlab.command_line.python_model import is_named_in_code, made_in_code
from fxlab.command_line.traced_model import traced
from fxlab.session import Session, TransformationError
from fxlab.transformations import Transformation, offered
from fxlab.transformations.as_pass import as_pass


def chosen_passes(words: str | None) -> tuple[list[Transformation], list[str]]:
    """Return the passes on offer, with those in Python code that are named, and the names of those to apply.

    Raises CommandError if a word means no pass, or several.
    """
    passes = [*offered()]
    if words is None:
        return passes, []
    names = [word.strip() for word in words.split(",")]
    own = [_in_code(name) for name in names if is_named_in_code(name)]
    known = ",".join(name for name in names if not is_named_in_code(name))
    chosen = [] if own and not known else chosen_names(known, [str(p.name) for p in passes])
    return [*passes, *own], [*chosen, *(str(pass_.name) for pass_ in own)]


def _in_code(name: str) -> Transformation:
    with ends_with(ExitCode.BAD_USAGE, TypeError, ValueError, hint=f"(--passes {name})"):
        return as_pass(made_in_code(name, 0, calls=False), "--passes")


def session_with_passes(
    options: argparse.Namespace,
    progress: Progress,
    chosen: tuple[list[Transformation], list[str]],
    *,
    needs_weights: bool = False,
) -> tuple[Session, Source]:
    """Load and trace the model of a command, and apply the passes."""
    with progress.step("load"):
        source = loaded(options)
    if needs_weights and not source.has_data:
        raise CommandError(f"{options.model}: a model without weights cannot be exported.")
    passes, names = chosen
    with progress.step("trace"):
        session = Session(*traced(source, options), passes=passes)
    for name in names:
        with progress.step(name), ends_with(ExitCode.PASS_FAILED, TransformationError):
            session.apply(name)
    return session, source
