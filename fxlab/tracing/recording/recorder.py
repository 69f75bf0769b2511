"""Records one run of a model as a ``torch.fx.Graph``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import sympy
import torch
from torch import nn
from torch._functorch import apis, eager_transforms
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.autograd import Function
from torch.fx import Node
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointFunction

from fxlab.interrupts import InterruptsHeld, RestoringStack
from fxlab.tracing.bound_inputs import Argument, inputs_of
from fxlab.tracing.leaf_modules import LeafModules
from fxlab.tracing.model_code.attributes import attributes_of, changed_attributes
from fxlab.tracing.model_code.created_tensors import TensorsMade
from fxlab.tracing.model_code.mode_reads import ModeReads
from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.model_code.running_calls import Part, is_method
from fxlab.tracing.model_code.source_lines import is_asked_by_fakes, where
from fxlab.tracing.model_code.threads import OneThread
from fxlab.tracing.recording.autocast_regions import AutocastUse, UnderAutocast, autocast_state
from fxlab.tracing.recording.bound_methods import method_of
from fxlab.tracing.recording.graph_builder import MOST_OPERATIONS, RecordedNodes, Recording, is_one_of
from fxlab.tracing.recording.guards import Conditions
from fxlab.tracing.recording.opaque_calls import CannotBeWholeError, WholeParts
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.recording.real_tensors import RealTensors, Unknown
from fxlab.tracing.recording.sdpa_backends import WithAttentionBackends, attention_backends
from fxlab.tracing.recording.torch_calls import (
    DATA_READS,
    DROP_DIMENSIONS,
    DTYPE_READS,
    GRADIENT_READS,
    LAYOUT_READS,
    LEAF_MAKERS,
    MEMORY_READS,
    NUMBER_OF,
    TELL_NO_DATA,
    TEXT_READS,
    AutogradFunction,
    Call,
    as_call,
    name_of,
    size_that_is_parted,
    with_numbers_for_sizes,
    writes,
)
from fxlab.tracing.recording.vmap import VmapBody
from fxlab.tracing.report import Finding, TraceError
from fxlab.tracing.shapes.fake_inputs import ModelSizes
from fxlab.tracing.shapes.fake_kernels import fake_result
from fxlab.tracing.shapes.fake_state import Originals
from fxlab.tracing.shapes.recurrent import is_recurrent_on_fakes, recurrent_results
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, expression_of
from fxlab.tracing.shapes.transformer_modules import transformer_result
from fxlab.tracing.shapes.uncounted_lists import Uncounted, all_read, items_of, uncounted_result
from fxlab.values.nested import map_tensors, tensors_inside
from fxlab.values.tensors import storage_of

_DERIVATIVES = ("grad_increment_nesting", "jvp_increment_nesting")
"""What each derivative of ``torch.func`` goes through."""
_OF_NUMPY = (torch.tensor, torch.as_tensor, torch.asarray)


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
    sizes
        Knows what the model asks about sizes.
    one_thread
        Notices what the model does in other threads.
    made
        The tensors that were made during the run, none of which can be a constant.
    originals
        The model's tensors that others stand for.
    real
        The real tensors that the model runs on, if these are no fake ones.
    whole
        The parts of the model that are called as they are.
    most_operations
        How complicated a size may be.
    expected
        What another run has recorded, if this one is to end as soon as it records something else.
    after_call
        Called when a call has been recorded.

    Attributes
    ----------
    recording : Recording
        What has been recorded.
    conditions : Conditions
        Adds to it what the graph checks.
    mode_reads : ModeReads
        Where the model has read its mode.
    """

    def __init__(
        self,
        model: nn.Module,
        leaves: LeafModules,
        value_in_meta: Callable[[Any], Any],
        sizes: ModelSizes,
        one_thread: OneThread,
        made: TensorsMade,
        originals: Originals,
        real: RealTensors | None = None,
        whole: WholeParts | None = None,
        most_operations: int = MOST_OPERATIONS,
        expected: RecordedNodes | None = None,
        after_call: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._after_call = after_call
        self.recording = Recording(model, value_in_meta, originals, made, most_operations, expected)
        self.conditions = Conditions(self.recording, sizes)
        self.mode_reads = ModeReads(model, lambda: where(self.recording.frames()))
        self._sizes = sizes
        self._model = model
        self._leaves = leaves
        self._whole = whole
        self._paths = {module: path for path, module in model.named_modules()}
        self._buffers = dict(model.named_buffers())
        self._attributes = attributes_of(model)
        self._module_call = nn.Module.__call__
        self._vmap: Callable[..., Any] = vars(apis)["vmap_impl"]
        self._one_thread = one_thread
        self._made = made
        self._real = real
        self._paused = False
        self._autocast = autocast_state()
        self._attention_backends = attention_backends()
        self._copied_settings: dict[int, Any] = {}
        self._reads_dtypes = False

    def record(
        self, arguments: tuple[Argument, ...], values: Mapping[str, Any], *, gradients: bool = True
    ) -> Any:
        """Run the model once, make the graph, and return what the model returned.

        Parameters
        ----------
        arguments
            The inputs, which become placeholders.
        values
            What to run on: name of the argument -> its value, with fake or real tensors.
        gradients
            Whether to run with gradients.
        """
        self._make_placeholders(arguments, values)
        self.recording.outside = sys._getframe()
        inputs = inputs_of(arguments, values)
        autocast = AutocastUse()
        watched = autocast.watched(), self.mode_reads.watched(), self._calls_seen()
        run = torch.inference_mode(False), torch.set_grad_enabled(gradients), *watched, self
        with RestoringStack(*run, self._sizes.asked(by_model=True)):
            try:
                output = self._model(**inputs) if isinstance(inputs, dict) else self._model(*inputs)
            finally:
                self._one_thread.require()
        with torch.enable_grad():
            self._write_replaced_buffers()
        for name in changed_attributes(self._attributes, self._model):
            self.recording.note("attribute", name, "is changed when the model runs, not when the graph does")
        self.conditions.hold_decisions()
        self.conditions.require_unwritten()
        graph = self.recording.graph
        graph.output(output_argument(output, graph, self.recording.node_of_output))
        if autocast.depends:
            self.conditions.require_autocast(self._autocast)
        if self._reads_dtypes:
            self.conditions.require_dtypes()
        self.recording.remove_unused()
        return output

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if self._paused:
            return self._computed(func, args, kwargs or {})
        # Torch itself asks all kinds of things of each tensor that it makes a fake one of.
        is_of_torch = is_asked_by_fakes(sys._getframe(1))
        with self._sizes.asked(by_model=False):
            return self._called(func, args, kwargs or {}, is_told=not is_of_torch)

    def _called(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, *, is_told: bool) -> Any:
        """Make a call that the model makes, and record it.

        Parameters
        ----------
        func, args, kwargs
            The call.
        is_told
            Whether the model hears what comes of it, and not torch's fake tensors.
        """
        self._one_thread.require()
        if func is torch.Tensor.__iter__:
            with self:
                return iter(args[0].unbind(0))
        if func is torch.ops.aten.lift_fresh.default:
            self._made.allow(args)  # torch shows a tensor that it has made of Python's numbers
        name = name_of(func)
        if isinstance(func, torch._ops.HigherOrderOperator):
            raise _hidden(f"torch's operator {func.__name__}, which is given functions")
        if name == "backward":
            raise TraceError(
                "The model calls backward(), which leaves gradients in tensors, where a graph cannot read "
                "them. torch.autograd.grad, which returns them, can be recorded."
            )
        if name in DATA_READS and (known := self._read_of_state(func, args, kwargs)) is not None:
            return known[0]
        if name in NUMBER_OF and isinstance(args[0], FakeTensor):
            with self._sizes.asked(by_model=True):
                return as_python_number(NUMBER_OF[name], self._number_in(args[0]))
        if name in MEMORY_READS and isinstance(args[0], FakeTensor):
            raise TraceError(f"The model reads memory ({name}), which only real inputs have")
        if name == "data_ptr":
            self.recording.note("branch on data", name, "an address is read, which the graph does not check")
        if func in _OF_NUMPY and isinstance(args[0], np.ndarray):
            return self._copy_of_constant(func, args, kwargs)
        if (whole := self._uncounted(func, args, kwargs)) is not None:
            return whole
        args, kwargs = all_read((args, dict(kwargs)))
        args = with_numbers_for_sizes(name, args, self._number_in)
        parted = expression_of(size_that_is_parted(name, args, kwargs))
        versions = _versions(args, kwargs)
        by_shapes = None if self._real is None else self._real.by_shapes(func, args, kwargs)
        asked = self._sizes.progress()
        result = self._computed(func, args, kwargs)
        written = writes(name, kwargs) or versions != _versions(args, kwargs)
        if name in DATA_READS and not isinstance(result, SymbolicNumber | torch.Tensor):
            self.conditions.hold_read(func, args, kwargs, result)
        if is_told:
            self._note_told(func, args, kwargs, result)
        call = as_call(func, args, kwargs)
        if not written and not _gives_new_values(result, self.recording.symbols):
            is_held = self._sizes.hold_since(asked)
            if result is None and is_told and not is_held and call.target is not getattr:
                self._record_requirement(call)
            if self._real is not None and call.target is not getattr and name not in TELL_NO_DATA:
                self.conditions.hold_told(func, args, kwargs, result, by_shapes)
            return result
        if name in LEAF_MAKERS:
            return self._recorded(call, result, False, True)
        result = result if written else _distinct(result, (args, kwargs))
        result = self._recorded(call, result, written)
        if self._real is not None:
            self.conditions.hold_given(name, result, by_shapes)
        elif not parted.is_number or type(result) is list:
            self.conditions.hold_count(name, result)
        if name in DROP_DIMENSIONS:
            self._sizes.hold_since(asked)
        return result

    def _record_requirement(self, call: Call) -> None:
        """Record a call that gives nothing, which is made for what it does: it may raise, for one thing."""
        if _has_nodes(self.recording.argument((call.args, dict(call.kwargs)))):
            self._recorded(call, None, False, impure=True)

    def _note_told(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """Note what the model's Python is told of tensors, besides their numbers."""
        name = name_of(func)
        if _tells_a_dtype(func, result) and not self._reads_dtypes:
            self._reads_dtypes = not all(self.recording.is_state(t) for _, t in tensors_inside(args))
        if name in LAYOUT_READS and not self.recording.is_state(args[0]):
            self.conditions.hold_layout(func, args, kwargs, result)
        if name in TEXT_READS and self._real is None:
            self.recording.note("branch on data", name, "a text of a tensor, which the graph does not check")
        if func in GRADIENT_READS:
            held = f"the graph holds for {str(result)[:60]}, and does not check it"
            self.recording.note("gradient", GRADIENT_READS[func], held)

    def _uncounted(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Record a call that gives or takes a list whose items nothing has counted."""

        def count(size: Any) -> bool:
            if not self._paused:
                with self._sizes.asked(by_model=True):
                    as_python_number(int, size)
            return not self._paused

        with self._unseen():
            result = uncounted_result(name_of(func), args, kwargs, count)
        if result is None:
            return None
        call = as_call(func, args, kwargs)
        items = items_of(result) if isinstance(result, Uncounted) else result
        self._recorded(call, items, False)
        if isinstance(result, Uncounted):
            result.node = self.recording.latest
        return result

    def _copy_of_constant(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Make a tensor of an array of numpy, which what is not a tensor can only have given."""
        with self._unseen(), unset_fake_temporarily():
            constant = self.recording.constant_node(func(*args, **kwargs).clone())
        result = func(*args, **kwargs)
        return self._recorded(Call("call_method", "clone", (constant,), {}), result, False)

    def _computed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func in (torch.tensor, torch.as_tensor) and _has_symbolic_number(args):
            return _tensor_of(args[0], kwargs.get("dtype"))
        # An interrupt that comes while code in C asks Python about symbolic sizes may abort the process.
        with InterruptsHeld():
            with self._unseen():
                result = fake_result(func, args, kwargs)
            return func(*args, **kwargs) if result is None else result

    def _number_in(self, tensor: torch.Tensor) -> Any:
        """Take the number out of a tensor, which is a symbol if that is a fake one."""
        with self:
            return tensor.item()

    def _read_of_state(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """Read numbers out of a parameter or buffer, whose data is at hand while inputs are fake."""
        tensors = [tensor for _, tensor in tensors_inside((args, dict(kwargs)))]
        state = self.recording.state_behind(tensors)
        if state is None or any(tensor.is_meta for _, tensor in state):
            return None
        originals = {id(fake): original for fake, (_, original) in zip(tensors, state, strict=True)}
        with unset_fake_temporarily():
            value = func(*map_tensors(lambda _, tensor: originals[id(tensor)], args), **kwargs)
        names = ", ".join(name for name, _ in state)
        self.recording.note("constant", names, f"its value is held fixed: {value!r:.60}")
        return (value,)

    def _call_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = self._paths.get(module)
        if path is None or self._paused or not self._one_thread.is_here():
            return self._module_call(module, *args, **kwargs)
        self.recording.scopes.append((path, type(module)))
        try:
            is_plain = not self.recording.bodies and autocast_state() == self._autocast
            is_leaf = is_plain and self._leaves.is_leaf(module, path) and not self.mode_reads.is_set(module)
            if is_leaf and self._can_be_arguments(module, path, (args, kwargs)):
                call = Call("call_module", path, args, kwargs)
                is_impure = vars(module).get("training") is not False
                is_of_torch = type(module).__module__.startswith("torch.nn.")
                return self._call_whole(
                    call, lambda: self._run_leaf(module, args, kwargs), is_impure, is_of_torch
                )
            if path and is_plain and self._whole is not None and type(module) in self._whole.reasons:
                call = Call("call_module", path, args, kwargs)
                with self.mode_reads.ignored():
                    return self._call_part(
                        type(module), lambda *a, **k: self._module_call(module, *a, **k), call, module
                    )
            if module._backward_hooks or module._backward_pre_hooks:
                what = path or "the model"
                self.recording.note("gradient", what, "its backward hooks are not in the graph")
            return self._module_call(module, *args, **kwargs)
        finally:
            self.recording.scopes.pop()

    def _run_leaf(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.mode_reads.ignored():
            if is_recurrent_on_fakes(module, args):
                return recurrent_results(module, *args, **kwargs)
            result = transformer_result(module, args, kwargs)
            return self._module_call(module, *args, **kwargs) if result is None else result

    def _can_be_arguments(self, module: nn.Module, path: str, values: Any) -> bool:
        """Tell whether a leaf can be called from a graph; one that the caller named must be."""
        try:
            self.recording.argument(values)
        except TraceError:
            if self._leaves.is_named(module, path):
                raise
            return False
        return True

    def _call_autograd_function(
        self, function: type[Function], apply: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        if self._paused or not self._one_thread.is_here():
            return apply(*args, **kwargs)
        if function is CheckpointFunction and any(t.requires_grad for _, t in tensors_inside(args[2:])):
            # It runs without gradient what it runs again in its backward, for the gradient of just that.
            return args[0](*args[2:])
        try:
            self.recording.argument((args, kwargs))
        except TraceError:
            self.recording.note("gradient", function.__name__, "its own backward is not in the graph")
            return apply(*args, **kwargs)
        call = Call("call_function", AutogradFunction(function), args, kwargs)
        return self._call_whole(call, lambda: apply(*args, **kwargs), False)

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
        if self._paused or not self._one_thread.is_here():
            return vmap(function, in_dims, out_dims, randomness, chunk, *args, **kwargs)
        body = VmapBody(function, in_dims, args)
        self.recording.bodies.append(body)
        try:
            recorded = body.run(self.recording.nodes.__setitem__, self.recording.node_of_output)
            with self._unseen():  # what torch does around the function
                result = vmap(self._seen(recorded), in_dims, out_dims, randomness, None, *args, **kwargs)
        finally:
            self.recording.bodies.pop()
        call = Call("call_function", body.target(out_dims, randomness), tuple(body.given), {})
        return self._recorded(call, result, False)

    def _call_whole(self, call: Call, run: Callable[[], Any], impure: bool, is_of_torch: bool = False) -> Any:
        """Run something without recording what it calls, as one node.

        What modules of torch give is of the shape that follows from their inputs.
        """
        versions = _versions(call.args, call.kwargs)
        with self._unseen():
            result = run()
        written = versions != _versions(call.args, call.kwargs)
        result = result if written else _distinct(result, (call.args, dict(call.kwargs)))
        result = self._recorded(call, result, written, impure)
        if self._real is not None and not is_of_torch:
            self.conditions.hold_given(name_of(call.target), result, Unknown())
        return result

    def _call_function(
        self,
        function: FunctionType,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._paused or self.recording.bodies or not self._one_thread.is_here():
            return original(*args, **kwargs)
        if is_method(function):
            module, *others = args
            target = method_of(module, function.__name__, self._copied_settings)
            call = Call("call_function", target, tuple(others), kwargs)
            with self.mode_reads.standing_for(module):
                return self._call_part(function, target, call)
        return self._call_part(function, original, Call("call_function", function, args, kwargs))

    def _call_part(
        self, part: Part, run: Callable[..., Any], call: Call, module: nn.Module | None = None
    ) -> Any:
        """Record a call of a part that stays whole, and make the graph check what it gives."""
        assert self._whole is not None
        try:
            self.recording.argument((call.args, dict(call.kwargs)))
        except TraceError as error:
            raise CannotBeWholeError(part, str(error)) from error
        known = frozenset(self.recording.symbols)
        with self._unseen():
            result, written = self._whole.run(part, run, call.args, call.kwargs, module)
            result = self._recorded(call, result, written, module is not None and vars(module)["training"])
            self.conditions.hold_result(part.__name__, result, known)
        reason = self._whole.reasons[part]
        what = part.__name__ if module is None else f"{self.recording.scopes[-1][0]} ({part.__name__})"
        self.recording.findings.append(Finding("kept whole", what, f"it {reason.what}", reason.where))
        return result

    def _recorded(self, call: Call, result: Any, written: bool, impure: bool = False) -> Any:
        chosen = attention_backends()
        if call.target is scaled_dot_product_attention and chosen != self._attention_backends:
            call = Call(call.op, WithAttentionBackends(call.target, chosen), call.args, call.kwargs)
        if (state := autocast_state()) != self._autocast and call.op != "call_module":
            call = Call("call_function", UnderAutocast(call.target, state), call.args, call.kwargs)
        self.conditions.hold_decisions()
        if self._real is not None:
            result = self._real.watch(result)
        result = self.recording.add(call, result, written, impure)
        self._after_call()
        return result

    def _make_placeholders(self, arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> None:
        # Only parameters at the end of a signature can have a default.
        ordered = sorted(arguments, key=lambda a: a.by_keyword and len(a.placeholder_default))
        last = max((i for i, a in enumerate(ordered) if not a.placeholder_default), default=-1)
        made: list[tuple[Node, Argument]] = []
        for index, argument in enumerate(ordered):
            default = argument.placeholder_default if index > last else ()
            node = self.recording.graph.create_node("placeholder", argument.name, default)
            self.recording.bind_input(values[argument.name], node)
            made.append((node, argument))
        for node, argument in made:
            self.conditions.require_structure(node, argument.name, argument.value)

    @contextmanager
    def _unseen(self, paused: bool = True) -> Iterator[None]:
        before = self._paused
        self._paused = self._one_thread.is_paused = paused
        try:
            with self._sizes.asked(by_model=not paused):
                yield
        finally:
            self._paused = self._one_thread.is_paused = before

    def _seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._unseen(False):
                return function(*args, **kwargs)

        return call

    @contextmanager
    def _calls_seen(self) -> Iterator[None]:
        """Let calls of modules and of autograd's functions, which torch hides from modes, be seen."""
        apply, from_numpy = vars(Function)["apply"], torch.from_numpy

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self._call_module(module, args, kwargs)

        def call_function(function: type[Function], *args: Any, **kwargs: Any) -> Any:
            # A classmethod of Python or, from torch 2.15 on, one of C.
            return self._call_autograd_function(function, apply.__get__(None, function), args, kwargs)

        def from_array(ndarray: Any) -> torch.Tensor:
            is_seen = self._one_thread.is_here() and isinstance(ndarray, np.ndarray)
            return torch.as_tensor(ndarray) if is_seen else from_numpy(ndarray)

        nesting = {name: vars(eager_transforms)[name] for name in _DERIVATIVES}

        def nested(name: str) -> Any:
            if self._paused or not self._one_thread.is_here():
                return nesting[name]()
            raise _hidden("a derivative of torch.func (grad, vjp, jvp, jacrev, jacfwd, hessian)")

        tolist = FakeTensor.tolist

        def call_tolist(tensor: FakeTensor) -> Any:
            # Torch goes through the numbers, and shows the calls of that only.
            is_seen = not (self._paused or self.recording.bodies) and self._one_thread.is_here()
            result = self._uncounted(torch.Tensor.tolist, (tensor,), {}) if is_seen else None
            return tolist(tensor) if result is None else result

        try:
            torch.from_numpy = from_array
            vars(eager_transforms).update({name: partial(nested, name) for name in nesting})
            FakeTensor.tolist = call_tolist  # type: ignore[method-assign, assignment]
            nn.Module.__call__ = call  # type: ignore[method-assign]
            Function.apply = classmethod(call_function)  # type: ignore[method-assign, assignment]
            vars(apis)["vmap_impl"] = self._call_vmap
            with nullcontext() if self._whole is None else self._whole.calls_seen(self._call_function):
                yield
        finally:
            torch.from_numpy = from_numpy
            vars(eager_transforms).update(nesting)
            FakeTensor.tolist = tolist  # type: ignore[method-assign]
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
                self.recording.note(
                    "state", name, "the model replaces it by another shape or dtype, the graph does not"
                )
                continue
            value = self.recording.detached(self.recording.node_of(now))
            node = self.recording.graph.call_method("copy_", (self.recording.node_of(before), value))
            self.recording.describe(node, before)
            self.recording.impure.add(node)


def _hidden(what: str) -> TraceError:
    return TraceError(
        f"The model uses {what}. Torch hides what is computed inside, so it cannot be recorded. Name the "
        "module that does this in leaf_modules."
    )


def _versions(args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    tensors = (tensor for _, tensor in tensors_inside((args, dict(kwargs))))
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    same_storage = storage_of(a) == storage_of(b)
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


def _tells_a_dtype(func: Callable[..., Any], result: Any) -> bool:
    name = name_of(func)
    is_type = name == "type" and isinstance(result, str)  # with an argument it is a cast
    return isinstance(result, torch.dtype) or is_type or not DTYPE_READS.isdisjoint((func, name))


def _has_nodes(argument: Any) -> bool:
    return any(isinstance(leaf, Node) for leaf in tree_leaves(argument))


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
    return torch.ops.aten.alias(result) if is_one_of(result, inputs) else result
