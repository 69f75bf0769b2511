"""One run of a model that is being recorded: its state, and how a call becomes a node."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from fxlab.base.exchanged import cached_property
from fxlab.base.interrupts import InterruptsHeld
from fxlab.models.running.autocast import UnderAutocast, autocast_state
from fxlab.models.state.settings import function_modes_hidden
from fxlab.tracing.bound_inputs import Size
from fxlab.tracing.model_code.given_model import LeafModules
from fxlab.tracing.model_code.mode_reads import ModeReads
from fxlab.tracing.model_code.model_files import files_of
from fxlab.tracing.model_code.running_code import Part, Reason, where
from fxlab.tracing.model_code.setting_reads import OutsideReads, SettingReads
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.model_code.unseen_work import OneThread, TensorsMade
from fxlab.tracing.recording.autocast_regions import WithAttentionBackends, attention_backends
from fxlab.tracing.recording.graph_builder import MOST_OPERATIONS, RecordedNodes, Recording, is_one_of
from fxlab.tracing.recording.guards import Conditions
from fxlab.tracing.recording.opaque_calls import WholeParts
from fxlab.tracing.recording.real_tensors import RealTensors, Unknown
from fxlab.tracing.recording.shared_results import SharedResults
from fxlab.tracing.recording.torch_calls import Call, RaisedErrors, as_call, name_of
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_kernels import fake_result
from fxlab.tracing.shapes.fake_state import Originals, data_of, has_data
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import storage_of, version_of


class StateWrittenError(Exception):
    """The model writes a parameter or buffer from which its Python has read a number.

    ``names``: those of the parameters and buffers.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


@dataclass(frozen=True)
class TraceStrategy:
    """A way to record a model."""

    name: str
    dynamic: bool = True
    """Whether sizes are symbols."""
    with_data: bool = False
    """Whether data comes along with the fake tensors."""
    is_real: bool = False
    """Whether the model runs on its inputs themselves."""
    parts: Mapping[Part, Reason] | None = None
    """The parts of the model that stay whole, and why."""
    most_operations: int = MOST_OPERATIONS
    """How complicated a size may be."""
    stand_ins: Mapping[Size, int] = field(default_factory=dict)
    """The sizes to record on in place of given sizes of one."""
    hides_fakes: bool = False
    """Whether a model that asks for fake tensors is told that there are none."""
    own_storages: bool = False
    """Whether each fake tensor has a storage of its own, for a model that compares them."""
    keeps_ones: bool = True
    """Whether torch may decide that a given size of one is one."""
    follows_heights: bool = True
    """Whether the sizes of images and the like are followed, where that is not too costly."""
    data_state: frozenset[str] = frozenset()
    """Parameters and buffers that the model writes, so that numbers read from them are data."""
    opens_hooked: bool = False
    """Whether modules with forward hooks are gone into, for a model that uses tensors made in hooks."""
    gradients: bool = True
    """Whether to run it with gradients."""
    training: bool | None = None
    """The mode to put it in, if that is another one."""
    expected: RecordedNodes | None = None
    """The calls of another run, if this one ends as soon as it records a different one."""
    on_failure: Callable[[RecordingState, Exception], None] | None = None
    """Called with the state of the run, and the error, if the model raises."""

    @property
    def computes(self) -> bool:
        """Whether the model's data is computed with, which there must be then."""
        return self.with_data or self.is_real


class RecordingState:
    """The state of a run while a model is recorded, which the handlers of its calls share.

    ``twin``: runs in place of the module to record, whose parameters and buffers become ``get_attr`` nodes.
    ``leaves``: which modules are one ``call_module`` node each. ``fakes``: the inputs on fake tensors, and
    the symbols of their sizes. ``made``: the tensors that were made during the run, none of which can be a
    constant. ``one_thread``: notices the model's work in other threads. ``rung``: the way to record it.
    ``real``: the real tensors that the model runs on, if these are no fake ones.

    ``model``: the twin's module, which runs. ``recording``: the recorded graph, and its state.
    ``conditions``: adds the checks of the graph to it. ``errors``: notices the errors that the model may have
    caught. ``sizes``: knows the model's questions about sizes. ``mode_reads``: where the model has read its
    mode. ``setting_reads``: where it has read settings of torch. ``outside_reads``: where it has read
    environment variables, and the clock. ``mode``: the recorder, to be entered by a handler that answers a
    call by another one. ``is_paused``: whether something is running that is one node, or none.
    ``dtypes_read``: of which tensors the model has asked for the dtype: floating-point or complex ones,
    others. ``reads_shapes``: whether the model has asked for the shape of a tensor, or for something of it.
    ``failed``: the last error that has left a module, and the paths and classes of the modules around it.
    """

    mode: TorchFunctionMode

    def __init__(
        self,
        twin: Twin,
        leaves: LeafModules,
        fakes: FakeInputs,
        made: TensorsMade,
        one_thread: OneThread,
        rung: TraceStrategy,
        real: RealTensors | None = None,
    ) -> None:
        self.twin, self.model, self.rung = twin, twin.model, rung
        self.failed: tuple[Exception, list[tuple[str, type[Any]]]] | None = None
        self._held_state: dict[str, torch.Tensor] = {}
        self._versions = {id(tensor): _with_data(tensor) for tensor in self._state()}
        self._written: set[int] = set()
        self.leaves, self.fakes, self.made, self.one_thread, self.real = leaves, fakes, made, one_thread, real
        self.whole = None if rung.parts is None else WholeParts(rung.parts, fakes)
        self.sizes = fakes.shape_env
        self._shared = SharedResults(fakes.mode, self.sizes)
        self.recording = Recording(
            self.model, fakes.as_fake, Originals(twin), made, rung.most_operations, rung.expected
        )
        self.conditions = Conditions(self.recording, self.sizes)
        # The graph of a run that is to fail is only looked at.
        hold = self.conditions.hold_error if rung.on_failure is None else lambda *_: None
        self.errors = RaisedErrors(hold, on_fakes=real is None)
        self.mode_reads = ModeReads(self.recording.paths, lambda: where(self.recording.frames()))
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
        self.whole = self.failed = None
        self.fakes.values = {}
        self._shared.known.clear()
        return self.recording.end()

    # Parameters and buffers.

    def is_held(self, name: str, tensor: torch.Tensor) -> bool:
        """Tell whether a number that Python reads from a parameter or buffer stays the same in each run."""
        if name in self.rung.data_state or self._is_written(tensor):
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

    def notice_writes(self, before: Versions, known: Sequence[Any] = ()) -> bool:
        """Tell whether a call has written into its tensors, whose versions before it are given.

        A tensor in the memory of a parameter may have a version of its own, as ``.data`` has. ``known``: the
        arguments that the call is known to write, whether or not a version tells.
        """
        now = versions_of(tensor for tensor, _ in before)
        written = [tensor for (tensor, version), (_, old) in zip(now, before, strict=True) if version != old]
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
                call = None if self.recording.bodies else self._shared.find(func, args, kwargs)
                if call is not None and call.result is not None:
                    return call.result
                result = fake_result(func, args, kwargs)
            result = func(*args, **kwargs) if result is None else result
            if call is not None:
                call.keep(result)
            return result

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
            before = versions_of(t for _, t in tensors_inside((call.args, dict(call.kwargs))))
            try:
                result = run()
            except Exception as error:
                self.errors.notice(call, name_of(call.target) or str(call.target), error)
                raise
            written = self.notice_writes(before)
        result = result if written else self.distinct(result, (call.args, dict(call.kwargs)))
        result = self.recorded(call, result, written, impure)
        if self.real is not None and not is_of_torch:
            self.conditions.hold_given(name_of(call.target), result, Unknown())
        return result


Versions: TypeAlias = list[tuple[torch.Tensor, int]]
"""Tensors, and how often each has been written."""


def versions_of(tensors: Iterable[torch.Tensor]) -> Versions:
    """Return how often each tensor has been written."""
    with torch._C.DisableTorchFunction():
        return [(tensor, version_of(tensor)) for tensor in tensors]


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


class PassedOn:
    """The result of a handler that leaves a call to the next one."""


PASSED_ON = PassedOn()


@dataclass(frozen=True)
class TorchCall:
    """A call that torch shows to the recorder."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_told: bool = True
    """Whether the model receives the result, and not torch's fake tensors."""

    @cached_property
    def name(self) -> str:
        """The name that the call goes by."""
        return name_of(self.func)

    @cached_property
    def node(self) -> Call:
        """The call in the terms of ``torch.fx``."""
        return as_call(self.func, self.args, self.kwargs)

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among its arguments."""
        return [tensor for _, tensor in tensors_inside((self.args, dict(self.kwargs)))]


Handler: TypeAlias = Callable[[RecordingState, TorchCall], Any]
"""Returns the model's result of a call, or :data:`PASSED_ON`."""
