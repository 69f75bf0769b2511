"""The arguments that functions of this package have in common: models, sessions and inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import torch
from torch.fx import Graph, GraphModule

from fxlab.checks import described, items_of
from fxlab.models.graph_module import check_lints
from fxlab.models.running import Inputs, argument_names, call_arguments, given_arguments
from fxlab.models.safe_code import protect
from fxlab.tracing.sources import ModelLike, Source, source_of
from fxlab.transformations import Transformation
from fxlab.transformations.pass_names import find_name
from fxlab.validation.module_tensors import tensors_of


class SessionLike(Protocol):
    """The part of :class:`fxlab.Session` that this package uses."""

    @property
    def original(self) -> GraphModule:
        """The model without any pass."""

    @property
    def graph_module(self) -> GraphModule:
        """The model with all passes that are on."""

    @property
    def inputs(self) -> Inputs | None:
        """The inputs of the model, if there are any."""

    @property
    def passes(self) -> tuple[Transformation, ...]:
        """The passes on offer, in the order in which they apply."""

    @property
    def applied(self) -> tuple[Transformation, ...]:
        """The passes that are on, in the order in which they were applied."""

    @property
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each of these passes."""


_MEMBERS = ("original", "graph_module", "inputs", "passes", "applied", "stages")

Model: TypeAlias = ModelLike | SessionLike
"""A model in any of its forms: those that :func:`source_of` takes, or a session."""


def is_session(value: Any) -> TypeGuard[SessionLike]:
    """Tell whether a value is a session; classes are none."""
    # Not asked of the object itself: reading a stage may build it.
    known = {*dir(type(value)), *getattr(value, "__dict__", ())}
    return not isinstance(value, type) and known.issuperset(_MEMBERS)


def checked_session(value: Any) -> SessionLike:
    """Return a session, or raise the ``TypeError`` that asks for one."""
    if not is_session(value):
        raise TypeError(
            f"session: expected an fxlab.Session, got {described(value)}. "
            "Make one: fxlab.Session(model, inputs)."
        )
    return value


def compared_models(
    original: Model, transformed: Model | None, inputs: Any
) -> tuple[torch.nn.Module, torch.nn.Module, Any]:
    """Return the two modules of a comparison, and the inputs to compare on.

    A session stands for its present graph module; alone, it is compared with its own original.
    """
    if transformed is None and is_session(original):
        given = original.inputs if inputs is None else inputs
        return original.original, original.graph_module, given
    if transformed is None:
        raise TypeError(
            "transformed: expected a model, graph module or session to compare original with, got None. "
            "Only a session is compared with its own original."
        )
    before, after = resolved(original, "original"), resolved(transformed, "transformed")
    given = inputs_of(after, inputs_of(before, inputs))
    return module_of(before, "original"), module_of(after, "transformed"), given


def resolved(model: Any, name: str) -> SessionLike | Source:
    """Return a session as it is, and what else a ``model`` argument stands for; a file is read here, once."""
    return model if is_session(model) else source_of(model, name)


def module_of(model: Any, name: str) -> torch.nn.Module:
    """Return a module, of a session its present one, or raise the ``TypeError`` that names the argument."""
    found = resolved(model, name)
    module = found.module if isinstance(found, Source) else found.graph_module
    if isinstance(module, GraphModule):
        check_lints(module, name)
    return module


def graph_of(model: Any, name: str, inputs: Inputs | None = None) -> GraphModule:
    """Return the graph module of a model; one that is not traced yet is traced on the inputs."""
    module = module_of(model, name)
    if isinstance(module, GraphModule):
        return module
    from fxlab.tracing import symbolic_trace

    return symbolic_trace(module, inputs_or_examples(inputs, module))


def compared_graphs(
    original: Model, transformed: Model | None, inputs: Inputs | None
) -> tuple[GraphModule, GraphModule]:
    """Return the two graph modules of a comparison that runs nothing."""
    before, after, known = compared_models(original, transformed, inputs)
    if inputs is not None:
        given_arguments(inputs)
    return graph_of(before, "original", known), graph_of(after, "transformed", known)


def inputs_of(model: Any, inputs: Any) -> Any:
    """Return the inputs that are given, or else those of a session or source."""
    return model.inputs if inputs is None and (isinstance(model, Source) or is_session(model)) else inputs


def as_graph(model: torch.nn.Module, inputs: Inputs) -> GraphModule:
    """Return a module as a graph that is run as it is: itself, or a single call of it."""
    if isinstance(model, GraphModule):
        return model
    graph = Graph()
    if isinstance(inputs, Mapping):
        node = graph.call_module("model", (), {name: graph.placeholder(name) for name in inputs})
    else:
        count = 1 if isinstance(inputs, torch.Tensor) else len(inputs)
        named = enumerate(name.replace(".", "_") for name in argument_names(model, count))
        names = (name if name.isidentifier() else f"input_{place}" for place, name in named)
        node = graph.call_module("model", tuple(map(graph.placeholder, names)))
    graph.output(node)
    return GraphModule({"model": model}, protect(graph))


def check_runs(module: torch.nn.Module, name: str) -> None:
    """Raise the ``ValueError`` that says why a module cannot be run."""
    held = tensors_of(module) if isinstance(module, GraphModule) else module.parameters()
    if any(tensor.is_meta for tensor in held):
        raise ValueError(f"{name}: it is on the meta device and has no weights to run with.")


def check_runs_by_node(graph_module: GraphModule, name: str) -> None:
    """Raise the ``ValueError`` that says why nodes cannot be run one by one.

    Dynamo writes ``torch.vmap`` and ``torch.func.grad`` as nodes that begin and end a level of functorch,
    outside of which there are no values of what stands between.
    """
    for node in graph_module.graph.nodes:
        if str(getattr(node.target, "__name__", "")).endswith("_increment_nesting"):
            raise ValueError(
                f"{name}: node {node.name!r} begins a torch.vmap or a torch.func transform, in which nodes "
                "cannot be run one by one. fxlab.verdict runs the graph as a whole."
            )


def inputs_or_examples(inputs: Inputs | None, original: torch.nn.Module) -> Inputs:
    """Return inputs that are some, or make them from the configuration of a module."""
    if inputs is None:
        from fxlab.tracing import example_inputs

        return cast(Inputs, example_inputs(original))
    call_arguments(inputs)
    return inputs


def passes_of(
    offered: Sequence[Transformation], asked_for: Iterable[Transformation | str]
) -> Iterator[Transformation]:
    """Return those of the passes on offer that ``passes`` asks for, themselves or by name, in their order."""
    given = items_of(asked_for, "passes", "transformations or their names")
    for pass_ in given:
        if not isinstance(pass_, Transformation | str):
            raise TypeError(f"passes: expected transformations or their names, got {described(pass_)}.")
    names = [str(pass_.name) for pass_ in offered]
    asked = (pass_ if isinstance(pass_, str) else str(pass_.name) for pass_ in given)
    wanted = {find_name(name, names, "passes") for name in asked}
    return (pass_ for pass_ in offered if pass_.name in wanted)
