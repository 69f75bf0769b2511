"""Custom operators that do something else than they say: their fake results and schemas against a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fxlab.models.model_state import state_kept
from fxlab.models.running import generators_kept, placeholder_values
from fxlab.node_info import dtype_name, line_of
from fxlab.operators import written_arguments
from fxlab.torch_private import OpOverload, OpOverloadPacket
from fxlab.values.memory import overlapping
from fxlab.values.tensors import same_bits, tensors_by_path

_OF_TORCH = frozenset({"aten", "prim", "prims", "higher_order", "inductor", "_c10d_functional", "quantized"})


@dataclass(frozen=True)
class OperatorMistake:
    """A behaviour of a custom operator that its declaration hides; the compiler believes the declaration."""

    node: str
    operator: str
    mistake: str
    place: str
    """File and line of the call, if they are known."""

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        return f"The operator {self.operator} {self.mistake}{place}; compiled code relies on what it says."


def operator_mistakes(module: GraphModule, inputs: Mapping[str, Any]) -> list[OperatorMistake]:
    """Run a graph, and compare each custom operator with its fake result (``meta["val"]``) and its schema."""
    if not any(_custom(node) for node in module.graph.nodes):
        return []
    checked = _Checked(module)
    with torch.no_grad(), generators_kept(), state_kept(module):
        checked.run(*placeholder_values(module, inputs))
    return checked.found


def _custom(node: Node) -> str:
    """Return the name of the custom operator that a node calls; empty if it calls none."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload | OpOverloadPacket):
        return ""
    name = str(target._schema.name if isinstance(target, OpOverload) else target._qualified_op_name)
    return "" if name.partition("::")[0] in _OF_TORCH else name


class _Checked(Interpreter):
    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.found: list[OperatorMistake] = []

    def run_node(self, n: Node) -> Any:
        """Run a node; before and after a custom operator, look at its arguments and results."""
        name = _custom(n)
        if not name:
            return super().run_node(n)
        declared = {node.name for node in written_arguments(n)}
        read = {node.name: self.env[node] for node in n.all_input_nodes}
        tensors = {key: value for key, value in read.items() if isinstance(value, torch.Tensor)}
        before = {key: value.detach().clone() for key, value in tensors.items() if key not in declared}
        result = super().run_node(n)
        place, _ = line_of(n)
        mistakes = (*_writes(tensors, before), *_returns(n.meta.get("val"), result))
        mistakes += tuple(_shares(result, tensors, declared))
        self.found += [OperatorMistake(n.name, name, mistake, place) for mistake in mistakes]
        return result


def _writes(now: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> Iterator[str]:
    for name, value in before.items():
        if not same_bits(value, now[name].detach()):
            yield f"writes into {name}, which its schema does not declare (mutates_args)"


def _returns(fake: Any, result: Any) -> Iterator[str]:
    expected, came = tensors_by_path(fake), tensors_by_path(result)
    for path, tensor in came.items():
        if path not in expected:
            continue
        told, which = expected[path], "" if path == "output" else f" as {path}"
        if told.dtype != tensor.dtype:
            yield f"returns {dtype_name(tensor.dtype)}{which}; its fake says {dtype_name(told.dtype)}"
        elif _differ(told.shape, tensor.shape):
            yield f"returns the shape {tuple(tensor.shape)}{which}; its fake says {tuple(told.shape)}"
        elif told.device.type not in ("meta", tensor.device.type):
            yield f"returns on {tensor.device}{which}; its fake says {told.device}"
        elif _differ(told.stride(), tensor.stride()) and tensor.numel():
            yield f"returns the strides {tensor.stride()}{which}; its fake says {tuple(told.stride())}"


def _shares(result: Any, read: Mapping[str, torch.Tensor], declared: set[str]) -> Iterator[str]:
    outputs, given = tensors_by_path(result), {k: v for k, v in read.items() if k not in declared}
    for _, other in overlapping(outputs, given):
        if other in given:
            yield f"returns memory of {other}, which its schema does not declare"


def _differ(told: Any, came: Any) -> bool:
    """Tell whether known numbers differ; a symbol may be any."""
    if len(told) != len(came):
        return True
    return any(isinstance(a, int) and a != b for a, b in zip(told, came, strict=True))
