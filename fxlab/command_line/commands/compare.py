"""``fxlab compare``: whether two models of any origin compute the same, and where they part."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.judged import code_of, facts_of
from fxlab.command_line.model_source import device_of, given_inputs, loaded
from fxlab.command_line.progress import Progress
from fxlab.command_line.traced_model import inputs_for


def compare(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Load two models, trace what is no graph yet, and compare them."""
    from fxlab.comparison import compare as compared
    from fxlab.tracing import TraceError

    with Progress(3 + bool(options.output), verbose=options.verbose) as progress:
        with progress.step("load"):
            reference = loaded(options)
            candidate = loaded(argparse.Namespace(**vars(options) | {"model": options.candidate}))
        inputs, others = inputs_for(reference, options), None
        if inputs is None:
            inputs = inputs_for(candidate, options)
        if options.candidate_inputs:
            others = given_inputs(Path(options.candidate_inputs), device_of(options), "--candidate-inputs")
        with (
            progress.step("compare"),
            ends_with(ExitCode.NOT_COMPARED, TypeError, ValueError),
            ends_with(ExitCode.NOT_TRACED, TraceError),
        ):
            found = compared(
                reference.model,
                candidate.model,
                inputs,
                candidate_inputs=others,
                outputs=options.outputs,
            )
            modules, first = found.modules, found.first
        facts = {
            "reference": reference.words,
            "candidate": candidate.words,
            **facts_of(found.verdict),
            "first": first and first.candidate,
            "first_in_reference": first and first.reference,
            "first_in_words": first and str(first),
            "not_compared": [*found.alignment.only_in_one],
        }
        if options.output:
            with progress.step("write"), ends_with(ExitCode.BAD_USAGE, OSError, RuntimeError):
                facts["report"] = str(found.report(options.output))
    weights = found.weights_table
    if options.format == "text":
        odd = [weight.is_odd for weight in found.weights or ()]
        tables = {"modules": modules[modules["status"] != "agrees"], "weights": weights[odd]}
    else:
        tables = {"modules": modules, "weights": weights, "nodes": found.table}
    return Answer(facts, tables), code_of(found.verdict, found.agrees)
