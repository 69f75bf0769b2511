"""The base of views of layers: calls of a module, or of an operator that reads the tensors of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.models.graph_modules.parts import is_container, unused_name
from fxlab.operators.node_info import only_input
from fxlab.transformations.analysis import module_safety
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.journal.module_tree import find_module, join_path, split_path

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Layer(Generic[M]):
    """A call that computes the same as a module of ``torch.nn``."""

    node: Node
    """The node whose result is that of the layer."""
    input: Node
    module: M
    """The module that is called; or one made of the very tensors of the call."""
    path: str
    """The path of the module, or of the module that holds the tensors."""
    tensors: Mapping[str, Node] = field(default_factory=dict, compare=False)
    """The nodes of the call's tensors, by the names of these; empty for a module.

    They are ``get_attr`` nodes, or inputs of a body that stand for such nodes of the graph around it.
    """
    inner: tuple[Node, ...] = ()
    """Other nodes that belong to the layer alone, last first: the transposition of a weight."""

    unused: tuple[Node, ...] = ()
    """The ``get_attr`` nodes of other tensors in the same place, which nothing reads."""

    tensors_stay: bool = False
    """Whether the tensors stay attributes of the outermost module, which holds others as well.

    The replacement is then added next to them, at :attr:`path`, and does not read them.
    """

    taken_from: Node | None = None
    """The call, if :attr:`node` takes the result out of the several that it returns."""

    @property
    def is_module(self) -> bool:
        """Whether a module is called."""
        return not self.tensors

    @property
    def call(self) -> Node:
        """The node that takes the input and the tensors."""
        return self.taken_from or self.node

    def why_not_replaceable(self, facts: GraphFacts, expected: type[nn.Module]) -> Refusal | None:
        """Return why the layer cannot be replaced unnoticed; ``None`` if it can.

        Parameters
        ----------
        facts
            The facts about the graph module.
        expected
            The class that computes the same as the replacement.
        """
        if self.is_module:
            return module_safety.why_not_replaceable(facts, self.path, expected)
        if any(node.op == "placeholder" for node in self.tensors.values()):
            return self._why_passed_stay(facts, expected)
        given = [*self.tensors.values(), *self.inner, *([self.taken_from] if self.taken_from else [])]
        if self.tensors_stay:
            return self._why_not_copied(facts, given)
        holder, path = find_module(facts.graph_module, self.path), self.path
        if holder is None:
            return Reason.NO_MODULE(path=path)
        for name, node in self.tensors.items():
            if str(node.target) != join_path(path, name):
                return Reason.UNEXPECTED_HOLDER(parameter=name, path=node.target)
        if reason := module_safety.why_used_or_written(facts, given):
            return reason
        if torch.nn.utils.parametrize.is_parametrized(holder):
            return Reason.PARAMETRIZED()
        if type(holder) is not expected and not is_container(holder):
            return Reason.UNEXPECTED_CLASS(found=type(holder).__name__, expected=expected.__name__)
        if facts.calls[path]:
            return Reason.CALLED_REPEATEDLY(count=facts.calls[path] + 1)
        return (
            module_safety.why_not_alone(facts, holder, path)
            or module_safety.why_hooked(facts, holder)
            or module_safety.why_holds_more(holder, self.tensors)
            or module_safety.why_parameters_not_plain(holder)
            or module_safety.why_tensors_shared(
                facts, holder, path, {f"node {node.name}" for node in (*given, *self.unused)}
            )
        )

    def _why_not_copied(self, facts: GraphFacts, given: Sequence[Node]) -> Refusal | None:
        """Return why the call cannot read new tensors next to those that stay."""
        if reason := module_safety.why_used_or_written(facts, given):
            return reason
        if facts.has_global_hooks:
            return Reason.GLOBAL_HOOKS()
        for name, node in self.tensors.items():
            tensor, (path, attribute) = facts.attribute(node), split_path(str(node.target))
            if name in module_safety.PARAMETERS and not isinstance(tensor, nn.Parameter):
                return Reason.UNUSUAL_PARAMETER(parameter=name)
            if reason := module_safety.why_tensor_not_plain(name, tensor) or module_safety.why_tensor_hooked(
                name, tensor
            ):
                return reason
            own = {f"node {each.name}" for each in given}
            others = [holder for holder in facts.holders(tensor, path, attribute) if holder not in own]
            if others:
                return Reason.SHARED_PARAMETER(parameter=name, holder=others[0].lstrip("."))
        return None

    def _why_passed_stay(self, facts: GraphFacts, expected: type[nn.Module]) -> Refusal | None:
        """Return why tensors that are passed to a body cannot be replaced unnoticed."""
        passing, readings = facts.passing, dict[str, Node]()
        for name, node in self.tensors.items():
            reading = facts.reading(node)
            if passing is None or reading is None:
                return Reason.WEIGHT_IS_INPUT(parameter=name, value=node.name)
            readings[name] = reading
        assert passing is not None
        for node in (*self.tensors.values(), *self.inner):
            if sum(len(each.users) for each in passing.counterparts.get(node, (node,))) > 1:
                return Reason.OTHER_USERS(value=node.name)
            if facts.writes.is_written(node):
                return Reason.WRITTEN_IN_PLACE(value=node.name)
        for reading in readings.values():
            if sum(value is reading for value in passing.operands) != 1:
                return Reason.OTHER_USERS(value=reading.name)
        around = replace(self, tensors=readings, inner=(), taken_from=None)
        return around.why_not_replaceable(facts.around, expected)


def layer_of_module(node: Node, facts: GraphFacts, classes: type[M] | tuple[type[M], ...]) -> Layer[M] | None:
    """Return the call of a module of certain classes with one input; ``None`` for any other node."""
    module, value = facts.module(node), only_input(node)
    if value is None or not isinstance(module, classes):
        return None
    return Layer(node, value, module, str(node.target))


def layer_of_tensors(
    node: Node,
    value: Node,
    module: M,
    tensors: Mapping[str, Node],
    facts: GraphFacts,
    *,
    inner: tuple[Node, ...] = (),
    taken_from: Node | None = None,
) -> Layer[M]:
    """Return a call that reads the tensors of a module; ``module`` is made of them."""
    first = tensors.get("weight") or next(iter(tensors.values()))
    target = str((facts.reading(first) or first).target)
    path = split_path(target)[0]
    tensors_stay = not path and first.op == "get_attr"  # as make_fx and tracers lift weights
    if tensors_stay:
        path = unused_name(facts.graph_module, f"{target}_layer")
    unused = tuple(facts.unused_readings.get(path, ()))
    return Layer(node, value, module, path, tensors, inner, unused, tensors_stay, taken_from)


def tensors_given(facts: GraphFacts, **given: Any) -> dict[str, Node] | None:
    """Return the nodes of given arguments; ``None`` if one is no tensor of the model."""
    tensors = {name: value for name, value in given.items() if value is not None}
    for value in tensors.values():
        if not isinstance(value, Node) or not isinstance(facts.tensor(value), torch.Tensor):
            return None
    return tensors


def tensor_shape(node: Node, facts: GraphFacts) -> tuple[int, ...]:
    """Return the shape of one of the tensors that :func:`tensors_given` returns."""
    tensor = facts.tensor(node)
    return () if tensor is None else tuple(tensor.shape)


def made_of_tensors(
    module_class: type[M],
    facts: GraphFacts,
    tensors: Mapping[str, Node],
    *,
    buffers: tuple[str, ...] = (),
    training: bool = False,
    **settings: Any,
) -> M:
    """Return a module that holds the very tensors of the graph module; no random number is drawn."""
    module = module_class.__new__(module_class)
    nn.Module.__init__(module)
    for name in ("weight", "bias", *buffers):
        held: dict[str, Any] = vars(module)["_buffers" if name in buffers else "_parameters"]
        held[name] = facts.tensor(tensors[name]) if name in tensors else None
    vars(module).update(settings)
    module.training = training
    return module
