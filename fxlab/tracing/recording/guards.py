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
from fxlab.operators.tensor_reads import NUMBER_OF, TEXT_READS
from fxlab.tracing.bound_inputs import Size, name_of_size
from fxlab.tracing.findings import Found
from fxlab.tracing.model_code.source_lines import where
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.autocast_regions import require_autocast
from fxlab.tracing.recording.graph_builder import Recording
from fxlab.tracing.recording.opaque.opaque_calls import (
    expected_of,
    require_result,
    unread_lists,
    with_any_list,
)
from fxlab.tracing.recording.raised_errors import Raises
from fxlab.tracing.recording.real_tensors import is_told_by_shapes
from fxlab.tracing.recording.torch_calls import Call, as_call, name_of
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.condition_text import condition_text
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes
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

    def hold_read(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """Make the graph check that it reads the same out of a tensor."""
        name = name_of(func)
        if not isinstance(result, _NUMBERS):
            self._hold_data(name, (args, kwargs), result)
            return
        read = (
            self._graph.call_function(NUMBER_OF[name], (self._recording.node_of(args[0]),))
            if name in NUMBER_OF
            else self._same_call(func, args, kwargs)
        )
        self._hold_number(name, read, result)

    def hold_told(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any, by_shapes: Any
    ) -> None:
        """Make the graph check an answer that a call gives to Python, unless it follows from shapes."""
        if isinstance(result, _WITHOUT_DATA) or is_told_by_shapes(result, by_shapes):
            return
        if _is_of_numbers(result) and name_of(func) not in TEXT_READS:
            self._hold_number(name_of(func), self._same_call(func, args, kwargs), result)
        else:
            self._hold_data(name_of(func), (args, kwargs), result)

    def hold_given(self, name: str, result: Any, by_shapes: Any) -> None:
        """Make the graph check the properties of the latest result that do not follow from shapes.

        These are the shapes of tensors, the number of tensors, and numbers: Python may read all of these.
        """
        self._hold_inside(name, self._recording.latest, result, by_shapes, ())

    def _hold_inside(self, name: str, node: Node, value: Any, by_shapes: Any, path: Path) -> None:
        if is_told_by_shapes(value, by_shapes) or isinstance(value, _WITHOUT_DATA):
            return
        if isinstance(value, torch.Tensor):
            self._hold_shape(name, value)
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
        held, place = f"{result!r:.60} only", where(self._recording.frames())
        self._recording.describe_place(read)
        self._recording.note(Found.VALUE_READ, name, value=result)
        message = f"{REFUSAL} {name} giving {held}{_at(place)}"
        if result != result:  # NaN, which is not equal to itself
            self._require(operator.ne, read, read, message)
        else:
            self._require(operator.eq, read, result, message)

    def _hold_data(self, name: str, values: Any, result: Any) -> None:
        """Make the graph check that tensors have the data that they had, all of which was handed out."""
        held, place = f"{result!r:.60} only", where(self._recording.frames())
        self._recording.note(Found.VALUE_READ, name, value=result)
        for _, tensor in tensors_inside(values):
            data = tensor.detach().clone()
            self._handed_out.append((tensor, tensor._version, data))
            constant = self._recording.constant_node(data)
            read = self._graph.call_function(SameData(), (self._recording.node_of(tensor), constant))
            self._recording.describe_place(read)
            self._assert(read, f"{REFUSAL} {name} giving {held}{_at(place)}")

    def require_unwritten(self) -> None:
        """Raise :class:`TraceError` if code outside torch has written into memory that was handed out."""
        for tensor, version, data in self._handed_out:
            # Torch counts its own writes in the version, but not those of numpy or C into shared memory.
            if tensor._version == version and not SameData()(tensor, data):
                raise Obstacle.WRITTEN_UNSEEN()

    def hold_layout(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """Make the graph check that a tensor lies in memory as it did, for which the model has asked."""
        read, place = self._same_call(func, args, kwargs), where(self._recording.frames())
        name = str(read.args[1]) if read.target is getattr else name_of(func)
        self._recording.describe_place(read)
        self._recording.note(Found.LAYOUT_READ, name)
        expected = self._recording.argument(result)
        message = f"{REFUSAL} tensors that lie in memory as they did ({name} is read at {place})"
        self._require(operator.eq, read, expected, message)

    def hold_gradient_read(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], result: Any
    ) -> None:
        """Make the graph check an answer about a tensor's gradients: a flag, or if there is a history."""
        read, value, place = self._same_call(func, args, {}), result, where(self._recording.frames())
        if not isinstance(result, bool):
            read, value = self._graph.call_function(operator.is_, (read, None)), result is None
            name = f"{name} is None"
        self._recording.describe_place(read)
        self._recording.note(Found.GRADIENT_READ, name, value=value)
        self._require(operator.eq, read, value, f"{REFUSAL} {name} being {value} only (read at {place})")

    def _same_call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Node:
        call = as_call(func, args, kwargs)
        arguments = self._recording.argument((call.args, dict(call.kwargs)))
        return self._graph.create_node(call.op, call.target, *arguments)

    def _hold_shape(self, name: str, tensor: torch.Tensor) -> None:
        """Make the graph check the shape of a real tensor that depends on data, as Python may read it."""
        shape, place = tuple(tensor.shape), where(self._recording.frames())
        self._recording.note(Found.SHAPE_READ, name, shape=shape)
        actual = self._graph.call_function(getattr, (self._recording.node_of(tensor), "shape"))
        self._require(operator.eq, actual, shape, f"{REFUSAL} {name} of shape {shape} only{_at(place)}")

    def hold_error(self, call: Call, name: str, error: Exception) -> None:
        """Make the graph check that a call raises again, after which the model has gone on."""
        if self._recording.bodies or call.op == "call_module":
            raise Obstacle.CAUGHT_ERROR(called=name)
        raised, place = type(error).__name__, where(self._recording.frames())
        arguments = self._recording.argument((call.args, dict(call.kwargs)))
        node = self._graph.call_function(Raises(call.op, call.target, type(error)), *arguments)
        self._recording.describe_place(node)
        self._recording.note(Found.ERROR_CAUGHT, name, error=raised)
        self._assert(node, f"{REFUSAL} {name} raising {raised} only{_at(place)}")

    def hold_count(self, name: str, tensors: Any) -> None:
        """Make the graph check how many tensors it has just been given, as Python may go through them."""
        if tensors:
            with self._recording.checking(self._recording.latest) as node:
                self._hold_count(name, node, tensors)

    def _hold_count(self, name: str, node: Node, values: Any) -> None:
        message = f"{REFUSAL} {name} giving {len(values)} tensors only{_at(where(self._recording.frames()))}"
        self._require(operator.eq, self._graph.call_function(len, (node,)), len(values), message)

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


def _at(place: str) -> str:
    """Write a line of the model in brackets; nothing where no line of it is running."""
    return f" (at {place})" if place else ""


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
