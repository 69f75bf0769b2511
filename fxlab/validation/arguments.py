"""The arguments that functions of this package have in common: models, sessions and inputs."""

from collections.abc import Iterable, Iterator, Sequence
from inspect import isroutine

import torch
from torch.fx import Graph, GraphModule

from fxlab.checks import items_of, unexpected
from fxlab.models.module_tensors import tensors_of
from fxlab.models.ranks import why_not_judged
from fxlab.models.running import Inputs, argument_names, given_arguments
from fxlab.models.safe_code import protect
from fxlab.sources import Model, compared_models, graph_of, inputs_or_examples, module_of
from fxlab.transformations import Transformation
from fxlab.transformations.pass_names import no_such_pass


def as_graph(model: torch.nn.Module, inputs: Inputs) -> GraphModule:
    """Return a module as a graph that is run as it is: itself, or a single call of it."""
    if isinstance(model, GraphModule):
        return model
    graph, (args, kwargs) = Graph(), given_arguments(inputs)
    named = enumerate(name.replace(".", "_") for name in argument_names(model, len(args)))
    names = (name if name.isidentifier() else f"input_{place}" for place, name in named)
    given = tuple(map(graph.placeholder, names))
    graph.output(graph.call_module("model", given, {name: graph.placeholder(name) for name in kwargs}))
    return GraphModule({"model": model}, protect(graph))


def graph_to_run(model: Model, name: str, inputs: Inputs) -> GraphModule:
    """Return a model as a graph that is run as it is; a function is traced."""
    module = module_of(model, name)
    return graph_of(module, name, inputs) if isroutine(module) else as_graph(module, inputs)


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
    reference: Model, candidate: Model, inputs: Inputs | None
) -> tuple[GraphModule, GraphModule, Inputs]:
    """Return two models as graphs that run node by node, and the inputs to run them on."""
    first, second, known = compared_models(reference, candidate, inputs)
    given = inputs_or_examples(known, first)
    first, second = graph_of(first, "reference", given), graph_of(second, "candidate", given)
    check_runs(first, "reference")
    check_runs(second, "candidate")
    check_runs_by_node(first, "reference")
    check_runs_by_node(second, "candidate")
    return first, second, given


def passes_of(
    offered: Sequence[Transformation], asked_for: Iterable[Transformation | str]
) -> Iterator[Transformation]:
    """Return those of the passes on offer that ``passes`` asks for, themselves or by name, in their order."""
    given = items_of(asked_for, "passes", "transformations or their names")
    for pass_ in given:
        if not isinstance(pass_, Transformation | str):
            raise unexpected("passes", "transformations or their names", pass_)
    asked = (pass_ if isinstance(pass_, str) else str(pass_.name) for pass_ in given)
    names, wanted = [str(pass_.name) for pass_ in offered], {*asked}
    if unknown := sorted(wanted - {*names}):
        raise no_such_pass(unknown[0], names, "passes")
    return (pass_ for pass_ in offered if pass_.name in wanted)
