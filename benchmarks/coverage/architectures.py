"""The architectures of transformers: base models, models with a head for each task, and whole models."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from benchmarks.coverage.results import Result, one_line, trace_and_compare
from benchmarks.whole_models import OTHER_SIZES, whole_input_names
from fxlab.models.running.running import run
from fxlab.tracing.inputs.example_inputs import example_inputs

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from zoo import SHRINKS, model_types, tasks, tiny_of_type

BASE, WHOLE_MODELS = "base", "whole"
__all__ = ["BASE", "model_types", "tasks"]


def tried(model_type: str, task: str = BASE) -> Result:
    """Build, run, trace and compare one architecture."""
    result = Result(model_type)
    model = None
    for shrink in SHRINKS:
        try:
            model = tiny_of_type(model_type, task=BASE if task == WHOLE_MODELS else task, shrink=shrink)
            result.outcome = "no inputs"
            names = whole_input_names(model) if task == WHOLE_MODELS else None
            inputs = example_inputs(model, input_names=names)
            result.outcome = "not run"
            with torch.no_grad():
                run(model, inputs)
        except ImportError as error:
            result.reason = one_line(error)
            return result
        except Exception as error:  # a configuration may fail in any way
            result.reason = one_line(error)
        else:
            break
    else:
        return result
    others = (
        (words, example_inputs(model, input_names=names, **sizes))
        for words, sizes in OTHER_SIZES.items()
        if task == WHOLE_MODELS or words in ("another batch size", "another length")
    )
    return trace_and_compare(result, model, inputs, others)
