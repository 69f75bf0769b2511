"""Commands that ask something of a graph and its passes: tables, a picture, times."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.judged import of_graphs
from fxlab.command_line.passed_session import chosen_passes, session_with_passes
from fxlab.command_line.progress import Progress
from fxlab.transformations import offered

if TYPE_CHECKING:
    from fxlab.session import Session


def nodes(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """List the nodes of a model's graph, with passes applied."""
    from fxlab.graphs.nodes import nodes as nodes_of

    shown = ["op", "target", "module", "class", "shape", "dtype", "marks"]

    def table(session: Session, names: list[str]) -> pd.DataFrame:
        with ends_with(ExitCode.BAD_USAGE, ValueError, hint="(--module)"):
            return nodes_of(session, module=options.module)

    return _answer(options, "nodes", table, shown)


def profile(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Tell the time, operations and bytes of each node, with passes applied."""
    from fxlab.validation import profile

    return _answer(options, "nodes", lambda session, names: profile(session))


def explain(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Tell the changes that passes would make to a model, and the reasons of those they would not."""

    def table(session: Session, names: list[str]) -> pd.DataFrame:
        return pd.concat([session.explain(name).assign(**{"pass": name}) for name in names])

    return _answer(options, "candidates", table, apply=False)


def why_not(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Tell where passes do not apply, or not at a node, and why; the nearest miss first."""

    def table(session: Session, names: list[str]) -> pd.DataFrame:
        with ends_with(ExitCode.BAD_USAGE, ValueError):
            return pd.concat([session.why_not(name, options.node) for name in names])

    return _answer(options, "reasons", table, apply=False)


def _answer(
    options: argparse.Namespace,
    title: str,
    table: Callable[[Session, list[str]], pd.DataFrame],
    shown: list[str] | None = None,
    *,
    apply: bool = True,
) -> tuple[Answer, ExitCode]:
    words = [each for each in (getattr(options, "named", None), options.passes) if each is not None]
    passes, names = chosen_passes(",".join(words) if words else None)
    if not apply and not names:
        raise CommandError("--passes: expected names of passes, or `all`.")
    with Progress(3 + len(names) * apply, verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, (passes, names if apply else []))
        with progress.step(title):
            found = table(session, names)
    facts = {**of_graphs(session, source.words), "rows": len(found)}
    return Answer(facts, {title: found}, {title: shown} if shown else {}), ExitCode.DONE


def draw(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Draw the graph of a model, with passes applied and their nodes highlighted."""
    from fxlab.drawing.drawing import draw

    chosen = chosen_passes(options.passes)
    with Progress(3 + len(chosen[1]), verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, chosen)
        with progress.step("draw"), ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o, --open)"):
            drawing = draw(session, highlight=[*session.applied], opened=options.open)
            drawing.save(options.output)
    facts = {**of_graphs(session, source.words), "boxes": len(drawing.view.boxes), "picture": options.output}
    return Answer(facts), ExitCode.DONE


def benchmark(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Time a model alone, or with each of the passes and with all of them."""
    from fxlab.validation import benchmark

    passes, names = chosen_passes(options.passes)
    with Progress(3, verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, (passes, []))
        with progress.step("time"), ends_with(ExitCode.BAD_USAGE, ValueError):
            times = benchmark(session, passes=names, each=True, rounds=options.rounds, warmup=options.warmup)
    table = times.table
    table["time"] = [f"{seconds * 1000:.3g} ms" for seconds in table["time"]]
    return Answer(of_graphs(session, source.words), {"times": table}), ExitCode.DONE


def bisect(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Find the pass, and the rewrite in it, with which a model is different."""
    from fxlab.validation import bisect

    chosen = chosen_passes(options.passes)
    if not chosen[1]:
        raise CommandError("--passes: expected names of passes, or `all`.")
    with Progress(3 + len(chosen[1]), verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, chosen)
        with progress.step("bisect"), ends_with(ExitCode.NOT_COMPARED, TypeError, ValueError):
            found = bisect(session)
    facts = {**of_graphs(session, source.words), "agrees": found is None}
    if found is None:
        return Answer(facts), ExitCode.DONE
    facts |= {
        "different_since": found.pass_.name,
        "rewrites": [*found.rewrites],
        "first_node": found.divergence and found.divergence.node,
        "reason": found.reason,
    }
    return Answer(facts), ExitCode.DIFFERENT


def passes(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """List the passes of fxlab and of other installed packages, in the order of their application."""
    return Answer({}, {"passes": offered().table.reset_index()}), ExitCode.DONE
