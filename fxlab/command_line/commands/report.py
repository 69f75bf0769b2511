"""The commands about one model: its graph, or what passes make of it, judged and written as a page."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import Answer, CommandError, ExitCode, ends_with
from fxlab.command_line.model_source import loaded
from fxlab.command_line.passed_session import (
    chosen_passes,
    judged,
    of_graphs,
    pass_table,
    session_with_passes,
    traced,
)
from fxlab.session import Session, TransformationError, load_session
from fxlab.transformations import Transformation

if TYPE_CHECKING:
    import pandas as pd
    from torch.fx import GraphModule


def report(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, compare the two, and write the report."""
    chosen = chosen_passes(options.passes)
    session, source = session_with_passes(options, chosen)
    found, tables, code = judged(session, source.has_data)
    facts = {**of_graphs(session, source.words), **found}
    if options.save:
        with ends_with(ExitCode.BAD_USAGE, OSError, hint="(--save)"):
            facts["session"] = str(session.save(options.save))
    return _written(options, session, Answer(facts, tables)), code


def _written(options: argparse.Namespace, session: Session, answer: Answer) -> Answer:
    """Write the page, if one is asked for; return the answer with its path and the table of passes."""
    facts = answer.facts
    if options.output:
        from fxlab.html_report.report import report as write

        with ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o)"):
            write(session, path=options.output, title=getattr(options, "title", ""))
        facts = {**facts, "report": options.output}
    return Answer(facts, {**answer.tables, "passes": pass_table(session)})


def check(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Load a saved session with a model, tell the differences, and judge it; or judge passes by name."""
    if options.session is None:
        if options.passes is None:
            raise CommandError("--session: expected a saved stack, or --passes.")
        if options.strict:
            raise CommandError("--strict: expected a saved stack to compare with (--session), got --passes.")
        options.save = None
        return report(options)
    passes, named = chosen_passes(options.passes)
    source = loaded(options)
    model, inputs = traced(source, options)
    session, differences = _loaded_session(options.session, model, inputs, passes)
    on = [str(pass_.name) for pass_ in session.applied]
    if left := [name for name in named if name not in on]:
        raise CommandError(
            f"--passes: {options.session} does not switch on {', '.join(left)}. It chooses the passes; "
            "leave it out to judge others."
        )
    found, tables, code = judged(session, source.has_data)
    facts = {**of_graphs(session, source.words), **found, "not_as_saved": differences}
    if differences and options.strict and code is ExitCode.DONE:
        code = ExitCode.DIFFERENT
    return _written(options, session, Answer(facts, tables)), code


def _loaded_session(
    path: str, model: Any, inputs: Any, passes: list[Transformation]
) -> tuple[Session, list[str]]:
    """Return the session, and in words its differences from the one that was saved."""
    with (
        warnings.catch_warnings(record=True) as caught,
        ends_with(ExitCode.PASS_FAILED, TransformationError),
        ends_with(ExitCode.BAD_USAGE, OSError, hint="(--session)"),
        ends_with(ExitCode.BAD_USAGE, ValueError, hint="(--session; passes in code: --passes file.py:name)"),
    ):
        warnings.simplefilter("always", RuntimeWarning)
        session = load_session(path, model, inputs, passes=passes)
    return session, [str(warning.message) for warning in caught if warning.category is RuntimeWarning]


def trace(options: argparse.Namespace) -> tuple[Answer | str, ExitCode]:
    """Trace a model; return its report, its nodes or its code."""
    source = loaded(options)
    graph_module, _ = traced(source, options)
    if options.output:
        import torch

        kinds, hint = (OSError, RuntimeError), f"(-o {options.output})"
        with ends_with(ExitCode.BAD_USAGE, *kinds, hint=hint):
            torch.save(graph_module, options.output)
    if options.code and not options.json:
        return graph_module.code.strip() + "\n", ExitCode.DONE
    report = graph_module.meta.get("trace")
    facts = {
        "model": source.words,
        "traced_on": None if report is None else report.rung,
        "nodes": len(graph_module.graph.nodes),
        "not_traced_on": [] if report is None else list(report.steps_down),
        "saved": options.output,
    }
    if options.code:
        return Answer({**facts, "code": graph_module.code.strip()}), ExitCode.DONE
    if options.nodes or report is None:
        return Answer(facts, {"graph": _node_table(graph_module)}), ExitCode.DONE
    return Answer(facts, {"findings": report.table}), ExitCode.DONE


def _node_table(graph_module: GraphModule) -> pd.DataFrame:
    from fxlab.graphs.nodes import nodes

    table = nodes(graph_module).rename_axis("node").reset_index()
    table["inputs"] = table["inputs"].map(", ".join)
    table["shape"] = table["shape"].map(lambda shape: str(shape or ""))
    table["dtype"] = table["dtype"].fillna("")
    return table[["node", "op", "target", "inputs", "shape", "dtype", "module"]]
