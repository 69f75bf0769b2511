"""Checking what the functions of this package are called with."""

from typing import Any, cast

from torch.fx import GraphModule
from torch.nn import Module

from fxlab.models.graph_module import check_lints
from fxlab.models.running import Inputs, call_arguments
from fxlab.validation.module_tensors import tensors_of


def checked_graph(module: Any, name: str) -> GraphModule:
    """Return a graph module, or raise the ``TypeError`` that says which argument is none."""
    if not isinstance(module, GraphModule):
        raise TypeError(
            f"{name}: expected a torch.fx.GraphModule, got {type(module).__name__}. "
            "Trace the model first, with fxlab.symbolic_trace."
        )
    check_lints(module, name)
    return module


def runnable_graph(module: Any, name: str) -> GraphModule:
    """Return a graph module that can be run, or raise what says which argument is none."""
    checked_graph(module, name)
    if any(tensor.is_meta for tensor in tensors_of(module)):
        raise ValueError(f"{name}: it is on the meta device and has no weights to run with.")
    return cast(GraphModule, module)


def inputs_or_examples(inputs: Inputs | None, original: Module) -> Inputs:
    """Return inputs that are some, or make them from the configuration of a module."""
    if inputs is None:
        from fxlab.tracing import example_inputs

        return example_inputs(original)
    call_arguments(inputs)
    return inputs
