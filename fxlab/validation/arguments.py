"""Models and sessions given to functions of this package, as graphs to run; checks that they can run."""

from contextlib import suppress
from inspect import isroutine
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from fxlab.front_desk import sources
from fxlab.models.graph_modules.generated_code import protect
from fxlab.models.hooks import compiled_calls, is_compiled, may_be_compiled
from fxlab.models.parallel.ranks import why_not_judged
from fxlab.models.running.arguments import Inputs, argument_names, given_arguments
from fxlab.models.running.running import run
from fxlab.models.state.model_state import state_kept_in_call
from fxlab.models.state.tensor_state import CALLS_A_MODULE, tensors_of


class CompiledCodeError(ValueError):
    """A model runs compiled code, which has no nodes that could be run one by one."""

    def __init__(self, name: str, call: GraphModule) -> None:
        self.call = call
        super().__init__(
            f"{name}: it runs code that torch.compile has compiled, whose nodes cannot be run one by one. "
            "fxlab.verdict and fxlab.compare run it as it is called, and compare its outputs."
        )


def as_graph(model: Any, inputs: Inputs) -> GraphModule:
    """Return a module as a graph that is run as it is: itself, or a single call of it.

    A function is called by a module that holds the modules that it reads.
    """
    if isinstance(model, GraphModule):
        return model
    if isroutine(model):
        model = sources.module_of_function(model)
    graph, (args, kwargs) = Graph(), given_arguments(inputs)
    named = enumerate(name.replace(".", "_") for name in argument_names(model, len(args)))
    names = (name if name.isidentifier() else f"input_{place}" for place, name in named)
    given = tuple(map(graph.placeholder, names))
    graph.output(graph.call_module("model", given, {name: graph.placeholder(name) for name in kwargs}))
    result = GraphModule({"model": model}, protect(graph))
    result.meta[CALLS_A_MODULE] = True
    return result


def compiled_call(model: Any, inputs: Inputs) -> GraphModule | None:
    """Return the single call of a model or function that runs compiled code; ``None`` of any other.

    It is run as it is called: no trace shows what its compiled code does.
    """
    if isinstance(model, GraphModule) and not is_compiled(model):
        return None
    if not is_compiled(model):
        if not may_be_compiled():
            return None
        graph = as_graph(model, inputs)
        with suppress(Exception), state_kept_in_call(graph), compiled_calls() as compiled:
            run(graph, inputs)  # if it raises, its trace says why
        if not compiled.are_there:
            return None
    return as_graph(model, inputs)


def graph_to_run(model: sources.Model, name: str, inputs: Inputs) -> GraphModule:
    """Return a model as a graph that is run as it is; a function is traced, unless it runs compiled code."""
    module: Any = sources.module_of(model, name)
    if not isroutine(module):
        return as_graph(module, inputs)
    return compiled_call(module, inputs) or sources.graph_of(module, name, inputs)


def check_runs(module: torch.nn.Module, name: str) -> None:
    """Raise the ``ValueError`` that says why a module cannot be run."""
    held = tensors_of(module) if isinstance(module, GraphModule) else module.parameters()
    if any(tensor.is_meta for tensor in held):
        raise ValueError(f"{name}: it is on the meta device and has no weights to run with.")
    if why := why_not_judged(module):
        raise ValueError(f"{name}: {why}")


def check_runs_by_node(graph_module: GraphModule, name: str) -> None:
    """Raise the ``ValueError`` that says why nodes cannot be run one by one.

    Dynamo writes ``torch.vmap`` and ``torch.func.grad`` as nodes that begin and end a level of functorch,
    outside of which the nodes between have no values; a fake process group exchanges none.
    """
    if why := why_not_judged(graph_module):
        raise ValueError(f"{name}: {why}")
    for node in graph_module.graph.nodes:
        if str(getattr(node.target, "__name__", "")).endswith("_increment_nesting"):
            raise ValueError(
                f"{name}: node {node.name!r} begins a torch.vmap or a torch.func transform, in which nodes "
                "cannot be run one by one. fxlab.verdict runs the graph as a whole."
            )


def graphs_to_run(
    reference: sources.Model, candidate: sources.Model, inputs: Inputs | None
) -> tuple[GraphModule, GraphModule, Inputs]:
    """Return two models as graphs that run node by node, and the inputs to run them on."""
    first, second, known = sources.compared_models(reference, candidate, inputs)
    given = sources.inputs_or_examples(known, first)
    for model, name in (first, "reference"), (second, "candidate"):
        if (call := compiled_call(model, given)) is not None:
            raise CompiledCodeError(name, call)
    first, second = sources.graph_of(first, "reference", given), sources.graph_of(second, "candidate", given)
    check_runs(first, "reference")
    check_runs(second, "candidate")
    check_runs_by_node(first, "reference")
    check_runs_by_node(second, "candidate")
    return first, second, given
