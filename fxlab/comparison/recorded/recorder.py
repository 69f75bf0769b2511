"""The modes by which ``record_run`` sees each operation and module call of a run, and its source lines."""

import linecache
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fxlab.base.author_frames import is_author_code
from fxlab.base.torch_private import FakeTensor, TorchDispatchMode, private_name
from fxlab.comparison.recorded.observation import (
    fingerprint_of,
    has_values,
    is_faked,
    is_unseen,
    key_of,
    local_part,
    undisturbed,
    wait_for,
    written_by,
)
from fxlab.comparison.recorded.recorded_run import (
    COMPILED,
    INPUT,
    OPERATOR,
    UNSEEN,
    WEIGHT,
    RecordedRun,
    Step,
    Value,
)
from fxlab.comparison.recorded.rounding import Rounding
from fxlab.models.state.model_state import ModelState, memory_of
from fxlab.models.state.tensor_state import named_tensors
from fxlab.operators.node_info import dtype_name
from fxlab.validation.alignment.fingerprint import fills_its_memory
from fxlab.values.nested import flatten_objects, tensors_inside

_number_of_operator: Callable[[], int] = private_name(
    "torch.autograd._get_sequence_nr", "operations of a backward pass have no module", lambda: 0
)
_derivative: Callable[[], Any] = private_name(
    "torch._C._current_autograd_node", "operations of a backward pass have no module", lambda: None
)
_MOST_FRAMES = 12
_MOST_TEXT = 200
_ENDS_SEEN = ": its inputs and outputs are recorded, and nothing in between"
_COMPILED_CODE = "torchinductor_"
_RECORDING = str(Path(__file__).with_name("record_run.py"))


@dataclass
class _Memory:
    """The tensors that lie in one storage, by their geometry: the step that computed each, and the time."""

    views: dict[tuple[Any, ...], tuple[int, int]] = field(default_factory=dict)
    latest: tuple[int, int] = (-1, -1)
    """The step that has written it last, and the time."""
    weight: int | None = None
    """The step of the weight that lies there."""
    whole: tuple[Any, ...] | None = None
    """The place of a tensor that fills it, if the second run has measured one; and how far that has moved."""
    moved: float | None = None


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes each operation of a run, in one thread and on its backward passes, into a :class:`RecordedRun`.

    ``modules``: those whose calls are noted. ``state``: saves parameters that are about to be written.
    ``first``: the same run, recorded before. Its results are rounded again, and differences noted in it.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Run compiled code without recording anything inside."""
        return True

    def __init__(
        self,
        run: RecordedRun,
        holders: Mapping[str, nn.Module],
        modules: Mapping[str, nn.Module],
        state: ModelState | None = None,
        first: RecordedRun | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run, self._modules, self._state, self._first = run, modules, state, first
        self._thread = threading.get_ident()
        self._call, self._inside_compiled, self._time = -1, 0, 0
        self._memory: dict[Any, _Memory] = {}
        self._weights: dict[Any, str] = {}
        self._lines: dict[tuple[Any, ...], int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """By the number of an operator that has a derivative, its call and lines."""
        self._node_place: tuple[int, int] | None = None
        self._is_astray = False
        self._rounding = Rounding()
        for prefix, module in holders.items():
            for name, tensor in named_tensors(module):
                if (key := key_of(local_part(tensor))) is not None:
                    self._weights.setdefault(key, f"{prefix}{name}".replace("_orig_mod.", ""))

    # Module calls

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note each call of a module, in this thread, until the block ends."""
        undo: list[Callable[[], None]] = []
        try:
            for prefix, module in self._modules.items():
                self._watch(module, prefix.rstrip("."), undo, set())
            with self:
                yield
        finally:
            for put_back in reversed(undo):
                put_back()

    def _watch(self, module: nn.Module, path: str, undo: list[Callable[[], None]], seen: set[int]) -> None:
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            return
        seen.add(id(module))
        # `module.compile()` leaves `forward` as it is, and calls this in its place.
        name = "forward" if module._compiled_call_impl is None else "_compiled_call_impl"
        is_compiled = name != "forward" or _is_compiled(module)
        held = vars(module)
        before, inner = held.get(name, _ABSENT), getattr(module, name)
        compiled = module if is_compiled else None
        held[name] = self._watched(inner, path, _class_of(getattr(module, "_orig_mod", module)), compiled)
        undo.append(lambda: held.pop(name, None) if before is _ABSENT else held.__setitem__(name, before))
        if not is_compiled:
            for child, inside in module.named_children():
                self._watch(inside, f"{path}.{child}" if path else child, undo, seen)

    def _watched(
        self, inner: Callable[..., Any], path: str, cls: str, compiled: nn.Module | None
    ) -> Callable[..., Any]:
        @wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or self._inside_compiled:
                return inner(*args, **kwargs)
            with self.calling(path, cls):
                if compiled is not None:
                    return self._call_compiled(inner, compiled, cls, args, kwargs)
                return inner(*args, **kwargs)

        return forward

    @contextmanager
    def calling(self, path: str, cls: str) -> Iterator[None]:
        """Attribute operations recorded in this block to a call of a module."""
        before = self._call
        self.run.calls.append((path, cls, before))
        self._call = len(self.run.calls) - 1
        try:
            yield
        finally:
            self._call = before

    @contextmanager
    def at(self, call: int, line: str) -> Iterator[None]:
        """Attribute operations recorded in this block to an existing call and its source line."""
        self._node_place = call, self._line_number((line,), lambda: line)
        try:
            yield
        finally:
            self._node_place = None

    def _call_compiled(
        self, inner: Callable[..., Any], module: nn.Module, cls: str, args: Any, kwargs: Any
    ) -> Any:
        with undisturbed():
            held = [self._described(tensor) for _, tensor in named_tensors(module)]
            step = self._new(COMPILED, cls, [*map(self._described, flatten_objects([*args, kwargs])), held])
        self._inside_compiled += 1
        try:
            result = inner(*args, **kwargs)
        finally:
            self._inside_compiled -= 1
        self._note(f"code inside of {self.run.calls[self._call][0] or cls} is compiled{_ENDS_SEEN}")
        with undisturbed():
            self._note_results(step, flatten_objects(result))
        return result

    def _note(self, words: str) -> None:
        if words not in self.run.notes:
            self.run.notes.append(words)

    # Operations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(each, FakeTensor) for each in types):
            return func(*args, **kwargs)
        if any(each not in _PLAIN for each in types):
            return NotImplemented  # the calls inside it come here by themselves
        derivative = _derivative()
        if self._inside_compiled or is_unseen(func) or "CompiledFunction" in _name_of(derivative):
            return func(*args, **kwargs)
        place = self._place(derivative)
        if place is None:
            self._note(f"a compiled function has run{_ENDS_SEEN}")
            return func(*args, **kwargs)
        with undisturbed():
            described = [self._described(each) for each in args]
            described += [[name, self._described(value)] for name, value in kwargs.items()]
            written = [*written_by(func, args, kwargs)]
            for tensor in written if self._state is not None else ():
                self._state.save(memory_of(tensor))  # type: ignore[union-attr]
        result = func(*args, **kwargs)
        if is_faked(result):
            return result
        with undisturbed():
            wait_for(func, result)
            if not written and self._is_view_of_weight(result):
                return result
            step = self._new(OPERATOR, str(func), described, place, derivative is not None)
            if self._first is not None:
                results = [tensor for _, tensor in tensors_inside(result)]
                self._rounding.round(func, results + written, args, kwargs)
            self._note_results(step, result, written, has_values=has_values(func))
        return result

    def given(self, name: str, tensor: torch.Tensor) -> None:
        """Note an input tensor of the run."""
        key = key_of(tensor)
        if key is not None and key not in self._weights and key[0] not in self._memory:
            with undisturbed():
                self._note_results(self._new(INPUT, name), tensor)

    def returned(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note the results of the run."""
        with undisturbed():
            for path, tensor in tensors.items():
                tensor = local_part(tensor)
                at = self._described(tensor).get("step", -1)
                if (private_name := fingerprint_of(tensor)) is not None:
                    self.run.outputs[path] = at, private_name

    def _new(
        self,
        kind: str,
        target: str,
        args: list[Any] | None = None,
        place: tuple[int, int] | None = None,
        is_backward: bool = False,
    ) -> int:
        call, line = (self._call, -1) if place is None else place
        self.run.steps.append(Step(kind, target, args or [], call, line, is_backward))
        return len(self.run.steps) - 1

    def _place(self, derivative: Any) -> tuple[int, int] | None:
        """Return the module call and the lines of the running code; ``None`` inside of compiled code."""
        if derivative is not None:
            # Autograd gives a backward function the number of its forward operator.
            return self._places.get(derivative._sequence_nr(), (-1, -1))
        place = self._node_place
        if place is None:
            line = self._line()
            if line is None:
                return None
            place = self._call, line
        self._places.setdefault(_number_of_operator() - 1, place)
        return place

    def _line(self) -> int | None:
        frames: list[tuple[Any, int]] = []
        frame: Any = sys._getframe(3)
        while frame is not None and len(frames) < _MOST_FRAMES:
            kind = _kind_of(frame.f_code.co_filename)
            if kind == "compiled":
                return None
            if kind == "recording":
                break
            if kind == "author":
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        return self._line_number(tuple(frames), lambda: _text_of(frames))

    def _line_number(self, key: tuple[Any, ...], text: Callable[[], str]) -> int:
        if key not in self._lines:
            self._lines[key] = len(self.run.lines)
            self.run.lines.append(text())
        return self._lines[key]

    # Values

    def _described(self, value: Any) -> Any:
        """Return an argument as plain values, with the steps that have computed its tensors."""
        if isinstance(value, torch.Tensor):
            return self._step_of(local_part(value))
        if isinstance(value, list | tuple):
            return [self._described(each) for each in value]
        if isinstance(value, Mapping):
            return [[str(name), self._described(each)] for name, each in value.items()]
        if isinstance(value, str):
            return value[:_MOST_TEXT]
        if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return {"text": str(value) if isinstance(value, _TOLD) else type(value).__name__}

    def _step_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        key = key_of(tensor)
        if key is None:
            return {"text": type(tensor).__name__}
        memory = self._memory.get(key[0])
        known = None if memory is None else memory.views.get(key[1])
        if known is not None and memory is not None and memory.latest[1] <= known[1]:
            return {"step": known[0]}
        if memory is None and (name := self._weights.get(key)) is not None:
            step = self._new(WEIGHT, name)
            self._memory[key[0]] = _Memory(weight=step)
        elif memory is None:
            step = self._new(UNSEEN, "unseen")
            self._note(
                "tensors named unseen are made by code that is not seen, such as compiled functions, or held "
                "outside of the modules that are known"
            )
        else:
            sources = {place[0] for place in memory.views.values()} if known is None else {known[0]}
            read = dict.fromkeys([max(sources), memory.latest[0]])
            step = self._new(OPERATOR, "after_write", [{"step": at} for at in read if at >= 0])
        self._note_results(step, tensor)
        return {"step": step}

    def _note_results(
        self, step: int, result: Any, written: list[torch.Tensor] | None = None, has_values: bool = True
    ) -> None:
        self._time += 1
        private_name = [*tensors_inside(result)]
        returned = {key_of(tensor) for _, tensor in private_name}
        for number, tensor in enumerate(written or ()):
            key = key_of(tensor)
            if key is not None:
                memory = self._memory.setdefault(key[0], _Memory())
                memory.latest, memory.whole = (step, self._time), None
                if key not in returned:
                    private_name.append((("written", number), tensor))
        for path, tensor in private_name:
            tensor = local_part(tensor)
            value = Value(path, tuple(int(size) for size in tensor.shape), dtype_name(tensor.dtype), None)
            self.run.steps[step].values.append(value)
            if (key := key_of(tensor)) is not None:
                memory = self._memory.setdefault(key[0], _Memory())
                memory.views[key[1]] = step, self._time
                if has_values:
                    self._take_fingerprint(value, step, tensor, memory)

    def _take_fingerprint(self, value: Value, step: int, tensor: torch.Tensor, memory: _Memory) -> None:
        """Take the fingerprint of a value; in the second run, its distance from that of the first."""
        if self._first is None:
            value.fingerprint = fingerprint_of(tensor)
            return
        first = self._value_of_first(step)
        if first is None or first.fingerprint is None or self.run.steps[step].kind in (WEIGHT, INPUT):
            return
        whole = tensor.storage_offset(), tensor.numel(), tensor.dtype
        is_whole = fills_its_memory(tensor.shape, tensor.stride())
        if is_whole and memory.whole == whole:  # the same elements in another shape or order
            first.moved = memory.moved
        elif (private_name := fingerprint_of(tensor)) is not None:
            apart = first.fingerprint.moved_by(private_name)
            first.moved = apart if apart < 1 else None
            if is_whole:
                memory.whole, memory.moved = whole, first.moved

    def _is_view_of_weight(self, result: Any) -> bool:
        """Tell whether an operator has returned a weight in another shape or order, and note that it has."""
        key = key_of(result) if isinstance(result, torch.Tensor) else None
        memory = None if key is None else self._memory.get(key[0])
        if key is None or memory is None or memory.weight is None or memory.latest[0] >= 0:
            return False
        size = math.prod(self.run.steps[memory.weight].values[0].shape)
        if size != result.numel() or not fills_its_memory(*key[1][1:3]):
            return False
        memory.views.setdefault(key[1], (memory.weight, self._time))
        return True

    def _value_of_first(self, step: int) -> Value | None:
        """Return the value of the first run that corresponds to the last value of a step."""
        first, own = self._first, self.run.steps[step]
        if first is None or self._is_astray:
            return None
        place = len(own.values) - 1
        its = first.steps[step] if step < len(first.steps) else None
        if its is None or its.target != own.target or place >= len(its.values):
            self._is_astray = True
            first.notes.append(
                f"the second run, which measures rounding, goes another way from step {step} on, so that "
                "rounding is estimated from there"
            )
            return None
        return its.values[place]


_ABSENT: Any = object()
_TOLD = float, complex, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.SymInt
"""Classes whose values are written as text; of others, the class is."""
_PLAIN = torch.Tensor, nn.Parameter, nn.Buffer


def _is_compiled(module: nn.Module) -> bool:
    """Tell whether a module is a result of ``torch.compile``; if so, Dynamo is loaded."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def _name_of(derivative: Any) -> str:
    return "" if derivative is None else str(derivative.name())


def _class_of(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


@cache
def _kind_of(file: str) -> str:
    """Return whose code a file is, as far as that matters for source lines."""
    if _COMPILED_CODE in file:
        return "compiled"
    if file == _RECORDING:
        return "recording"
    return "author" if is_author_code(file) else "other"


def _text_of(frames: list[tuple[Any, int]]) -> str:
    """Return source lines as torch writes them, the innermost last."""
    lines = []
    for code, line in reversed(frames):
        text = linecache.getline(code.co_filename, line).strip()[:_MOST_TEXT]
        lines.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n    {text}\n')
    return "".join(lines)
