"""A graph whose inputs and outputs are only tensors, as file formats need."""

import operator
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.graph_modules.own_modules import Requirement
from fxlab.models.running.running import Inputs, placeholder_values, run
from fxlab.operators import describes
from fxlab.transformations import compose
from fxlab.transformations.passes.lint_and_recompile import LintAndRecompile
from fxlab.transformations.passes.remove_dead_code import RemoveDeadCode
from fxlab.validation.outputs.computed_tensors import observed
from fxlab.values.nested import REFUSAL, Path, flatten_objects, map_tensors, name_of_part, unflatten_objects
from fxlab.values.tensors import tensors_by_path


@dataclass(frozen=True)
class TensorGraph:
    """A graph from tensors to tensors: other inputs and outputs are taken apart, numbers are fixed."""

    module: GraphModule
    inputs: tuple[torch.Tensor, ...]
    """The tensors that it was made for."""
    input_names: tuple[str, ...]
    """Such as ``input_ids`` and ``past_key_values_layers_0_keys``."""
    output_names: tuple[str, ...]
    """Such as ``logits`` and ``past_key_values_layers_0_keys_out``; none is also an input's."""
    conditions: tuple[str, ...]
    """The graph's conditions on inputs, in words, which a file does not check."""


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """The target of a node that puts an input together from its tensors."""

    parts: Any
    """Its parts, as :func:`flatten_objects` returns them."""
    only_reads = True
    __name__ = "rebuilt"

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Return the input."""
        left = iter(tensors)
        return unflatten_objects(map_tensors(lambda *_: next(left), self.parts))


@dataclass(frozen=True)
class TensorsIn:
    """The target of a node that returns the tensors of an output, in their order."""

    only_reads = True
    __name__ = "tensors_in"

    def __call__(self, output: Any) -> tuple[torch.Tensor, ...]:
        """Return them."""
        return tuple(tensors_by_path(output).values())


def tensor_graph(graph_module: GraphModule, inputs: Inputs) -> TensorGraph:
    """Return a graph with only tensors as inputs and outputs, and without guards that a file cannot hold.

    Guards on sizes stay: exporters turn them into limits of dynamic sizes. Others are left out, and are among
    the ``conditions``. Raises ValueError if the graph writes into its inputs or buffers, returns nothing to
    compare, or does not run.
    """
    written = observed(graph_module, "model", inputs).written
    if written:
        raise ValueError(
            f"The model writes in place ({', '.join(sorted(written)[:3])}), which a file that returns "
            "tensors does not show. Return what is written, or call the model in another mode."
        )
    module = share_tensors_copy(graph_module)
    names = [str(node.target) for node in module.graph.find_nodes(op="placeholder")]
    values = placeholder_values(graph_module, inputs)
    tensors, input_names = _flatten_inputs(module.graph, dict(zip(names, values, strict=True)))
    output_names = _flatten_outputs(module.graph, run(graph_module, inputs), input_names)
    if not output_names:
        raise ValueError("The model returns no tensors or numbers, so a file of it would be empty.")
    conditions = _without_guards(module)
    compose(RemoveDeadCode(), LintAndRecompile())(module)
    return TensorGraph(module, tuple(tensors), tuple(input_names), output_names, conditions)


def _flatten_inputs(graph: Graph, values: dict[str, Any]) -> tuple[list[torch.Tensor], list[str]]:
    tensors: list[torch.Tensor] = []
    names: list[str] = []
    for old in graph.find_nodes(op="placeholder"):
        value = values[str(old.target)]
        new: list[Node] = []

        def take(path: Path, tensor: torch.Tensor, name: str = str(old.target), new: list[Node] = new) -> Any:
            names.append(_identifier(name_of_part(name, path), names))
            tensors.append(tensor)
            new.append(graph.placeholder(names[-1]))
            return tensor.new_empty(0)

        with graph.inserting_before(old):
            parts = map_tensors(take, flatten_objects(value))
        if isinstance(value, torch.Tensor):
            new[0].meta = dict(old.meta)
            old.replace_all_uses_with(new[0])
        elif new:
            first = next(node for node in graph.nodes if node.op != "placeholder")
            with graph.inserting_before(first):
                old.replace_all_uses_with(graph.call_function(Rebuilt(parts), tuple(new)))
        else:
            _hold(old, value)
        graph.erase_node(old)
    return tensors, names


def _hold(placeholder: Node, value: Any) -> None:
    """Write a value without tensors into the arguments of its users."""
    for user in list(placeholder.users):
        user.args = torch.fx.map_arg(user.args, lambda node: value if node is placeholder else node)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda node: value if node is placeholder else node)


def _flatten_outputs(graph: Graph, output: Any, input_names: list[str]) -> tuple[str, ...]:
    node = graph.output_node()
    if not isinstance(output, torch.Tensor):
        with graph.inserting_before(node):
            node.args = (graph.call_function(TensorsIn(), (node.args[0],)),)
    names: list[str] = []
    for path in tensors_by_path(output):
        name = _identifier(path, names)
        names.append(name if name not in input_names else _identifier(f"{name}_out", [*names, *input_names]))
    return tuple(names)


def _without_guards(module: GraphModule) -> tuple[str, ...]:
    """Remove guards on anything but sizes; return their conditions."""
    conditions: dict[str, None] = {}
    for node in reversed(list(module.graph.nodes)):
        is_assert = node.op == "call_function" and node.target is torch._assert
        if is_assert and _is_of_sizes(node.args[0]):
            continue
        if is_assert and not _is_required(node.args[0], module):
            conditions[str(node.args[1]).removeprefix(REFUSAL).strip()] = None
        if is_assert or _is_required(node, module):
            module.graph.erase_node(node)
    return tuple(reversed(conditions))


def _is_required(node: Node, module: GraphModule) -> bool:
    """Tell whether a node compares modes, settings or parts of inputs."""
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), Requirement)
    name = str(getattr(node.target, "__name__", ""))
    return node.op == "call_function" and name.startswith("require_")


def _is_of_sizes(condition: Any) -> bool:
    """Tell whether a condition is computed from sizes of tensors alone."""
    pending, seen = [condition], set()
    while pending:
        node = pending.pop()
        if not isinstance(node, Node) or node in seen:
            continue
        seen.add(node)
        if describes(node):
            continue
        is_arithmetic = getattr(node.target, "__module__", "") in ("_operator", "math", "builtins", "torch")
        if node.op != "call_function" or not is_arithmetic or node.target is operator.getitem:
            return False
        pending += node.all_input_nodes
    return True


def _identifier(text: str, taken: list[str]) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "output"
    name = f"_{name}" if name[0].isdigit() else name
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
