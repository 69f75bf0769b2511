"""From the options of a command to a graph module, and inputs to run it on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.model_source import Source, given_inputs

if TYPE_CHECKING:
    from torch.fx import GraphModule


def traced(source: Source, options: argparse.Namespace) -> tuple[GraphModule, Any]:
    """Return the graph of a model, and inputs to run it on; ``None`` for a graph that comes without."""
    from torch.fx import GraphModule

    from fxlab.tracing import TraceError, symbolic_trace

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

    from fxlab.tracing import example_inputs

    model = source.model
    if options.inputs:
        first = next(model.parameters(), None)
        return given_inputs(Path(options.inputs), torch.device("cpu") if first is None else first.device)
    if source.inputs is not None or (isinstance(model, GraphModule) and not hasattr(model, "config")):
        return source.inputs
    hint = "(or in a file: --inputs)"  # not where it is the model that is wrong
    with ends_with(ExitCode.BAD_USAGE, TypeError), ends_with(ExitCode.BAD_USAGE, ValueError, hint=hint):
        return example_inputs(model, batch_size=options.batch_size, sequence_length=options.length)
