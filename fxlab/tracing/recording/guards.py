"""Guards: a graph refuses inputs, modes and settings that it was not recorded for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from torch.utils.hooks import RemovableHandle

from fxlab.models.running.autocast import AutocastState
from fxlab.models.state.settings import Setting, require_settings
from fxlab.operators.python_functions import NUMBER_OF, TEXT_READS
from fxlab.tracing.bound_inputs import Size, name_of_size
from fxlab.tracing.model_code.running_code import where
from fxlab.tracing.recording.autocast_regions import require_autocast
from fxlab.tracing.recording.graph_builder import Recording
from fxlab.tracing.recording.opaque_calls import expected_of, require_result, unread_lists, with_any_list
from fxlab.tracing.recording.real_tensors import is_told_by_shapes
from fxlab.tracing.recording.torch_calls import Call, Raises
from fxlab.tracing.report import Found, Obstacle
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes, condition_text
from fxlab.tracing.shapes.uncounted_lists import ListOfUnknownLength, is_unread
from fxlab.values.nested import (
    REFUSAL,
    PartOf,
    Path,
    RequireParts,
    TensorOf,
    map_tensors,
    name_of_part,
    part_of,
    tensors_inside,
)
from fxlab.values.tensors import bits_of, is_floating


class Conditions:
    """Adds nodes to a recording that raise ``AssertionError`` for inputs for which it does not hold.

    ``asked``: the questions of the model about sizes and data.
    """

    def __init__(self, recording: Recording, asked: ModelSizes) -> None:
        self._recording = recording
        self._graph = recording.graph
        self._asked = asked
        self._handed_out: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        self._dimensions_held, self._most_dims = False, dict[Node, int]()
        self._unread: list[tuple[Node, Path, ListOfUnknownLength]] = []

    def require_sizes(self, condition: Any, message: str) -> None:
        """Make the graph raise ``AssertionError``, before all else, unless sizes meet a condition.

        ``condition``: a sympy expression of the symbols of the inputs' sizes.
        """
        for node, dim in (self._recording.symbols[symbol] for symbol in condition.free_symbols):
            if dim is not None:
                with self._recording.checking(node):
                    self._require_dimension(node, node.name, dim)
        with self._before_computing():
            nodes = SizeNodes(self._graph, self._recording.source_of, lambda node: None)
            self._assert(nodes.of_expression(condition).node, message)

    def _require_dimension(self, node: Node, name: str, dim: int) -> None:
        """Insert a check that the tensor has dimension ``dim``, unless the graph already checks it."""
        if not self._dimensions_held and self._most_dims.get(node, -1) < dim:
            self._most_dims[node] = dim
            actual = self._graph.call_function(getattr, (node, "ndim"))
            self._require(operator.gt, actual, dim, f"{REFUSAL} {name} with ndim > {dim} only")

    def require_size(self, size: Size, value: int) -> None:
        """Make the graph raise ``AssertionError`` unless a size of an input has a value."""
        name, path, dim = size
        node = next(n for n in self._graph.find_nodes(op="placeholder") if n.target == name)
        with self._before_computing():
            of = part_of(node, path)
            self._require_dimension(of, name_of_part(name, path), dim)
            actual = self._graph.call_method("size", (of, dim))
            self._require(operator.eq, actual, value, f"{REFUSAL} {name_of_size(size)} = {value} only")

    def require_shapes(self) -> None:
        """Make the graph raise ``AssertionError`` unless its inputs have the shapes that were recorded."""
        for placeholder in self._graph.find_nodes(op="placeholder"):
            for path, tensor in tensors_inside(placeholder.meta["val"]):
                shape = tuple(tensor.shape)
                name = name_of_part(placeholder.name, path)
                with self._before_computing():
                    actual = self._graph.call_function(getattr, (part_of(placeholder, path), "shape"))
                    self._require(operator.eq, actual, shape, f"{REFUSAL} {name} of shape {shape} only")

    def require_kinds(self, dtypes: Collection[bool], tensors: Collection[str], *, dimensions: bool) -> None:
        """Make the graph raise ``AssertionError``, before all else, unless inputs are of the kinds it read.

        Where the model's Python reads a dtype, the graph has that one; where it reads a shape, the graph has
        sizes of so many dimensions. ``dtypes``: whether those that were read are of floating-point (or
        complex) numbers: such inputs are checked. ``tensors``: the inputs that are checked to be tensors, if
        nothing else of them is. ``dimensions``: whether the numbers of dimensions are checked.
        """
        self._dimensions_held = dimensions

        def kind(path: Path, tensor: torch.Tensor) -> TensorOf:
            dtype = tensor.dtype if is_floating(tensor) in dtypes else None
            if dtype is not None:
                self._recording.note(Found.FIXED_DTYPE, name_of_part(placeholder.name, path), dtype=dtype)
            return TensorOf(dtype, tensor.dim() if dimensions else None)

        for placeholder in reversed(self._graph.find_nodes(op="placeholder")):  # each is put before the last
            parts = map_tensors(kind, placeholder.meta["val"])
            if not isinstance(parts, TensorOf):  # there is a node already that checks its parts
                check = next(user for user in placeholder.users if isinstance(user.target, RequireParts))
                check.target = replace(check.target, parts=parts)
                continue
            with self._recording.checking(placeholder):
                if not [*parts.required()] and placeholder.name in tensors:
                    self._require_parts(placeholder, placeholder.name, parts)
                for name, value, words in parts.required():
                    actual = self._graph.call_function(getattr, (placeholder, name))
                    self._require(operator.eq, actual, value, f"{REFUSAL} {placeholder.name} {words} only")

    def require_autocast(self, state: AutocastState) -> None:
        """Make the graph raise ``AssertionError`` unless autocast is set as it was."""
        with self._before_computing():
            self._recording.impure.add(self._graph.call_function(require_autocast, (state,)))

    def require_settings(self, settings: Collection[Setting]) -> None:
        """Make the graph raise ``AssertionError`` unless torch is set as the model has found it."""
        if not settings:
            return
        with self._before_computing():
            check = self._graph.call_function(require_settings, (tuple(settings), REFUSAL))
        self._recording.impure.add(check)
        for name, value, place in settings:
            self._recording.findings.append(Found.SETTING(name, place, value=value))

    def require_structure(self, node: Node, name: str, value: Any) -> None:
        """Make the graph check the other parts of an input: numbers, and the count of tensors."""
        if not isinstance(value, torch.Tensor):
            parts = map_tensors(lambda *_: TensorOf(), value)
            with self._recording.checking(node):
                self._require_parts(node, name, parts)

    def _require_parts(self, node: Node, name: str, parts: Any) -> None:
        check = self._graph.call_function(RequireParts(name, parts), (node,))
        self._assert(check, f"{REFUSAL} the parts of {name} only")

    def hold_read(self, call: Call, name: str, result: Any) -> None:
        """Make the graph check that a call reads the same out of a tensor."""
        if not isinstance(result, _NUMBERS):
            self._hold_data(name, call, result)
        elif name in NUMBER_OF:
            read = self._graph.call_function(NUMBER_OF[name], (self._recording.node_of(call.args[0]),))
            self._hold_number(name, read, result)
        else:
            self._hold_number(name, self._same_call(call), result)

    def hold_told(self, call: Call, name: str, result: Any, by_shapes: Any) -> None:
        """Make the graph check an answer that a call gives to Python, unless it follows from shapes."""
        if isinstance(result, _WITHOUT_DATA) or is_told_by_shapes(result, by_shapes):
            return
        if _is_of_numbers(result) and name not in TEXT_READS:
            self._hold_number(name, self._same_call(call), result)
        else:
            self._hold_data(name, call, result)

    def hold_given(self, name: str, result: Any, by_shapes: Any) -> None:
        """Make the graph check the properties of the latest result that do not follow from shapes.

        These are the shapes of tensors, the number of tensors, and numbers: Python may read all of these.
        """
        self._hold_inside(name, self._recording.latest, result, by_shapes, ())

    def _hold_inside(self, name: str, node: Node, value: Any, by_shapes: Any, path: Path) -> None:
        if is_told_by_shapes(value, by_shapes) or isinstance(value, _WITHOUT_DATA):
            return
        if isinstance(value, torch.Tensor):
            shape = tuple(value.shape)
            actual = self._graph.call_function(getattr, (self._recording.node_of(value), "shape"))
            self._recording.note(Found.SHAPE_READ, name, shape=shape)
            self._hold_equal(actual, shape, f"{name} of shape {shape} only")
        elif isinstance(value, list | tuple | Mapping):
            is_alike = isinstance(by_shapes, list | tuple | Mapping) and len(by_shapes) == len(value)
            if not is_alike:
                with self._recording.checking(node):
                    self._hold_count(name, part_of(node, path), value)
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                told = by_shapes[key] if is_alike else None
                self._hold_inside(name, node, item, told, (*path, key))
        elif isinstance(value, _NUMBERS):
            self._hold_number(name, part_of(node, path), value)
        else:
            raise Obstacle.UNUSUAL_RESULT(called=name, type=type(value).__name__)

    def _hold_number(self, name: str, read: Node, result: Any) -> None:
        self._recording.note(Found.VALUE_READ, name, value=result)
        self._hold_equal(read, result, f"{name} giving {result!r:.60} only")

    def _hold_data(self, name: str, call: Call, result: Any) -> None:
        """Make the graph check that tensors have the data that they had, all of which was handed out."""
        self._recording.note(Found.VALUE_READ, name, value=result)
        for _, tensor in tensors_inside((call.args, dict(call.kwargs))):
            data = tensor.detach().clone()
            self._handed_out.append((tensor, tensor._version, data))
            constant = self._recording.constant_node(data)
            same = self._graph.call_function(SameData(), (self._recording.node_of(tensor), constant))
            self._hold(same, f"{name} giving {result!r:.60} only")

    def require_unwritten(self) -> None:
        """Raise :class:`TraceError` if code outside torch has written into memory that was handed out."""
        for tensor, version, data in self._handed_out:
            # Torch counts its own writes in the version, but not those of numpy or C into shared memory.
            if tensor._version == version and not SameData()(tensor, data):
                raise Obstacle.WRITTEN_UNSEEN()

    def hold_layout(self, call: Call, name: str, result: Any) -> None:
        """Make the graph check that a tensor lies in memory as it did, for which the model has asked."""
        name = str(call.args[1]) if call.target is getattr else name
        self._recording.note(Found.LAYOUT_READ, name)
        expected = self._recording.argument(result)
        self._hold_equal(
            self._same_call(call), expected, f"tensors that lie in memory as they did ({name} is read)"
        )

    def hold_gradient_read(self, call: Call, name: str, result: Any) -> None:
        """Make the graph check an answer about a tensor's gradients: a flag, or if there is a history."""
        read, value = self._same_call(call), result
        if not isinstance(result, bool):
            read, value = self._graph.call_function(operator.is_, (read, None)), result is None
            name = f"{name} is None"
        self._recording.note(Found.GRADIENT_READ, name, value=value)
        self._hold_equal(read, value, f"{name} being {value} only")

    def _same_call(self, call: Call) -> Node:
        arguments = self._recording.argument((call.args, dict(call.kwargs)))
        return self._graph.create_node(call.op, call.target, *arguments)

    def hold_error(self, call: Call, name: str, error: Exception) -> None:
        """Make the graph check that a call raises again, after which the model has gone on."""
        if self._recording.bodies or call.op == "call_module":
            raise Obstacle.CAUGHT_ERROR(called=name)
        raises, raised = Raises(call.op, call.target, type(error)), type(error).__name__
        node = self._same_call(Call("call_function", raises, call.args, call.kwargs))
        self._recording.note(Found.ERROR_CAUGHT, name, error=raised)
        self._hold(node, f"{name} raising {raised} only")

    def hold_count(self, name: str, tensors: Any) -> None:
        """Make the graph check how many tensors it has just been given, as Python may go through them."""
        if tensors:
            with self._recording.checking(self._recording.latest) as node:
                self._hold_count(name, node, tensors)

    def _hold_count(self, name: str, node: Node, values: Any) -> None:
        count = self._graph.call_function(len, (node,))
        self._hold_equal(count, len(values), f"{name} giving {len(values)} tensors only")

    def _hold_equal(self, read: Node, value: Any, words: str) -> None:
        self._recording.describe_place(read)
        same = operator.eq
        if value != value:  # NaN
            same, value = operator.ne, read
        self._hold(self._graph.call_function(same, (read, value)), words)

    def _hold(self, condition: Node, words: str) -> None:
        """Make the graph check, at this line of the model, what its Python has read there."""
        self._recording.describe_place(condition)
        place = where(self._recording.frames())
        self._assert(condition, f"{REFUSAL} {words}{f' (at {place})' if place else ''}")

    def hold_result(self, name: str, result: Any, known: Container[Any]) -> None:
        """Make the graph check that its latest call gives tensors of the shapes that it reads.

        ``known``: the symbols of which other sizes are made.
        """
        node = self._recording.latest
        with self._graph.inserting_before(node):
            expected = self._recording.argument(expected_of(result, known))
        with self._recording.checking(node):
            check = self._graph.call_function(require_result, (node, expected, name))
        self._recording.impure.add(check)
        self._unread += [(check, path, found) for path, found in unread_lists(result)]

    def hold_lists_read(self) -> None:
        """Allow any length for lists that parts return, unless the model's Python has read them."""
        for check, path, found in self._unread:
            if is_unread(found):
                node, expected, name = check.args
                check.args = (node, with_any_list(expected, path), name)

    def hold_decisions(self) -> None:
        """Make the graph check the model's decisions on numbers that it read out of tensors."""
        decisions, self._asked.decisions = self._asked.decisions, []
        for decision in decisions:
            sources = {s: self._recording.source_of(s).name for s in decision.condition.free_symbols}
            words = condition_text(decision.condition, sources)
            made = self._recording.sizes.of_expression(decision.condition)
            self._assert(made.node, f"{REFUSAL} {words} only (decided at {decision.where})")
            found = Found.REQUIREMENT if decision.is_required else Found.BRANCH_ON_DATA
            self._recording.findings.append(found(words, decision.where))

    def _require(self, same: Callable[..., Any], node: Node, value: Any, message: str) -> None:
        self._assert(self._graph.call_function(same, (node, value)), message)

    def _assert(self, condition: Node, message: str) -> None:
        asked = [node for source in condition.all_input_nodes for node in (source, *source.all_input_nodes)]
        # The graph around a mapped function cannot check values inside it.
        if any(node.graph is not self._graph for node in asked):
            raise Obstacle.READ_IN_VMAP(where=where(self._recording.frames()))
        self._recording.impure.add(self._graph.call_function(torch._assert, (condition, message)))

    @contextmanager
    def _before_computing(self) -> Iterator[None]:
        known: set[Node] = set()
        for node in self._graph.nodes:
            if node.op != "placeholder" and not _asks_about(known, node):
                break
            known.add(node)
        with self._graph.inserting_before(node):
            yield


_NUMBERS = (bool, int, float, complex, str, bytes)
_WITHOUT_DATA = (
    type(None),
    type,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    RemovableHandle,
)


@dataclass(frozen=True)
class SameData:
    """The target of a node that tells whether two tensors have the same elements, bit for bit."""

    only_reads = True

    @property
    def __name__(self) -> str:
        return "same_data"

    def __call__(self, tensor: torch.Tensor, other: torch.Tensor) -> bool:
        """Compare."""
        is_alike = (tensor.shape, tensor.dtype, tensor.layout) == (other.shape, other.dtype, other.layout)
        return is_alike and torch.equal(bits_of(tensor), bits_of(other))


def _is_of_numbers(value: Any) -> bool:
    """Tell whether a value is made of numbers that are equal to themselves, which a NaN is not."""
    if isinstance(value, list | tuple):
        return all(map(_is_of_numbers, value)) and value == value
    return isinstance(value, _NUMBERS)


_QUESTIONS = ("size", getattr, len, torch._assert)


def _asks_about(known: set[Node], node: Node) -> bool:
    """Tell whether a node only describes inputs: their parts, sizes, and conditions on these."""
    if not known.issuperset(node.all_input_nodes) or not node.all_input_nodes:
        return False
    if any(isinstance(source.meta.get("val"), torch.Tensor) for source in node.all_input_nodes):
        return node.target in ("size", getattr) or isinstance(node.target, RequireParts)
    is_operator = getattr(node.target, "__module__", "") == "_operator"
    return is_operator or isinstance(node.target, PartOf | RequireParts) or node.target in _QUESTIONS
