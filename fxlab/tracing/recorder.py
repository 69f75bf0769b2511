"""Records one run of a model as a ``torch.fx.Graph``."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import numpy as np
import sympy
import torch
from torch import nn
from torch._functorch import apis
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.autograd import Function
from torch.fx import Graph, Node
from torch.fx.node import base_types
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from fxlab.tracing.arguments import Argument, Path, inputs_of, map_tensors, tensors_inside
from fxlab.tracing.autocast import AutocastUse, UnderAutocast, autocast_state, require_autocast
from fxlab.tracing.calls import (
    DATA_READS,
    NUMBER_OF,
    AutogradFunction,
    Call,
    as_call,
    is_shaped_by_data,
    name_of,
    with_numbers_for_sizes,
    writes,
)
from fxlab.tracing.fake_inputs import Decision
from fxlab.tracing.fake_results import fake_result
from fxlab.tracing.fake_state import Originals
from fxlab.tracing.leaf_modules import LeafModules
from fxlab.tracing.objects import output_argument
from fxlab.tracing.recurrent import is_recurrent_on_fakes, recurrent_results
from fxlab.tracing.report import REFUSAL, Finding, TraceError
from fxlab.tracing.sizes import SizeNodes, SymbolicNumber, expression_of
from fxlab.tracing.source_lines import model_frames, stack_trace, where
from fxlab.tracing.vmapped import VmapBody

MOST_OPERATIONS = 64
"""In the expression of a size."""
_OF_NUMPY = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)
_RECENT = 100
"""Findings among which none is repeated, as a loop of the model would."""


class Recorder(TorchFunctionMode):
    """Makes a node of each torch-level call and each call of a leaf module.

    Tensors stay tensors (fake or real) all the while, so the model's own Python runs as it always does.

    Parameters
    ----------
    model
        The module to record; its parameters and buffers become ``get_attr`` nodes.
    leaves
        Which modules are one ``call_module`` node each.
    value_in_meta
        What ``node.meta["val"]`` keeps of a result.
    originals
        The model's tensors that fake ones stand for.
    made
        The tensors that were made during the run, none of which can be a constant.
    new_decisions
        Returns what the model has decided on data since it was last called.

    Attributes
    ----------
    graph : torch.fx.Graph
        What has been recorded.
    constants : dict of str to torch.Tensor
        Tensors that are neither inputs nor parameters, by the name that ``get_attr`` nodes know them by.
    findings : list of Finding
        Constants, and numbers that were read out of real tensors.
    """

    def __init__(
        self,
        model: nn.Module,
        leaves: LeafModules,
        value_in_meta: Callable[[Any], Any],
        originals: Originals | None = None,
        made: Container[torch.Tensor] = (),
        new_decisions: Callable[[], Iterable[Decision]] = tuple,
    ) -> None:
        super().__init__()
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.findings: list[Finding] = []
        self._model = model
        self._leaves = leaves
        self._value_in_meta = value_in_meta
        self._paths = {module: path for path, module in model.named_modules()}
        self._originals = originals or Originals()
        self._made = made
        self._new_decisions = new_decisions
        self._names = {id(self._originals.of(tensor)): name for name, tensor in _state_of(model)}
        self._buffers = dict(model.named_buffers())
        self._nodes: MutableMapping[torch.Tensor, Node | tuple[Node, Path]] = WeakTensorKeyDictionary()
        self._bodies: list[VmapBody] = []
        self._symbols: dict[sympy.Symbol, tuple[Node, int | None]] = {}
        self._sizes = SizeNodes(self.graph, self._source_of, self._describe_place)
        self._scopes: list[tuple[str, type[nn.Module]]] = []
        self._simple: set[Any] = set()
        self._impure: set[Node] = set()
        self._without_grad: set[Node] = set()
        self._module_call = nn.Module.__call__
        self._vmap: Callable[..., Any] = vars(apis)["vmap_impl"]
        self._thread = threading.get_ident()
        self._paused = False
        self._outside: FrameType = sys._getframe()
        self._autocast = autocast_state()

    def record(self, arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> Any:
        """Run the model once, make the graph, and return what the model returned.

        Parameters
        ----------
        arguments
            The inputs, which become placeholders.
        values
            What to run on: name of the argument -> its value, with fake or real tensors.
        """
        self._make_placeholders(arguments, values)
        self._outside = sys._getframe()
        inputs = inputs_of(arguments, values)
        autocast = AutocastUse()
        run = torch.inference_mode(False), torch.enable_grad(), autocast.watched(), self._calls_seen(), self
        with ExitStack() as stack:
            for context in run:
                stack.enter_context(context)
            output = self._model(**inputs) if isinstance(inputs, dict) else self._model(*inputs)
        with torch.enable_grad():
            self._write_replaced_buffers()
        self._hold_decisions()
        self.graph.output(output_argument(output, self.graph, self._node_of_output))
        if autocast.depends:
            with self._before_computing():
                self._impure.add(self.graph.call_function(require_autocast, (self._autocast,)))
        self._remove_unused()
        return output

    def require_sizes(self, condition: Any, message: str) -> None:
        """Make the graph raise ``AssertionError``, before all else, unless sizes meet a condition.

        Parameters
        ----------
        condition
            A sympy expression of the symbols of the inputs' sizes.
        message
            What to say.
        """
        with self._before_computing():
            made = SizeNodes(self.graph, self._source_of, lambda node: None).of_expression(condition)
            self.graph.call_function(torch._assert, (made.node, message))

    def require_shapes(self) -> None:
        """Make the graph raise ``AssertionError`` unless its inputs have the shapes that were recorded."""
        for placeholder in self.graph.find_nodes(op="placeholder"):
            for path, tensor in tensors_inside(placeholder.meta["val"]):
                shape = tuple(tensor.shape)
                name = "".join((placeholder.name, *(f"[{key!r}]" for key in path)))
                with self._before_computing():
                    node = placeholder
                    for key in path:
                        node = self.graph.call_function(operator.getitem, (node, key))
                    actual = self.graph.call_function(getattr, (node, "shape"))
                    same = self.graph.call_function(operator.eq, (actual, shape))
                    self.graph.call_function(torch._assert, (same, f"{REFUSAL} {name} of shape {shape} only"))

    @contextmanager
    def _before_computing(self) -> Iterator[None]:
        first = next(node for node in self.graph.nodes if node.op != "placeholder")
        while first.target == "size" or first.target is torch._assert:
            first = first.next
        with self.graph.inserting_before(first):
            yield

    # What torch calls.

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return self._computed(func, args, kwargs)
        if func is torch.Tensor.__iter__:
            with self:
                return iter(args[0].unbind(0))
        name = name_of(func)
        if name in DATA_READS and (known := self._read_of_state(func, args, kwargs)) is not None:
            return known[0]
        if name in NUMBER_OF and isinstance(args[0], FakeTensor):
            return NUMBER_OF[name](self._number_in(args[0]))
        if func in _OF_NUMPY and isinstance(args[0], np.ndarray):
            return self._copy_of_constant(func, args, kwargs)
        args = with_numbers_for_sizes(name, args, self._number_in)
        versions = _versions(args, kwargs)
        result = self._computed(func, args, kwargs)
        written = writes(name, kwargs) or versions != _versions(args, kwargs)
        if name in DATA_READS and not isinstance(result, SymbolicNumber | torch.Tensor):
            self._hold_read(func, args, kwargs, result)
        if not written and not _gives_new_values(result, self._symbols):
            return result
        call = as_call(func, args, kwargs)
        result = result if written else _distinct(result, (args, kwargs))
        result = self._recorded(call, result, written)
        if is_shaped_by_data(name, args, kwargs):
            self._hold_shape(name, result)
        return result

    def _copy_of_constant(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Make a tensor of an array of numpy, which what is not a tensor can only have given."""
        with self._unseen(), unset_fake_temporarily():
            constant = self._constant_node(func(*args, **kwargs).clone())
        result = func(*args, **kwargs)
        return self._recorded(Call("call_method", "clone", (constant,), {}), result, False)

    def _computed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func in (torch.tensor, torch.as_tensor) and _has_symbolic_number(args):
            return _tensor_of(args[0], kwargs.get("dtype"))
        with self._unseen():
            result = fake_result(func, args, kwargs)
        return func(*args, **kwargs) if result is None else result

    def _call_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = self._paths.get(module)
        if path is None or self._paused or threading.get_ident() != self._thread:
            return self._module_call(module, *args, **kwargs)
        self._scopes.append((path, type(module)))
        try:
            is_leaf = self._leaves.is_leaf(module, path) and not self._bodies
            if (
                is_leaf
                and autocast_state() == self._autocast
                and self._can_be_arguments(module, path, (args, kwargs))
            ):
                call = Call("call_module", path, args, kwargs)
                return self._call_whole(call, lambda: self._run_leaf(module, args, kwargs), module.training)
            if module._backward_hooks or module._backward_pre_hooks:
                self._note("gradient", path or "the model", "its backward hooks are not in the graph")
            return self._module_call(module, *args, **kwargs)
        finally:
            self._scopes.pop()

    def _run_leaf(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_recurrent_on_fakes(module, args):
            return recurrent_results(module, *args, **kwargs)
        return self._module_call(module, *args, **kwargs)

    def _call_autograd_function(
        self, function: type[Function], apply: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        if self._paused or threading.get_ident() != self._thread:
            return apply(function, *args, **kwargs)
        try:
            self._argument((args, kwargs))
        except TraceError:
            self._note("gradient", function.__name__, "its own backward is not in the graph")
            return apply(function, *args, **kwargs)
        call = Call("call_function", AutogradFunction(function), args, kwargs)
        return self._call_whole(call, lambda: apply(function, *args, **kwargs), False)

    @contextmanager
    def _unseen(self, paused: bool = True) -> Iterator[None]:
        before, self._paused = self._paused, paused
        try:
            yield
        finally:
            self._paused = before

    def _call_vmap(
        self,
        function: Callable[..., Any],
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunk: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        vmap = self._vmap
        if self._paused or threading.get_ident() != self._thread:
            return vmap(function, in_dims, out_dims, randomness, chunk, *args, **kwargs)
        body = VmapBody(function, in_dims, args)
        self._bodies.append(body)
        try:
            recorded = body.run(self._nodes.__setitem__, self._node_of_output)
            with self._unseen():  # what torch does around the function
                result = vmap(self._seen(recorded), in_dims, out_dims, randomness, None, *args, **kwargs)
        finally:
            self._bodies.pop()
        call = Call("call_function", body.target(out_dims, randomness), tuple(body.given), {})
        return self._recorded(call, result, False)

    def _seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._unseen(False):
                return function(*args, **kwargs)

        return call

    @property
    def _here(self) -> Graph:
        """The graph that is being recorded: the model's, or that of a function that is mapped."""
        return self._bodies[-1].graph if self._bodies else self.graph

    def _brought_here(self, node: Node) -> Node:
        """Return what stands for a node in the graph that is being recorded."""
        graphs = [self.graph, *(body.graph for body in self._bodies)]
        for body in self._bodies[graphs.index(node.graph) :]:
            node = body.inherited(node)
        return node

    def _call_whole(self, call: Call, run: Callable[[], Any], impure: bool) -> Any:
        """Run something without recording what it calls, as one node."""
        versions = _versions(call.args, call.kwargs)
        with self._unseen():
            result = run()
        written = versions != _versions(call.args, call.kwargs)
        result = result if written else _distinct(result, (call.args, dict(call.kwargs)))
        return self._recorded(call, result, written, impure)

    def _recorded(self, call: Call, result: Any, written: bool, impure: bool = False) -> Any:
        if (state := autocast_state()) != self._autocast and call.op != "call_module":
            call = Call("call_function", UnderAutocast(call.target, state), call.args, call.kwargs)
        self._hold_decisions()
        arguments = self._argument((call.args, dict(call.kwargs)))
        without_grad = not torch.is_grad_enabled()
        if without_grad and written:
            # What is written without gradient is the tensor's data; its history stays as it is.
            arguments = torch.fx.map_arg(arguments, self._detached)
        if self._bodies:
            arguments = torch.fx.map_arg(arguments, self._brought_here)
        node = self._here.create_node(call.op, call.target, *arguments)
        self._describe(node, result)
        if written or impure or _draws_random_numbers(node):
            self._impure.add(node)
        if without_grad:
            self._without_grad.add(node)
            if written and _is_one_of(result, (call.args, dict(call.kwargs))):
                return result
        self._bind(result, node, ())
        return result

    def _detached(self, node: Node) -> Node:
        """Return a node without gradient that has the data of another."""
        if node in self._without_grad or not _can_have_gradient(node.meta.get("val")):
            return node
        detached = self._here.call_method("detach", (self._brought_here(node),))
        self._describe(detached, node.meta["val"])
        self._without_grad.add(detached)
        return detached

    # Which node stands for which value.

    def _make_placeholders(self, arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> None:
        # Constants have a default, which only parameters at the end of a signature can have.
        ordered = sorted(arguments, key=lambda a: a.by_keyword and a.is_constant)
        last = max((i for i, a in enumerate(ordered) if not a.is_constant), default=-1)
        made: list[tuple[Node, Argument]] = []
        for index, argument in enumerate(ordered):
            default = (argument.value,) if argument.is_constant and index > last else ()
            node = self.graph.create_node("placeholder", argument.name, default)
            node.meta["val"] = self._value_in_meta(values[argument.name])
            self._bind(values[argument.name], node, ())
            made.append((node, argument))
        for node, argument in made:
            self._require_structure(node, argument.name, argument.value)

    def _require_structure(self, node: Node, name: str, value: Any) -> None:
        """Make the graph check what is not a tensor in an input: numbers, and how many tensors there are."""
        if isinstance(value, torch.Tensor):
            return
        if isinstance(value, Mapping | list | tuple) and any(True for _ in tensors_inside(value)):
            count = self.graph.call_function(len, (node,))
            self._require(operator.eq, count, len(value), f"{REFUSAL} {len(value)} items in {name} only")
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                if not isinstance(item, torch.Tensor):
                    part = self.graph.call_function(operator.getitem, (node, key))
                    self._require_structure(part, f"{name}[{key!r}]", item)
            return
        same = operator.is_ if value is None else operator.eq
        self._require(same, node, value, f"{REFUSAL} {name} = {value!r} only")

    def _require(self, same: Callable[..., Any], node: Node, value: Any, message: str) -> None:
        condition = self.graph.call_function(same, (node, value))
        self._impure.add(self.graph.call_function(torch._assert, (condition, message)))

    def _bind(self, value: Any, node: Node, path: Path) -> None:
        if isinstance(value, torch.Tensor):
            self._nodes[value] = (node, path) if path else node
            for dim, size in enumerate(value.shape):
                self._check_complexity(size)
                if new := self._new_symbols(size):
                    self._symbols.update(dict.fromkeys(new, (self._node_of(value), dim)))
        elif isinstance(value, SymbolicNumber):
            if new := self._new_symbols(value):
                self._symbols.update(dict.fromkeys(new, (self._taken_out(node, path), None)))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._bind(item, node, (*path, key))
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                self._bind(item, node, (*path, index))

    def _check_complexity(self, size: Any) -> None:
        """Give up where sympy would take minutes over each further size, as with nested windows."""
        if not isinstance(size, torch.SymInt) or (expression := expression_of(size)) in self._simple:
            return
        if expression.count_ops() > MOST_OPERATIONS:
            raise TraceError(
                f"a size takes more than {MOST_OPERATIONS} operations to compute from the inputs"
            )
        self._simple.add(expression)

    def _new_symbols(self, number: Any) -> list[sympy.Symbol]:
        """Return the symbols that a number is the first to stand for."""
        if not isinstance(number, SymbolicNumber):
            return []
        names = {number.node._expr, expression_of(number)}
        # What was read out of a tensor of truth values is known as `u0 == 1`.
        names = {name.lhs if isinstance(name, sympy.Eq) and name.rhs == 1 else name for name in names}
        return [name for name in names if isinstance(name, sympy.Symbol) and name not in self._symbols]

    def _source_of(self, symbol: sympy.Symbol) -> Node:
        if symbol not in self._symbols:
            raise TraceError(
                "A number was read out of a tensor by a call that torch does not show, at "
                f"{where(self._frames()) or 'an unknown line'}"
            )
        node, dim = self._symbols[symbol]
        if dim is None:
            return node
        # Right behind what it is the size of, before anything can write over that.
        with node.graph.inserting_after(self._last_of_placeholders(node)):
            size = node.graph.create_node("call_method", "size", (node, dim), name=f"{node.name}_size_{dim}")
        size.meta["val"] = node.meta["val"].shape[dim] if "val" in node.meta else None
        return size

    def _last_of_placeholders(self, node: Node) -> Node:
        while node.op == "placeholder" and node.next.op == "placeholder":
            node = node.next
        return node

    def _node_of(self, tensor: torch.Tensor) -> Node:
        found = self._nodes.get(tensor)
        if found is None:
            return self._attribute_node(tensor)
        node = found if isinstance(found, Node) else self._taken_out(*found)
        if node is not found and not self._bodies:
            node.meta["val"] = self._value_in_meta(tensor)
        if node in self._without_grad and torch.is_grad_enabled() and _can_have_gradient(tensor):
            # It leaves the part of the model that is run without gradient.
            node = self._here.call_method("detach", (self._brought_here(node),))
            self._describe(node, tensor)
        self._nodes[tensor] = node
        return node

    def _taken_out(self, node: Node, path: Path) -> Node:
        for key in path:
            with node.graph.inserting_after(self._last_of_placeholders(node)):
                taken = node.graph.call_function(operator.getitem, (node, key))
            taken.meta = {k: v for k, v in node.meta.items() if k != "val"}
            if node in self._without_grad:
                self._without_grad.add(taken)
            node = taken
        return node

    def _attribute_node(self, tensor: torch.Tensor) -> Node:
        """Return the ``get_attr`` node of a parameter, buffer or other tensor that the model holds."""
        original = self._originals.of(tensor)
        name = self._names.get(id(original))
        if name is None and (isinstance(original, FakeTensor) or original in self._made):
            raise TraceError(
                "A tensor was made by a call that torch does not show (inside torch.vmap, a compiled or a "
                f"scripted function), at {where(self._frames()) or 'an unknown line'}. Name the module that "
                "does this in leaf_modules."
            )
        node = self._constant_node(original) if name is None else self._get_attr(name)
        self._describe(node, tensor)
        self._nodes[tensor] = node
        return node

    def _constant_node(self, value: torch.Tensor) -> Node:
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = value
        self._note("constant", name, f"{tuple(value.shape)} {value.dtype}, kept with the graph")
        return self._get_attr(name)

    def _get_attr(self, name: str) -> Node:
        return self.graph.create_node("get_attr", name)

    def _node_of_output(self, value: Any) -> Any:
        node = self._node_of(value) if isinstance(value, torch.Tensor) else self._sizes.value(value)
        return self._brought_here(node) if isinstance(node, Node) else node

    def _argument(self, value: Any) -> Any:
        """Return a value as the argument of a node."""
        if isinstance(value, torch.Tensor):
            return self._node_of(value)
        if isinstance(value, Node):
            return value
        if isinstance(value, SymbolicNumber):
            return self._sizes.value(value)
        if isinstance(value, np.generic):  # some are subclasses of float
            return value.item()
        if isinstance(value, base_types) or value is None or value is Ellipsis:
            return value
        if isinstance(value, slice):
            return slice(*(self._argument(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self._argument(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            parts = torch.fx.map_arg(tuple(self._argument(item) for item in value), self._brought_here)
            return self._here.call_function(type(value), parts)
        if isinstance(value, list | tuple):
            return (list if isinstance(value, list) else tuple)(self._argument(item) for item in value)
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TraceError(
            f"A call takes a {name}, which a graph cannot hold, at "
            f"{where(self._frames()) or 'an unknown line'}. Name the module that does this in leaf_modules."
        )

    def _can_be_arguments(self, module: nn.Module, path: str, values: Any) -> bool:
        """Tell whether a leaf can be called from a graph; one that the caller named must be."""
        try:
            self._argument(values)
        except TraceError:
            if self._leaves.is_named(module, path):
                raise
            return False
        return True

    def _read_of_state(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """Read numbers out of a parameter or buffer, whose data is at hand while inputs are fake."""
        tensors = [tensor for _, tensor in tensors_inside((args, dict(kwargs)))]
        originals = [self._originals.of(tensor) for tensor in tensors]
        if not all(id(t) in self._names and not t.is_meta for t in originals):
            return None
        if any(self._node_of(tensor).op != "get_attr" for tensor in tensors):
            return None  # written to since
        with unset_fake_temporarily():
            value = func(*map_tensors(lambda _, t: self._originals.of(t), args), **kwargs)
        names = ", ".join(self._names[id(t)] for t in originals)
        self._note("constant", names, f"its value is held fixed: {value!r:.60}")
        return (value,)

    # What the model decides on data.

    def _hold_read(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """Make the graph check that it reads the same out of a tensor."""
        name = name_of(func)
        held = f"{result!r:.60} only"
        with self._unseen():
            if bool(torch.as_tensor(result).isnan().any()):  # which is not equal to itself
                self._note("branch on data", name, f"the graph holds for {held}, and does not check it")
                return
        self._note("branch on data", name, f"the graph holds for {held}")
        if name in NUMBER_OF:
            read = self.graph.call_function(NUMBER_OF[name], (self._node_of(args[0]),))
        elif isinstance(result, bool | int | float | complex):
            call = as_call(func, args, kwargs)
            read = self.graph.create_node(
                call.op, call.target, *self._argument((call.args, dict(call.kwargs)))
            )
        else:
            constant = self._constant_node(args[0].detach().clone())
            read = self.graph.call_function(torch.equal, (self._node_of(args[0]), constant))
            result = True
        self._describe_place(read)
        place = where(self._frames())
        self._require(operator.eq, read, result, f"{REFUSAL} {name} giving {held} (at {place})")

    def _hold_shape(self, name: str, result: Any) -> None:
        """Make the graph check the shapes of real tensors that depend on data, as Python may read them."""
        for _, tensor in tensors_inside(result):
            if isinstance(tensor, FakeTensor):
                continue
            shape = tuple(tensor.shape)
            self._note("branch on data", name, f"the graph holds for its shape {shape} only")
            actual = self.graph.call_function(getattr, (self._node_of(tensor), "shape"))
            place = where(self._frames())
            self._require(operator.eq, actual, shape, f"{REFUSAL} {name} of shape {shape} only (at {place})")

    def _number_in(self, tensor: torch.Tensor) -> Any:
        """Take the number out of a tensor, which is a symbol if that is a fake one."""
        with self:
            return tensor.item()

    def _hold_decisions(self) -> None:
        """Make the graph check what the model has decided on numbers that it read out of tensors."""
        for decision in self._new_decisions():
            names = {
                symbol: sympy.Symbol(self._source_of(symbol).name)
                for symbol in decision.condition.free_symbols
            }
            words = str(decision.condition.xreplace(names))
            made = self._sizes.of_expression(decision.condition)
            message = f"{REFUSAL} {words} only (decided at {decision.where})"
            self._impure.add(self.graph.call_function(torch._assert, (made.node, message)))
            self.findings.append(Finding("branch on data", words, "the branch taken is held", decision.where))

    # What a node says of itself.

    def _frames(self) -> list[tuple[str, int, str]]:
        return model_frames(self._outside)

    def _describe(self, node: Node, value: Any) -> None:
        if not self._bodies:  # what is mapped is no tensor of its own
            node.meta["val"] = self._value_in_meta(value)
        self._describe_place(node)

    def _describe_place(self, node: Node) -> None:
        node.meta["stack_trace"] = stack_trace(self._frames())
        node.meta["nn_module_stack"] = {path: (path, cls) for path, cls in self._scopes if path}

    def _note(self, kind: str, what: str, detail: str) -> None:
        finding = Finding(kind, what, detail, where(self._frames()))
        if finding not in self.findings[-_RECENT:]:
            self.findings.append(finding)

    def _remove_unused(self) -> None:
        for node in reversed(self.graph.nodes):
            keep = node in self._impure or node.op in ("placeholder", "output")
            if not keep and not node.users:
                self.graph.erase_node(node)

    @contextmanager
    def _calls_seen(self) -> Iterator[None]:
        """Let calls of modules and of autograd's functions, which torch hides from modes, be seen."""
        apply = vars(Function)["apply"]

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self._call_module(module, args, kwargs)

        def call_function(function: type[Function], *args: Any, **kwargs: Any) -> Any:
            return self._call_autograd_function(function, apply.__func__, args, kwargs)

        try:
            nn.Module.__call__ = call  # type: ignore[method-assign]
            Function.apply = classmethod(call_function)  # type: ignore[method-assign, assignment]
            vars(apis)["vmap_impl"] = self._call_vmap
            yield
        finally:
            vars(apis)["vmap_impl"] = self._vmap
            nn.Module.__call__ = self._module_call  # type: ignore[method-assign]
            Function.apply = apply  # type: ignore[method-assign]

    def _write_replaced_buffers(self) -> None:
        """Where the model has put another tensor in the place of a buffer, write its data into the buffer."""
        for name, now in self._model.named_buffers():
            before = self._buffers.get(name)
            if before is None or now is before or _same_memory(now, before):
                continue
            if (now.shape, now.dtype) != (before.shape, before.dtype):
                self._note(
                    "state", name, "the model replaces it by another shape or dtype, the graph does not"
                )
                continue
            value = self._detached(self._node_of(now))
            node = self.graph.call_method("copy_", (self._node_of(before), value))
            self._describe(node, before)
            self._impure.add(node)


def _state_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _versions(args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    tensors = (tensor for _, tensor in tensors_inside((args, dict(kwargs))))
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _can_have_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _is_one_of(value: Any, inputs: Any) -> bool:
    return any(value is tensor for _, tensor in tensors_inside(inputs))


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    same_storage = a.untyped_storage()._cdata == b.untyped_storage()._cdata
    return same_storage and (a.shape, a.stride()) == (b.shape, b.stride())


def _has_symbolic_number(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_symbolic_number, value))
    return isinstance(value, SymbolicNumber)


def _tensor_of(data: Any, dtype: torch.dtype | None) -> torch.Tensor:
    """Do as ``torch.tensor``, which fixes symbolic numbers."""
    if isinstance(data, list | tuple):
        return torch.stack([_tensor_of(item, dtype) for item in data])
    if isinstance(data, torch.Tensor):
        return data if dtype is None else data.to(dtype)
    kind = torch.int64 if isinstance(data, int | torch.SymInt) else torch.get_default_dtype()
    return torch.scalar_tensor(data, dtype=dtype or kind)


def _gives_new_values(result: Any, known: Mapping[sympy.Symbol, Any]) -> bool:
    """Tell whether there is a tensor in a result, or a number that no size gives."""
    if isinstance(result, torch.Tensor):
        return True
    if isinstance(result, SymbolicNumber):
        return not expression_of(result).free_symbols <= known.keys()
    if isinstance(result, list | tuple):
        return any(_gives_new_values(item, known) for item in result)
    return isinstance(result, dict) and any(_gives_new_values(item, known) for item in result.values())


def _distinct(result: Any, inputs: Any) -> Any:
    """Return a tensor that is not one of the inputs, so that each node's result is its own."""
    return torch.ops.aten.alias(result) if _is_one_of(result, inputs) else result


def _draws_random_numbers(node: Node) -> bool:
    name = str(getattr(node.target, "__name__", node.target))
    words = ("rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "exponential", "uniform")
    return node.op != "call_module" and any(word in name for word in words)
