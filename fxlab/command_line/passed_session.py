"""A session with passes on, made from the options of a command, and its verdict as an answer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import CommandError, ExitCode, ends_with
from fxlab.command_line.model_source import Source, given_inputs, loaded
from fxlab.front_desk.named_models import is_named_in_code, made_in_code
from fxlab.session import Session, TransformationError
from fxlab.transformations import Transformation, offered
from fxlab.transformations.registry import as_pass

if TYPE_CHECKING:
    import pandas as pd
    from torch.fx import GraphModule

    from fxlab.session import Session
    from fxlab.transformations import Transformation
    from fxlab.validation import Verdict


def traced(source: Source, options: argparse.Namespace) -> tuple[GraphModule, Any]:
    """Return the graph of a model, and inputs to run it on; ``None`` for a graph that comes without."""
    from torch.fx import GraphModule

    from fxlab.tracing import TraceError
    from fxlab.tracing.symbolic_trace import symbolic_trace

    inputs = inputs_for(source, options)
    if isinstance(source.model, GraphModule):
        return source.model, inputs
    with ends_with(ExitCode.NOT_TRACED, TraceError), ends_with(ExitCode.BAD_USAGE, TypeError, ValueError):
        check = not options.no_check
        return symbolic_trace(source.model, inputs, dynamic=not options.fixed, check=check), inputs


def inputs_for(source: Source, options: argparse.Namespace) -> Any:
    """Return inputs to run a model on; ``None`` for a graph that comes without."""
    import torch
    from torch.fx import GraphModule

    from fxlab.tracing.inputs.example_inputs import example_inputs

    model = source.model
    if options.inputs:
        first = next(model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
        return given_inputs(Path(options.inputs), device, model=model)
    if source.inputs is not None or (isinstance(model, GraphModule) and not hasattr(model, "config")):
        return source.inputs
    hint = "(or in a file: --inputs)"  # not where it is the model that is wrong
    with ends_with(ExitCode.BAD_USAGE, TypeError), ends_with(ExitCode.BAD_USAGE, ValueError, hint=hint):
        return example_inputs(model, batch_size=options.batch_size, sequence_length=options.length)


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


def judged(session: Session, has_data: bool) -> tuple[dict[str, Any], dict[str, pd.DataFrame], ExitCode]:
    """Return facts and tables of a session's verdict on its inputs, and the exit code that it asks for."""
    if not has_data:
        return {"verdict": None, "reason": "without weights nothing was compared"}, {}, ExitCode.DONE
    with ends_with(ExitCode.NOT_COMPARED, Exception, hint="The outputs were not compared."):
        verdict = session.verdict()
    facts, code = facts_of(verdict, verdict.agrees)
    if code is ExitCode.DIFFERENT:
        facts["different_since"] = _first_that_differs(session).name
    return facts, {"outputs": verdict.table}, code


def facts_of(verdict: Verdict, agrees: bool) -> tuple[dict[str, Any], ExitCode]:
    """Return a few facts of a verdict, and its exit code; ``agrees`` is that of the result that it is of."""
    from fxlab.validation import Status

    code = ExitCode.DONE if agrees else ExitCode.DIFFERENT
    if verdict.status is Status.NOTHING_COMPARED:
        code = ExitCode.NOT_COMPARED
    facts = {
        "verdict": str(verdict.status),
        "agrees": agrees,
        "ratio": verdict.ratio,
        "reason": verdict.reason,
        "compared_elements": verdict.compared,
    }
    return facts, code


def of_graphs(session: Session, words: str) -> dict[str, Any]:
    """Return the name of the model, in words, and how many nodes it has and had."""
    return {
        "model": words,
        "nodes_before": len(session.original.graph.nodes),
        "nodes_after": len(session.graph_module.graph.nodes),
    }


def pass_table(session: Session) -> pd.DataFrame:
    """Return a row for each pass that is on: its changes, and how many candidates it has refused."""
    import pandas as pd

    rows = [(p.name, str(session.changes(p)), _refused(session, p)) for p in session.applied]
    return pd.DataFrame(rows, columns=["pass", "changes", "refused"])


def _first_that_differs(session: Session) -> Transformation:
    """Return the lowest pass of the stack with which the model differs."""
    from fxlab.validation import Reference, Status

    reference = Reference(session.original, session.inputs)
    for transformation, stage in zip(session.applied, session.stages[1:], strict=True):
        if reference.verdict(stage).status is Status.DIFFERENT:
            return transformation
    raise AssertionError("the topmost stage differs")


def _refused(session: Session, pass_: Transformation) -> int:
    """Return how many candidates a pass has refused; a function that has no candidates refuses none."""
    if pass_.explains_by_running:
        return 0
    explained = session.explain(pass_)
    return int(explained["candidate"][~explained["matched"].astype(bool)].nunique())
