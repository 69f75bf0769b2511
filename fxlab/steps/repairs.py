"""Repairs of a recorded step: writes, also hidden ones, workspaces, draws of a checkpoint, guards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from torch import fx

from fxlab.base.torch_private import OpOverload, pytree
from fxlab.models.running.step_guards import GUARDS, require_number, require_shape
from fxlab.operators import draws_random_numbers, operator_of, written_arguments
from fxlab.operators.node_info import known_result, known_shape, line_of
from fxlab.steps.places import ANY_SIZE, DRAW, NUMBER, READ, RECOMPUTED
from fxlab.tracing import torch_private
from fxlab.tracing.messages import place_of
from fxlab.tracing.report import TraceError

_RNN_LAYER = torch.ops.aten.mkldnn_rnn_layer.default
_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_MEAN, _VARIANCE, _TRAINING = 3, 4, 5
"""The positions of the arguments that it writes, and of the one that makes it write."""


def without_hidden_writes(graph: fx.Graph) -> None:
    """Make batch norms return their running statistics instead of writing them in place."""
    for node in graph.find_nodes(op="call_function", target=_BATCH_NORM):
        if len(node.args) <= _TRAINING or not node.args[_TRAINING] or node.args[_MEAN] is None:
            continue
        # The schema of native_batch_norm declares no writes, so functionalization leaves them in.
        node.target = torch.ops.aten._native_batch_norm_legit_functional.default
        statistics: list[Any] = [node.args[_MEAN], node.args[_VARIANCE]]
        if isinstance(value := node.meta.get("val"), tuple | list):
            node.meta["val"] = (*value[:3], *(before.meta.get("val") for before in statistics))
        for number, before in enumerate(statistics, 3):
            with graph.inserting_after(node):
                after = graph.call_function(getitem, (node, number))
            known = {key: before.meta[key] for key in ("val", "tensor_meta") if key in before.meta}
            after.meta = {**node.meta, **known}
            for user in [*before.users]:
                if node < user and user is not after:
                    user.replace_input_with(before, after)


def with_workspaces(module: fx.GraphModule) -> None:
    """Let oneDNN's layers run with gradients on, as else they return no workspace for the backward pass."""
    graph = module.graph
    for number, node in enumerate(graph.find_nodes(op="call_function", target=_RNN_LAYER)):
        body = fx.Graph()
        known = {value: body.placeholder(value.name) for value in node.all_input_nodes}
        for value, inner in known.items():
            inner.meta = dict(value.meta)
        body.output(body.node_copy(node, known.__getitem__))
        module.add_submodule(f"layer_{number}", fx.GraphModule(module, body))
        with graph.inserting_before(node):
            layer = graph.get_attr(f"layer_{number}")
        layer.meta = {key: held for key, held in node.meta.items() if key not in ("val", "tensor_meta")}
        node.target = torch.ops.higher_order.wrap_with_set_grad_enabled
        node.args = True, layer, *known


def with_one_draw(graph: fx.Graph) -> None:
    """Make a checkpoint read the forward pass's random numbers; eagerly it draws the same again."""
    drawn: dict[int, fx.Node] = {}
    for node in list(graph.nodes):
        if DRAW not in node.meta or not draws_random_numbers(node):
            continue
        first = drawn.setdefault(node.meta[DRAW], node)
        if RECOMPUTED not in node.meta or first is node:
            continue
        if first.target is not node.target:
            raise TraceError(
                f"A checkpoint draws random numbers again ({node.target}), and not as the forward pass did "
                f"({first.target}). Trace without gradient checkpointing."
            )
        node.replace_all_uses_with(first)
        graph.erase_node(node)


def with_guards(graph: fx.Graph) -> None:
    """Make the graph refuse data for which the recorded Python decisions do not hold."""
    numbers = graph.find_nodes(op="call_function", target=NUMBER)
    read = {node: node.meta.pop(READ) for node in numbers if READ in node.meta}
    given = _given_nodes(graph) if read else ()
    for node, value in read.items():
        if node not in given:
            continue
        if isinstance(value, float):
            lines = str(node.meta.get("stack_trace") or "an unknown line").splitlines()[-2:]
            raise TraceError(
                f"The model or the loss reads a number of a tensor ({value:.6g}), which would be fixed in "
                f"the graph: {' '.join(map(str.strip, lines))!r}. Compute with the tensor, not with .item()."
            )
        _guard(graph, node, require_number, value)
    for node in list(graph.nodes):
        if node.meta.pop(ANY_SIZE, False):
            continue
        computed = node.args[0] if node.target is getitem else node  # of several results, each has its size
        if _has_size_of_data(computed) and (shape := known_shape(node)) is not None:
            _guard(graph, node, require_shape, tuple(map(int, shape)))


def _given_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose results depend on inputs, weights, constants or random draws."""
    given: set[fx.Node] = set()
    for node in graph.nodes:
        is_given = node.op in ("placeholder", "get_attr") or draws_random_numbers(node)
        if is_given or not given.isdisjoint(node.all_input_nodes):
            given.add(node)
    return given


def _guard(graph: fx.Graph, node: fx.Node, check: Callable[..., None], expected: Any) -> None:
    with graph.inserting_after(node):
        guard = graph.call_function(check, (node, expected))
    guard.meta = {key: held for key, held in node.meta.items() if key not in ("val", "tensor_meta")}


def _has_size_of_data(node: Any) -> bool:
    """Tell whether the size of a result depends on data, as for counted or selected elements."""
    if not isinstance(node, fx.Node) or not isinstance(node.target, OpOverload):
        return False
    if torch.Tag.dynamic_output_shape not in node.target.tags:
        return False
    if node.target is not torch.ops.aten.index.Tensor:
        return True
    indices = [index for index in node.all_input_nodes[1:] if known_result(index) is not None]
    return any(known_result(index).dtype in (torch.bool, torch.uint8) for index in indices)


def without_dead_code(graph: fx.Graph) -> None:
    """Remove unused nodes except guards, and random draws, which advance the generators."""

    def is_kept(node: fx.Node) -> bool:
        is_end = node.op in ("placeholder", "output")
        return is_end or node.target in GUARDS or draws_random_numbers(node)

    graph.eliminate_dead_code(is_kept)


def refuse_writes(graph: fx.Graph) -> None:
    """Raise a TraceError for a write that functionalization has left, which is not into an input."""
    for node in graph.nodes:
        if operator_of(node) is not None and written_arguments(node):
            place = ": ".join(filter(None, line_of(node)))
            raise _written_elsewhere(place and f" (at {place})")


def _written_elsewhere(where: str) -> TraceError:
    return TraceError(
        f"The step writes into a tensor that is no input of it{where}, and the next one would go on from "
        "there. Make it a buffer of the model (register_buffer), or a tensor in the state of the optimizer."
    )


def functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns the final values of its arguments, and does not write into them."""

    def run(*tensors: torch.Tensor) -> Any:
        wrapped = [_wrapped(tensor) for tensor in tensors]
        try:
            with _functionalized():
                result = function(*wrapped)
        except RuntimeError as error:
            if "mutating a non-functional tensor" in str(error):
                raise _written_elsewhere(f" {place_of(error)}".rstrip()) from error
            raise
        return pytree.tree_map(_unwrapped, result)

    return run


@contextmanager
def _functionalized() -> Iterator[None]:
    # By default, views become copies of views.
    torch_private.enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch_private.disable_functionalization()


def _wrapped(tensor: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = torch_private.to_functional_tensor(tensor)
    # The wrapper alone has no requires_grad, and autograd would record nothing.
    torch_private.mirror_autograd_meta_to(tensor, made)
    return made


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not torch_private.is_functional_tensor(value):
        return value
    torch_private.sync(value)
    return torch_private.from_functional_tensor(value)
