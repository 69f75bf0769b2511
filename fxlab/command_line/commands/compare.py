"""``fxlab compare``: whether two models of any origin compute the same, and where they part."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fxlab.command_line.answer import Answer, ExitCode, ends_with
from fxlab.command_line.model_source import Source, device_of, given_inputs, inputs_for, loaded
from fxlab.command_line.verdict_answer import facts_of


def _given(options: argparse.Namespace, path: str) -> tuple[Any, str, Source | None]:
    """Return a model, its description in words, and its source; of a recorded run its path."""
    from fxlab.comparison.recorded.recorded_run import is_run_file

    if is_run_file(path):
        return path, f"{path} (a recorded run)", None
    source = loaded(argparse.Namespace(**vars(options) | {"model": path}))
    return source.model, source.words, source


def _weights(reference: str, candidate: str, options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Compare files of weights, which have no code to run."""
    from fxlab.comparison.weights_table import compared_weights, table_of

    with ends_with(ExitCode.BAD_USAGE, TypeError, ValueError):
        found = compared_weights(reference, candidate)
    odd = [weight for weight in found if weight.is_odd]
    facts = {"reference": reference, "candidate": candidate, "compared_weights": len(found), "odd": len(odd)}
    code = ExitCode.DIFFERENT if odd else ExitCode.DONE if found else ExitCode.NOT_COMPARED
    return Answer(facts, {"weights": table_of(odd if not options.json else found)}), code


def compare(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Load two models, trace those that are not graphs yet, and compare them."""
    from fxlab.comparison import compare as compared
    from fxlab.comparison.pairing import NoSuchOutputError
    from fxlab.comparison.weights_table import is_weights
    from fxlab.tracing import TraceError

    paths = options.model, options.candidate
    if all(is_weights(path) and not Path(path).is_dir() for path in paths):
        return _weights(*paths, options)
    given = [_given(options, path) for path in paths]
    inputs, others = None, None
    for *_, source in given:
        if inputs is None and source is not None:
            inputs = inputs_for(source, options)
    if options.candidate_inputs:
        others = given_inputs(Path(options.candidate_inputs), device_of(options), "--candidate-inputs")
    with (
        ends_with(ExitCode.NOT_COMPARED, TypeError, ValueError),
        ends_with(ExitCode.NOT_TRACED, TraceError),
        ends_with(ExitCode.BAD_USAGE, NoSuchOutputError, hint="(--outputs)"),
    ):
        (reference, *_), (candidate, *_) = given
        found = compared(reference, candidate, inputs, candidate_inputs=others, outputs=options.outputs)
        modules, first = found.modules, found.first
    judged, code = facts_of(found.verdict, found.agrees)
    facts = {
        "reference": given[0][1],
        "candidate": given[1][1],
        **judged,
        "first": first and first.candidate,
        "first_in_reference": first and first.reference,
        "first_in_words": first and str(first),
        "not_compared": [*found.alignment.only_in_one],
        "notes": [*found.notes],
    }
    if options.output:
        from fxlab.html_report.report import report

        with ends_with(ExitCode.BAD_USAGE, OSError, RuntimeError):
            facts["report"] = str(report(found.session, options.output))
    weights = found.weights_table
    if not options.json:
        odd = [weight.is_odd for weight in found.weights]
        tables = {"modules": modules[modules["status"] != "agrees"], "weights": weights[odd]}
    else:
        tables = {"modules": modules, "weights": weights, "nodes": found.table}
    return Answer(facts, tables), code
