"""The graph of a run that is being recorded: which node stands for which value."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from itertools import count
from types import FrameType
from typing import Any, TypeAlias, cast

import numpy as np
import sympy
import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import base_types
from torch.utils.weak import WeakTensorKeyDictionary

from fxlab.operators import computes, draws_random_numbers, may_alias
from fxlab.tracing.model_code.running_code import model_frames, stack_trace, where
from fxlab.tracing.recording.bodies import RecordedBody
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.recording.torch_calls import Call, waits_for_others
from fxlab.tracing.report import Finding, Found, Obstacle, TraceError
from fxlab.tracing.shapes import symbolic_sizes
from fxlab.tracing.shapes.fake_state import Originals
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, excludes_one_only, expression_of
from fxlab.tracing.shapes.uncounted_lists import is_unread
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import Path, add_getitem, steps_of, tensors_inside
from fxlab.values.tensors import is_floating

MOST_OPERATIONS, FEW_OPERATIONS = 64, 16
"""In the expression of a size; few, so that parts whose sizes get too complicated are soon kept whole."""
# What Python's own types stand for, as in `x.to(float)`.
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_RECENT = 100  # findings among which none is repeated, as a loop of the model would

RecordedNodes: TypeAlias = Mapping[str, Any]
"""The call of each node, by its name."""


class OtherRecordingError(TraceError):
    """Something else is recorded than before."""

    code = "other-recording"


class SizeError(TraceError):
    """A size is too complicated to follow."""

    code = "costly-size"


class Recording:
    """A graph that grows by the calls of a model.

    ``model``: the module that is recorded; its parameters and buffers become ``get_attr`` nodes.
    ``value_in_meta``: the part of a result that ``node.meta["val"]`` keeps. ``originals``: the model's
    tensors that fake ones stand for. ``made``: the tensors that were made during the run, none of which can
    be a constant. ``most_operations``: how complicated a size may be. ``expected``: the calls of another run,
    if this one ends as soon as it records a different one. The graph is to be compared only then.

    ``graph``: the recorded calls. ``constants``: tensors that are neither inputs nor parameters, by the name
    that ``get_attr`` nodes know them by. ``paths``: the path of each module. ``findings``: constants, and
    facts that hold for the data of the run only. ``scopes``: the path and class of each module that is
    running, outermost first. ``bodies``: the functions that are being mapped, or are a branch, outermost
    first. ``branches``: the graphs of branches, by the name that ``get_attr`` nodes know them by.
    ``impure``: nodes that are kept although nothing uses their results, as are those that raise for some of
    the sizes ``asked`` for. ``latest``: the call that was recorded last. ``outside``: the frame that called
    the model. ``nodes``: the node that gives a tensor; with the path to it, if it is a part of the result.
    ``symbols``: the node that gives a number; with the dimension, if a size. ``sizes``: makes such nodes.
    """

    def __init__(
        self,
        model: nn.Module,
        value_in_meta: Callable[[Any], Any],
        originals: Originals,
        made: Container[torch.Tensor],
        most_operations: int,
        expected: RecordedNodes | None,
    ) -> None:
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.findings: list[Finding] = []
        self.scopes: list[tuple[str, type[nn.Module]]] = []
        self.bodies: list[RecordedBody] = []
        self.branches: dict[str, GraphModule] = {}
        self.impure: set[Node] = set()
        self.asked: dict[Node, list[Any]] = {}
        self.latest: Node
        self.outside: FrameType = sys._getframe()
        self.nodes: MutableMapping[torch.Tensor, Node | tuple[Node, Path]] = WeakTensorKeyDictionary()
        self.symbols: dict[sympy.Symbol, tuple[Node, int | None]] = {}
        self.sizes = symbolic_sizes.SizeNodes(self.graph, self.source_of, self.describe_place)
        self._value_in_meta, self._most_operations = value_in_meta, most_operations
        self._originals, self._made = originals, made
        self._expected, self._is_trial = expected or {}, expected is not None
        state = *model.named_parameters(), *model.named_buffers()
        self._names = {id(originals.of(tensor)): name for name, tensor in state}
        self.paths = {module: path for path, module in model.named_modules()}
        self._taken = dict.fromkeys(
            n.partition(".")[0] for n in (*self._names.values(), *self.paths.values())
        )
        self._sizes_read: dict[sympy.Symbol, Node] = {}
        self._simple: set[Any] = set()
        self._checked_by: dict[Node, Node] = {}
        self._without_grad: set[Node] = set()

    # Calls.

    def add(self, call: Call, result: Any, written: bool, impure: bool = False) -> Any:
        """Make a node of a call, and return the result that the model receives."""
        arguments = self.argument((call.args, dict(call.kwargs)))
        without_grad = not torch.is_grad_enabled()
        if without_grad and written:
            # A write without gradient changes the tensor's data; its history stays as it is.
            arguments = torch.fx.map_arg(arguments, self.detached)
        if self.bodies:
            arguments = torch.fx.map_arg(arguments, self.brought_here)
        node = self.latest = self.here.create_node(call.op, call.target, *arguments)
        if self._is_trial and self._expected.get(node.name, called := _called(node)) != called:
            raise OtherRecordingError(f"{node.name} is not what it was")
        self.describe(node, result)
        if written or impure or draws_random_numbers(node) or waits_for_others(node):
            self.impure.add(node)
        if without_grad:
            self._without_grad.add(node)
            if written and is_one_of(result, (call.args, dict(call.kwargs))):
                return result
        self.bind(result, node, ())
        return result

    def end_if_new(self, call: Call) -> None:
        """Raise before a call is made, in a run that ends with another one: it draws as none there does.

        This is what training differs in most often, and it takes torch long on fake tensors.
        """
        if self._is_trial and _draws(call):
            same = (call.op, call.target)
            known = (each for each in self._expected.values() if isinstance(each, tuple) and each[:2] == same)
            if not any(_draws(Call(*each)) for each in known):
                raise OtherRecordingError(f"{call.target} draws random numbers")

    def detached(self, node: Node) -> Node:
        """Return a node without gradient that has the data of another."""
        if node in self._without_grad:
            self._detach_viewed(node)
            return node
        if not _can_have_gradient(node.meta.get("val")):
            return node
        detached = self._detached_here(node, node.meta["val"])
        self._without_grad.add(detached)
        return detached

    def _detach_viewed(self, view: Node) -> None:
        """Before a write under no_grad to a view, detach the viewed tensor in the graph."""
        while may_alias(view) and computes(view) != "detach":
            viewed = view.all_input_nodes[0]
            if viewed in self._without_grad:
                view = viewed
                continue
            if _can_have_gradient(viewed.meta.get("val")):
                with view.graph.inserting_before(view):
                    view.replace_input_with(viewed, self._detached_here(viewed, viewed.meta["val"]))
            return

    def _detached_here(self, node: Node, value: Any) -> Node:
        detached = self.here.call_method("detach", (self.brought_here(node),))
        self.describe(detached, value)
        return detached

    @property
    def here(self) -> Graph:
        """The graph that is being recorded: the model's, or that of a function that is mapped."""
        return self.bodies[-1].graph if self.bodies else self.graph

    def brought_here(self, node: Node) -> Node:
        """Return the node that stands for a node in the graph that is being recorded."""
        return self._brought(node, len(self.bodies))

    def _brought(self, node: Node, depth: int) -> Node:
        """Return the stand-in of a node in the model's graph, or in that of a function at this depth."""
        for body in self.bodies[self._depth_of(node) : depth]:
            node = body.inherited(node)
        return node

    def _depth_of(self, node: Node) -> int:
        graphs = [self.graph, *(body.graph for body in self.bodies)]
        if node.graph not in graphs:  # of a function that is over
            raise Obstacle.HIDDEN_TENSOR(where=self._place())
        return graphs.index(node.graph)

    def number_node(self, number: SymbolicNumber) -> Any:
        """Return the node that computes a symbolic number, or the number itself if it is fixed.

        It stands in the innermost of the functions that give a part of it.
        """
        known = (self.symbols.get(symbol) for symbol in expression_of(number).free_symbols)
        depth = max((self._depth_of(source[0]) for source in known if source is not None), default=0)
        if not depth:
            return self.sizes.value(number)
        body = self.bodies[depth - 1]
        if body.sizes is None:
            body.sizes = symbolic_sizes.SizeNodes(
                body.graph, lambda symbol: self._brought(self.source_of(symbol), depth), self.describe_place
            )
        return body.sizes.value(number)

    # Which node stands for which value.

    def bind_input(self, value: Any, placeholder: Node) -> None:
        """Map an input to its placeholder."""
        placeholder.meta["val"] = self._value_in_meta(value)
        self.bind(value, placeholder, ())

    def bind(self, value: Any, node: Node, path: Path) -> None:
        """Map a value, and the tensors and numbers inside, to a node."""
        if isinstance(value, torch.Tensor):
            self.nodes[value] = (node, path) if path else node
            with torch._C.DisableTorchFunction():  # which is what takes time
                sizes = value.shape
            for dim, size in enumerate(sizes):
                self._check_complexity(size)
                if new := self._new_symbols(size):
                    self.symbols.update(dict.fromkeys(new, (self.node_of(value), dim)))
        elif isinstance(value, SymbolicNumber):
            if new := self._new_symbols(value):
                self.symbols.update(dict.fromkeys(new, (self.taken_out(node, path), None)))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.bind(item, node, (*path, key))
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                self.bind(item, node, (*path, index))

    def _check_complexity(self, size: Any) -> None:
        """Give up where sympy would take minutes over each further size, as with nested windows."""
        if not isinstance(size, torch.SymInt) or (expression := expression_of(size)) in self._simple:
            return
        if expression.count_ops() > self._most_operations:
            raise SizeError(
                f"a size takes more than {self._most_operations} operations to compute from the inputs"
            )
        self._simple.add(expression)

    def _new_symbols(self, number: Any) -> list[sympy.Symbol]:
        """Return the symbols that a number is the first to stand for."""
        if not isinstance(number, SymbolicNumber):
            return []
        names = {number.node._expr, expression_of(number)}
        # A number that was read out of a tensor of truth values is known as `u0 == 1`.
        names = {name.lhs if isinstance(name, sympy.Eq) and name.rhs == 1 else name for name in names}
        return [name for name in names if isinstance(name, sympy.Symbol) and name not in self.symbols]

    def source_of(self, symbol: sympy.Symbol) -> Node:
        """Return the node that gives a symbol."""
        if symbol not in self.symbols:
            raise Obstacle.HIDDEN_NUMBER(where=self._place())
        node, dim = self.symbols[symbol]
        if dim is None:
            return node
        read = self._sizes_read.get(symbol)
        if read is not None and not read._erased:
            return read
        # Right behind the sized value, before anything can write over it.
        with node.graph.inserting_after(self._known_at(node)):
            size = node.graph.create_node("call_method", "size", (node, dim), name=f"{node.name}_size_{dim}")
        size.meta["val"] = node.meta["val"].shape[dim] if "val" in node.meta else None
        self._sizes_read[symbol] = size
        return size

    def forget_symbols_of(self, graph: Graph) -> None:
        """Forget the numbers that nodes of a function give, which nothing outside of it can read."""
        self.symbols = {
            symbol: found for symbol, found in self.symbols.items() if found[0].graph is not graph
        }

    @contextmanager
    def checking(self, node: Node) -> Iterator[Node]:
        """Put nodes right behind another that check its result, before anything is taken out of it."""
        following = self._known_at(node).next
        with node.graph.inserting_before(following):
            yield node
        self._checked_by[node] = following.prev

    def _known_at(self, node: Node) -> Node:
        """Return the node behind which nodes may take parts out of a node's result."""
        last = self._checked_by.get(node, node)
        while last.op == "placeholder" and last.next.op == "placeholder":
            last = last.next
        return last

    def node_of(self, tensor: torch.Tensor) -> Node:
        """Return the node that gives a tensor; for one that was never recorded, a ``get_attr`` node."""
        found = self.nodes.get(tensor)
        if found is None:
            return self._attribute_node(tensor)
        node = found if isinstance(found, Node) else self.taken_out(*found)
        if node is not found and not self.bodies:
            node.meta["val"] = self._value_in_meta(tensor)
        if node in self._without_grad and torch.is_grad_enabled() and _can_have_gradient(tensor):
            node = self._taken_out_of_no_grad(node, tensor)
        self.nodes[tensor] = node
        return node

    def _taken_out_of_no_grad(self, node: Node, tensor: torch.Tensor) -> Node:
        """Return a node with the value of one that the model has run without gradient."""
        if self.bodies or any(user in self.impure for user in node.users):
            return self._detached_here(node, tensor)
        # It belongs to where the value is made, not to the first of its readers.
        with node.graph.inserting_after(node):
            detached = node.graph.call_method("detach", (node,))
        detached.meta = node.meta | {"val": self._value_in_meta(tensor)}
        return detached

    def taken_out(self, node: Node, path: Path) -> Node:
        """Return the node of a part of a node's result."""
        for step in steps_of(path):
            with node.graph.inserting_after(self._known_at(node)):
                part = add_getitem(node, step)
            part.meta = {k: v for k, v in node.meta.items() if k != "val"}
            if node in self._without_grad:
                self._without_grad.add(part)
            node = part
        return node

    def _attribute_node(self, tensor: torch.Tensor) -> Node:
        """Return the ``get_attr`` node of a parameter, buffer or other tensor that the model holds."""
        original = self._originals.of(tensor)
        name = self._names.get(id(original))
        if name is None and (isinstance(original, FakeTensor) or original in self._made):
            raise Obstacle.HIDDEN_TENSOR(where=self._place())
        node = self.constant_node(original) if name is None else self._get_attr(name)
        self.describe(node, tensor)
        self.nodes[tensor] = node
        return node

    def is_state(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is a parameter or a buffer of the model."""
        return id(self._originals.of(tensor)) in self._names

    def state_behind(self, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]] | None:
        """Return names and originals of parameters and buffers, if these tensors are nothing else."""
        if not all(map(self.is_state, tensors)):
            return None
        originals = [self._originals.of(tensor) for tensor in tensors]
        return [(self._names[id(tensor)], tensor) for tensor in originals]

    def constant_node(self, value: torch.Tensor) -> Node:
        """Return the node of a tensor that is kept with the graph."""
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = value
        self.note(Found.CONSTANT_TENSOR, name, shape=tuple(value.shape), dtype=value.dtype)
        return self._get_attr(name)

    def module_node(self, module: nn.Module) -> Node:
        """Return a ``get_attr`` node of a module that is itself an argument of a call."""
        node = self._get_attr(self.paths[module])
        self.describe_place(node)
        return node

    def branch_node(self, branch: GraphModule, name: str) -> Node:
        """Return the node of the graph of a branch, which is kept with the graph that calls it."""
        held = self.bodies[-1].branches if self.bodies else self.branches
        free = next(f"{name}_{n}" for n in count() if f"{name}_{n}" not in held | self._taken)
        held[free] = branch
        return self.here.create_node("get_attr", free)

    def _get_attr(self, name: str) -> Node:
        return self.graph.create_node("get_attr", name)

    def node_of_output(self, value: Any) -> Any:
        """Return the node that gives a tensor or symbolic number, or the number itself if it is fixed."""
        node = self.node_of(value) if isinstance(value, torch.Tensor) else self.number_node(value)
        return self.brought_here(node) if isinstance(node, Node) else node

    def output(self, value: Any) -> None:
        """End the graph with the result of the model."""
        self._require_no_size_in(value)
        self.graph.output(output_argument(value, self.graph, self.node_of_output))

    def _require_no_size_in(self, value: Any) -> None:
        if text := symbolic_sizes.size_text_in(value):
            raise Obstacle.TEXT_OF_SIZE(text=text, where=self._place())

    def argument(self, value: Any) -> Any:
        """Return a value as the argument of a node."""
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        if isinstance(value, Node):
            return value
        if is_unread(value):
            return value.node
        if isinstance(value, SymbolicNumber):
            return self.number_node(value)
        if isinstance(value, np.generic):  # some are subclasses of float
            return value.item()
        if isinstance(value, base_types) or value is None or value is Ellipsis:
            if isinstance(value, str):
                self._require_no_size_in(value)
            return value
        if isinstance(value, type) and value in _DTYPES:
            return _DTYPES[value]
        if type(value) is type(torch.FloatTensor):  # torch's class of a dtype, which is no Python class
            return f"{value.__module__}.{value.__name__}"
        if isinstance(value, slice):
            return slice(*(self.argument(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            parts = torch.fx.map_arg(tuple(self.argument(item) for item in value), self.brought_here)
            return self.here.call_function(type(value), parts)
        if isinstance(value, list | tuple):
            return (list if isinstance(value, list) else tuple)(self.argument(item) for item in value)
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise Obstacle.UNUSUAL_ARGUMENT(type=name, where=self._place())

    # A node's own description.

    def frames(self) -> list[tuple[str, int, str]]:
        """Return the lines of the model that are running, outermost first."""
        return model_frames(self.outside)

    def describe(self, node: Node, value: Any) -> None:
        """Write the result of a node, and its place in the model, into ``node.meta``."""
        if all(body.has_values for body in self.bodies):
            node.meta["val"] = self._value_in_meta(value)
        self.describe_place(node)

    def describe_place(self, node: Node) -> None:
        """Write into ``node.meta`` where in the model a node stands, if the graph is to be used."""
        if self._is_trial:
            return
        node.meta["stack_trace"] = stack_trace(tuple(self.frames()))
        node.meta["nn_module_stack"] = {path: (path, cls) for path, cls in self.scopes if path}

    def note(self, found: Found, what: str, **details: object) -> None:
        """Add a finding about the line that is running, unless it is there already."""
        finding = found(what, where(self.frames()), **details)
        if finding not in self.findings[-_RECENT:]:
            self.findings.append(finding)

    def _place(self) -> str:
        return where(self.frames()) or "an unknown line"

    def end(self) -> list[weakref.ref[torch.Tensor]]:
        """Release the state that only a run needs; return weak references to the tensors of the run."""
        del self.outside  # its frame holds the results
        self.paths = {}
        self._originals = Originals()
        return [*map(weakref.ref, self.nodes)]

    def nodes_by_name(self) -> dict[str, Any]:
        """Return the call of each node."""
        return {node.name: _called(node) for node in self.graph.nodes}

    def put_numbers_for(self, symbols: Container[sympy.Symbol]) -> None:
        """Replace nodes that compute sizes which have become fixed by numbers."""
        known: dict[Node, Any] = {}
        for node in self.graph.nodes:
            size = node.meta.get("val")
            if not isinstance(size, torch.SymInt) or not (expression := expression_of(size)).is_number:
                continue
            if all(symbol in symbols for symbol in size.node._expr.free_symbols):
                known[node] = int(expression)
        for user in {user: None for node in known for user in node.users}:
            user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda n: known.get(n, n))

    def remove_unused(self) -> None:
        """Remove the nodes that neither give anything that is used nor do or require anything else."""
        for node in reversed(self.graph.nodes):
            keep = node in self.impure or node.op in ("placeholder", "output")
            if not keep and not node.users and all(map(excludes_one_only, self.asked.get(node, ()))):
                self.graph.erase_node(node)


def _called(node: Node) -> tuple[Any, ...]:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda value: value.name)
    # Targets that make objects are equal to themselves alone.
    target = (type(node.target), vars(node.target)) if is_dataclass(node.target) else node.target
    return node.op, target, args, kwargs


def _draws(call: Call) -> bool:
    return draws_random_numbers(cast(Node, call))  # of which it reads what both have


def _can_have_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_floating(value)


def is_one_of(value: Any, inputs: Any) -> bool:
    """Tell whether a value is one of the tensors inside others."""
    return any(value is tensor for _, tensor in tensors_inside(inputs))
