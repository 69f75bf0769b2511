"""One run of a model that is being recorded: its state, and how a call becomes a node."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from fxlab.base.interrupts import InterruptsHeld
from fxlab.models.running.autocast import UnderAutocast, autocast_state
from fxlab.models.state.settings import function_modes_hidden
from fxlab.tracing.leaf_modules import LeafModules
from fxlab.tracing.model_code.created_tensors import TensorsMade
from fxlab.tracing.model_code.mode_reads import ModeReads
from fxlab.tracing.model_code.model_files import files_of
from fxlab.tracing.model_code.setting_reads import OutsideReads, SettingReads
from fxlab.tracing.model_code.source_lines import where
from fxlab.tracing.model_code.threads import OneThread
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.recording.autocast_regions import WithAttentionBackends, attention_backends
from fxlab.tracing.recording.graph_builder import MOST_OPERATIONS, RecordedNodes, Recording, is_one_of
from fxlab.tracing.recording.guards import Conditions
from fxlab.tracing.recording.opaque.opaque_calls import WholeParts
from fxlab.tracing.recording.raised_errors import RaisedErrors
from fxlab.tracing.recording.real_tensors import RealTensors, Unknown
from fxlab.tracing.recording.torch_calls import Call, name_of
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import Originals, data_of, has_data
from fxlab.tracing.shapes.kernels.fake_kernels import fake_result
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import storage_of


class StateWrittenError(Exception):
    """The model writes a parameter or buffer from which its Python has read a number.

    ``names``: those of the parameters and buffers.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


class RecordingState:
    """The state of a run while a model is recorded, which the handlers of its calls share.

    ``twin``: runs in place of the module to record, whose parameters and buffers become ``get_attr`` nodes.
    ``leaves``: which modules are one ``call_module`` node each. ``fakes``: the inputs on fake tensors, and
    the symbols of their sizes. ``made``: the tensors that were made during the run, none of which can be a
    constant. ``one_thread``: notices the model's work in other threads. ``real``: the real tensors that the
    model runs on, if these are no fake ones. ``whole``: the parts of the model that are called as they are.
    ``most_operations``: how complicated a size may be. ``expected``: the calls of another run, if this one
    ends as soon as it records a different one. ``data_state``: the parameters and buffers that the model is
    known to write, so that numbers read from them are data.

    Attributes
    ----------
    model : torch.nn.Module
        The twin's module, which runs.
    recording : Recording
        The recorded graph, and its state.
    conditions : Conditions
        Adds the checks of the graph to it.
    errors : RaisedErrors
        Notices the errors that the model may have caught.
    sizes : ModelSizes
        Knows the model's questions about sizes.
    mode_reads : ModeReads
        Where the model has read its mode.
    setting_reads : SettingReads
        Where it has read settings of torch.
    outside_reads : OutsideReads
        Where it has read environment variables, and the clock.
    mode : TorchFunctionMode
        The recorder, to be entered by a handler that answers a call by another one.
    gradients : bool
        Whether the model runs with gradients.
    is_paused : bool
        Whether something is running that is one node, or none.
    dtypes_read : set of bool
        Of which tensors the model has asked for the dtype: floating-point or complex ones, others.
    reads_shapes : bool
        Whether the model has asked for the shape of a tensor, or for something of it.
    data_state : frozenset of str
        The parameters and buffers that the model is known to write.
    opens_hooked : bool
        Whether modules with forward hooks are gone into, so that the calls of their hooks are seen.
    """

    mode: TorchFunctionMode
    gradients: bool

    def __init__(
        self,
        twin: Twin,
        leaves: LeafModules,
        fakes: FakeInputs,
        made: TensorsMade,
        one_thread: OneThread,
        *,
        real: RealTensors | None = None,
        whole: WholeParts | None = None,
        most_operations: int = MOST_OPERATIONS,
        expected: RecordedNodes | None = None,
        data_state: frozenset[str] = frozenset(),
        opens_hooked: bool = False,
    ) -> None:
        self.twin, self.model = twin, twin.model
        self.opens_hooked = opens_hooked
        self.data_state = data_state
        self._held_state: dict[str, torch.Tensor] = {}
        self._versions = {id(tensor): _with_data(tensor) for tensor in self._state()}
        self._written: set[int] = set()
        self.leaves = leaves
        self.fakes = fakes
        self.made = made
        self.one_thread = one_thread
        self.real = real
        self.whole = whole
        self.sizes = fakes.shape_env
        self.recording = Recording(
            self.model, fakes.as_fake, Originals(twin), made, most_operations, expected
        )
        self.conditions = Conditions(self.recording, self.sizes)
        self.errors = RaisedErrors(self.conditions.hold_error, on_fakes=real is None)
        self.mode_reads = ModeReads(self.model, lambda: where(self.recording.frames()))
        self.setting_reads = SettingReads(self.model, self.is_seen)
        self.outside_reads = OutsideReads(files_of(self.model), self.is_seen)
        self.is_paused = False
        self.dtypes_read: set[bool] = set()
        self.reads_shapes = False
        self.autocast = autocast_state()
        self._attention_backends = attention_backends()

    def nodes(self) -> RecordedNodes:
        """Return the recorded nodes, with the branches taken on sizes and the findings and constants."""
        recording, fakes = self.recording, self.fakes
        limits = (f for f in recording.findings if f.kind not in ("constant", "kept whole"))
        return recording.nodes_by_name() | {
            "branches": {str(condition) for condition, _ in fakes.branches},
            "sizes": tuple(str(fakes.expression(size)) for size in fakes.given),
            "findings": tuple((finding.kind, finding.what, finding.detail) for finding in limits),
            "constants": tuple(map(id, (*recording.constants.values(), *recording.branches.values()))),
        }

    def end(self) -> list[weakref.ref[torch.Tensor]]:
        """Release the twin; return the recorded tensors, none of which may stay alive."""
        del self.twin, self.model
        self.mode_reads.end()
        self.errors.end()
        self.whole = None
        self.fakes.values = {}
        return self.recording.end()

    # Parameters and buffers.

    def is_held(self, name: str, tensor: torch.Tensor) -> bool:
        """Tell whether a number that Python reads from a parameter or buffer stays the same in each run."""
        if name in self.data_state or self._is_written(tensor):
            return False
        self._held_state[name] = tensor
        return True

    def require_held_unwritten(self) -> None:
        """Raise if the model has written a parameter or buffer after a number was read from it."""
        now = set(map(id, self._state()))
        held = self._held_state.items()
        if names := frozenset(n for n, tensor in held if id(tensor) not in now or self._is_written(tensor)):
            raise StateWrittenError(names)

    def _state(self) -> Iterator[torch.Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()

    def _is_written(self, tensor: torch.Tensor) -> bool:
        return _with_data(tensor) != self._versions.get(id(tensor)) or _memory_of(tensor) in self._written

    def notice_writes(
        self, before: list[int], args: Any, kwargs: Mapping[str, Any], known: Sequence[Any] = ()
    ) -> bool:
        """Tell whether a call has written into its arguments, whose versions before it are given.

        A tensor in the memory of a parameter may have a version of its own, as ``.data`` has. ``known``: the
        arguments that the call is known to write, whether or not a version tells.
        """
        tensors = [tensor for _, tensor in tensors_inside((args, dict(kwargs)))]
        written = [t for t, version in zip(tensors, before, strict=True) if version_of(t) != version]
        written += [tensor for _, tensor in tensors_inside(list(known))]
        self._written.update(map(_memory_of, written))
        return bool(written)

    # Which calls are seen.

    def is_seen(self) -> bool:
        """Tell whether a call that is made now is the model's, and to be recorded."""
        return not self.is_paused and self.one_thread.is_here()

    def overrides_hidden(self) -> AbstractContextManager[None]:
        """Hide the recording from the model's Python."""
        return function_modes_hidden(*(() if self.real is None else (self.real.tensor_class,)))

    @contextmanager
    def unseen(self, paused: bool = True) -> Iterator[None]:
        """Record nothing for a while, or everything again."""
        before = self.is_paused
        self.is_paused = self.one_thread.is_paused = paused
        try:
            with self.sizes.asked(by_model=not paused):
                yield
        finally:
            self.is_paused = self.one_thread.is_paused = before

    def seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are recorded, even if its caller is not."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.unseen(False):
                return function(*args, **kwargs)

        return call

    # Calls.

    def computed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make a call of torch, without recording the calls inside it."""
        if func in (torch.tensor, torch.as_tensor, torch.asarray) and args and _has_symbol(args[0]):
            return _tensor_of(args[0], kwargs, device=torch.get_default_device())
        if func is torch.Tensor.new_tensor and len(args) == 2 and _has_symbol(args[1]):
            return _tensor_of(args[1], kwargs, dtype=args[0].dtype, device=args[0].device)

        # An interrupt that comes while code in C asks Python about symbolic sizes may abort the process.
        with InterruptsHeld():
            with self.unseen():
                result = fake_result(func, args, kwargs)
            return func(*args, **kwargs) if result is None else result

    def number_in(self, tensor: torch.Tensor) -> Any:
        """Take the number out of a tensor, which is a symbol if that is a fake one."""
        with self.mode:
            return tensor.item()

    def recorded(self, call: Call, result: Any, written: bool, impure: bool = False) -> Any:
        """Make a node of a call that was made, and return the model's result of it."""
        chosen = attention_backends()
        if call.target is scaled_dot_product_attention and chosen != self._attention_backends:
            call = Call(call.op, WithAttentionBackends(call.target, chosen), call.args, call.kwargs)
        if (state := autocast_state()) != self.autocast and call.op != "call_module":
            # The graph runs outside the model's region of autocast, so the node enters it itself.
            call = Call("call_function", UnderAutocast(call.target, state), call.args, call.kwargs)
        self.conditions.hold_decisions()
        if self.real is not None:
            result = self.real.watch(result)
        with self.unseen():
            result = self.recording.add(call, result, written, impure)
        self.fakes.after_call()
        return result

    def distinct(self, result: Any, inputs: Any) -> Any:
        """Return a tensor that is not one of the inputs, so that each node's result is its own."""
        if not is_one_of(result, inputs):
            return result
        with self.unseen():
            if result.layout is not torch.strided:
                return result
            return torch.ops.aten.alias(result)

    def recorded_whole(
        self, call: Call, run: Callable[[], Any], impure: bool, is_of_torch: bool = False
    ) -> Any:
        """Run something as one node, without recording the calls inside it.

        Results of torch's modules have the shapes that follow from their inputs.
        """
        with self.unseen():
            versions = versions_of(call.args, call.kwargs)
            try:
                result = run()
            except Exception as error:
                self.errors.notice(call, name_of(call.target) or str(call.target), error)
                raise
            written = self.notice_writes(versions, call.args, call.kwargs)
        result = result if written else self.distinct(result, (call.args, dict(call.kwargs)))
        result = self.recorded(call, result, written, impure)
        if self.real is not None and not is_of_torch:
            self.conditions.hold_given(name_of(call.target), result, Unknown())
        return result


def versions_of(args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    """Return how often each tensor among the arguments of a call has been written."""
    return [version_of(tensor) for _, tensor in tensors_inside((args, dict(kwargs)))]


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor has been written; 0 for one of ``inference_mode``, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _with_data(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the versions of a tensor, and of the data that a part kept whole may have written."""
    return version_of(tensor), version_of(data_of(tensor)) if has_data(tensor) else 0


def _memory_of(tensor: torch.Tensor) -> int:
    try:
        return storage_of(tensor)
    except NotImplementedError:  # a sparse tensor, or one inside torch.vmap
        return id(tensor)


def _has_symbol(value: Any) -> bool:
    """Tell whether a value is a symbolic number, or a list with one or with a fake tensor of one number."""
    if isinstance(value, list | tuple):
        return any(_has_symbol(item) or (isinstance(item, FakeTensor) and item.dim() == 0) for item in value)
    return isinstance(value, SymbolicNumber)


def _tensor_of(data: Any, given: Mapping[str, Any], **defaults: Any) -> torch.Tensor:
    """Do as ``torch.tensor``, which fixes symbolic numbers and cannot read those of fake tensors."""
    options = defaults | {name: value for name, value in given.items() if value is not None}
    return _stacked(data, options.get("dtype")).detach().to(options["device"])


def _stacked(data: Any, dtype: torch.dtype | None) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_stacked(item, dtype) for item in data])
    if isinstance(data, torch.Tensor):
        return data if dtype is None else data.to(dtype)
    kind = torch.int64 if isinstance(data, int | torch.SymInt) else torch.get_default_dtype()
    return torch.scalar_tensor(data, dtype=dtype or kind)
