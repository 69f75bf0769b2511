"""Identity and inactive dropout nodes, which return their input."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import OpOverload
from fxlab.operators import argument, computes, operator_called
from fxlab.operators.node_info import known_shape, only_input
from fxlab.transformations.analysis.aliasing_and_writes import may_return_view
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_not_plain
from fxlab.transformations.analysis.purity import dropout_class, is_dropout_call, why_drops
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

_DIMENSIONS = {"dropout1d": 3, "dropout3d": 5}
"""The dropouts that return a view of a single sample, and how many dimensions a batch has."""
_ATEN = torch.ops.aten
_COMPOSED = "CompositeImplicitAutograd"
_KEEP_DENSE = frozenset({"view", "reshape", "permute", "transpose", "t", "unsqueeze"})
"""Views that show every element of their input."""


@dataclass(frozen=True)
class RemoveIdentities(RewritePass[Node]):
    """Remove identity and inactive dropout nodes: their users read the input directly.

    A dropout in evaluation mode, or a function that drops nothing, returns the very same tensor object, so
    nothing changes even if that is written in place or returned. In a decomposed exported graph a dropout is
    a copy (``aten.clone``), which is removed if it has the layout of its input and neither is written in
    place or returned. The modules stay in their place. If the module of a dropout was called, the graph
    refuses to run in training mode until this is reversed. Nodes that now read another node are marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(), torch.nn.ReLU()).eval()
    >>> remove = RemoveIdentities()
    >>> removed = remove(torch.fx.symbolic_trace(model))
    >>> [node.name for node in removed.graph.nodes]
    ['input_1', 'evaluation_mode', '_2', 'output']
    >>> [node.name for node in remove(removed, reverse=True).graph.nodes]
    ['input_1', '_0', '_1', '_2', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[Node]:
        """Yield the calls of identities and dropouts."""
        for node in facts.graph_module.graph.nodes:
            module = facts.module(node)
            if _identity_class(module) or is_dropout_call(node) or _is_copy(node):
                yield node

    def refuse(self, candidate: Node, facts: GraphFacts) -> Refusal | None:
        """Refuse active dropouts, modules that may do something else, and results that are views."""
        reason = _why_no_identity(candidate, facts) or _why_returned(candidate, facts)
        return reason if reason or candidate.users else Reason.UNUSED()

    def behaves_by_mode(self, candidate: Node, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the call of a dropout module."""
        return (candidate,) if dropout_class(facts.module(candidate)) else ()

    def describe(self, candidate: Node) -> str:
        """Name the value that is read instead."""
        value = _value(candidate)
        return f"removed; {value.name if value is not None else 'its input'} is read instead"

    def rewrite(self, candidate: Node, edit: Editor) -> tuple[Node, ...]:
        """Replace the node by its input in its users."""
        value = _value(candidate)
        assert value is not None
        readers = edit.read_instead(candidate, value)
        edit.erase(candidate)
        return readers


def _why_no_identity(node: Node, facts: GraphFacts) -> Refusal | None:
    """Return why a call may return something else than its very input; ``None`` if it does not."""
    module, value = facts.module(node), _value(node)
    if value is None:
        return Reason.NOT_AN_IDENTITY_CALL()
    if _is_copy(node):
        return _why_copied(node, value, facts)
    reason = why_drops(node) if module is None else _why_module_is_no_identity(facts, module)
    return reason or _why_view(node, value, facts)


def _why_returned(node: Node, facts: GraphFacts) -> Refusal | None:
    """Return why a body would return one of its inputs, or a tensor twice; ``None`` if it would not."""
    output = facts.graph_module.graph.output_node()
    if not facts.is_body or output not in node.users:
        return None
    inputs = facts.graph_module.graph.find_nodes(op="placeholder")
    others = [value for value in (*inputs, *output.all_input_nodes) if value is not node]
    held = next((value for value in others if facts.writes.may_share_memory(node, value)), None)
    return None if held is None else Reason.BODY_RETURNS_INPUT(value=held.name)


def _is_copy(node: Node) -> bool:
    """Tell whether a node of an exported graph copies a tensor with its layout."""
    return node.target is _ATEN.clone.default and argument(node, "memory_format") in (
        None,
        torch.preserve_format,
    )


def _why_copied(copy: Node, value: Node, facts: GraphFacts) -> Refusal | None:
    """Return why a copy cannot be replaced by its source; ``None`` if it can."""
    for each in (value, copy):
        if facts.writes.is_written(each):
            return Reason.WRITTEN_IN_PLACE(value=each.name)
    if facts.writes.is_returned(copy):
        return Reason.RETURNED()
    return None if _is_dense(value, facts) else Reason.OTHER_LAYOUT()


def _is_dense(value: Node, facts: GraphFacts) -> bool:
    """Tell whether a value has no gaps in memory, as kernels allocate it; a composite may return a part."""
    while computes(value) in _KEEP_DENSE and isinstance(value.args[0], Node):
        value = value.args[0]
    if value.target is operator.getitem and isinstance(value.args[0], Node):
        value = value.args[0]
        if isinstance(value.target, OpOverload) and len(value.target._schema.returns) < 2:
            return False  # a part of a tensor
    if not isinstance(value.target, OpOverload) or may_return_view(value, facts.graph_module):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(value.target._name, _COMPOSED)


def _value(node: Node) -> Node | None:
    if node.op == "call_module":
        return only_input(node)
    value = node.args[0] if node.args else node.kwargs.get("input")
    return value if isinstance(value, Node) else None


def _identity_class(module: nn.Module | None) -> type[nn.Module] | None:
    return nn.Identity if isinstance(module, nn.Identity) else dropout_class(module)


def _why_module_is_no_identity(facts: GraphFacts, module: nn.Module) -> Refusal | None:
    if reason := why_not_plain(module, _identity_class(module) or nn.Identity) or why_hooked(facts, module):
        return reason
    if module.training and not isinstance(module, nn.Identity):
        return Reason.TRAINING_MODE(module="it")
    return None


def _why_view(candidate: Node, value: Node, facts: GraphFacts) -> Refusal | None:
    called = operator_called(candidate, facts.graph_module)
    dimensions = None if called is None else _DIMENSIONS.get(called.name)
    if dimensions is None:
        return None
    shape = known_shape(value)
    if shape is None:
        return Reason.UNKNOWN_SHAPE(value="its input")
    return None if len(shape) == dimensions else Reason.RETURNS_VIEW()
