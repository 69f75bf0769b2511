"""Run the model as it is, on inputs given or varied: the reference that a trace is compared with."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import GraphModule

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import HigherOrderOperator
from fxlab.models.running.accelerators import device_errors_raised
from fxlab.models.running.running import call_model, detached, needs_gradients, run
from fxlab.models.state.model_state import ModelState
from fxlab.tracing.bound_inputs import Argument, Size, inputs_of, mapped_tensors, resized
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.shapes.fake_state import put_back_after
from fxlab.values.nested import REFUSAL, Path, flatten_objects, map_tensors, tensors_inside, texts_inside
from fxlab.values.tensors import is_floating, same_bits, tensors_by_path

_LARGE = 2**18
"""The numbers of a weight whose products take so long that they are short at other sizes."""


@dataclass(frozen=True)
class _Way:
    """A way to run the model and its graph alike."""

    runs: Sequence[Mapping[str, Any]]
    """The values that they run on in turn."""
    with_reach: bool = False
    """Whether to run with gradients, and to note what they reach."""
    in_call: Callable[[], AbstractContextManager[Any]] = nullcontext


class EagerError(Exception):
    """The model itself does not run on some inputs."""


class GraphRejectsInputsError(Exception):
    """Raised when a traced graph rejects inputs that the model accepts."""


class EagerReference:
    """The model as the reference that a trace is measured against.

    ``model``: the module that was traced. ``arguments``: inputs that it runs on. ``has_data``: whether there
    is something to compare: not on the meta device. ``around``: the Python around it. It runs with gradients
    if it turns out that they are needed. ``is_short``: whether products were short in the last comparison.
    """

    def __init__(
        self, model: nn.Module, arguments: tuple[Argument, ...], *, has_data: bool, around: Surroundings
    ) -> None:
        self.arguments, self.has_data, self._model = arguments, has_data, model
        self._gradients: bool | None = None
        self._twins: tuple[EagerReference, GraphModule] | None = None
        self._kept = _KeptState(model, around)
        self._large: Sequence[torch.Tensor] = ()
        self._is_varied = self.is_short = False

    def with_gradients(self, gradients: bool | None) -> EagerReference:
        """Return the same model, to be run with gradients or without."""
        other = copy.copy(self)
        other._gradients, other._twins = gradients, None
        return other

    def with_short_products(self, traced: GraphModule) -> EagerReference:
        """Return the same model, compared with a trace with short products first; see :attr:`is_short`."""
        other = self.with_gradients(self._gradients)
        if not _takes_functions(traced):  # as a loop does, which runs without a mode of torch alone
            other._large = [p for p in self._model.parameters() if p.dim() == 2 and p.numel() >= _LARGE]
        return other

    def only_run(self) -> AbstractContextManager[None]:
        """Keep the state of the model once for all runs until the block ends: nothing else changes it."""
        return self._kept.kept_once()

    def run(self, *runs: Mapping[str, Any]) -> Any:
        """Run the model on each of some values in turn, and return the last result.

        Raises :class:`EagerError` if it does not take them.
        """
        return self._of_model(_Way(runs)).output

    def why_not(self, values: Mapping[str, Any]) -> Exception | None:
        """Return the error of the model itself; ``None`` if it runs."""
        try:
            self.run(values)
        except EagerError as error:
            return error.__cause__  # type: ignore[return-value]
        return None

    def runs_with_gradients(self, values: Mapping[str, Any]) -> bool:
        """Tell whether the model runs where gradients are on: some kernels have no backward."""
        with suppress(EagerError):
            self._of_model(_Way((values,), True))
            return True
        return False

    def accepts(self, sizes: Mapping[Size, int]) -> bool:
        """Tell whether the model runs on inputs of other sizes, as ``torch.cond`` does with both branches."""
        for values in self.resized(sizes):
            with suppress(EagerError), patched_functions(torch, {"cond": _both_branches}):
                self.run(values)
                return True
        return False

    def resized(self, sizes: Mapping[Size, int]) -> Iterator[dict[str, Any]]:
        """Yield inputs of other sizes; a second time, filled in another way, if there may be a text."""
        yield resized(self.arguments, sizes)
        tensors = (t for argument in self.arguments for _, t in tensors_inside(argument.value))
        if not all(tensor.is_floating_point() for tensor in tensors):
            yield resized(self.arguments, sizes, from_end=True)

    def difference(self, traced: GraphModule, *runs: Mapping[str, Any]) -> str:
        """Return how the outputs of a trace differ from the model's, or ``""`` if every bit is the same.

        ``runs``: the values that both run on in turn, for the last outputs. Raises EagerError if the model
        does not take them; RefusalError if the trace says that it does not hold for them.
        """
        self.is_short = False
        if self._large:
            from fxlab.tracing.verification.short_products import ShortProducts

            short = ShortProducts(self._large)
            with suppress(EagerError, GraphRejectsInputsError):
                found = self._compared(traced, _Way(runs, in_call=lambda: short))
                if not found or self._is_varied:  # with products of its own
                    self.is_short = short.is_used
                    return found
        return self._compared(traced, _Way(runs))

    def difference_with_gradients(self, traced: GraphModule, values: Mapping[str, Any]) -> str | None:
        """Do so on one run where gradients are on, and compare what they reach; ``None`` if that is unknown.

        Floating-point inputs have gradients as well; nothing is kept for a backward pass where possible.
        """
        if self._gradients is False:
            return None

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.detach().requires_grad_() if is_floating(tensor) else tensor

        with_leaves = map_tensors(lambda _, tensor: leaf(tensor), dict(values))
        nothing_kept = partial(saved_tensors_hooks, lambda _: None, _not_kept)
        for way in (_Way((with_leaves,), True, nothing_kept), _Way((values,), True)):
            with suppress(EagerError, GraphRejectsInputsError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of gradients, which nobody has asked for
                return self._compared(traced, way)
        return None

    def _compared(self, traced: GraphModule, way: _Way) -> str:
        expected = self._of_model(way)
        try:
            actual = self._run(traced, way)
        except Exception as error:  # a graph may fail in any way that torch can
            if isinstance(error, AssertionError) and str(error).startswith(REFUSAL):
                raise GraphRejectsInputsError(str(error)) from error
            return f"the graph raises {type(error).__name__}: {str(error).strip()[:300]}"
        found = _difference(actual, expected)
        # If no two runs of the model agree, the graph must be about as close.
        if found and _are_close(actual, expected) and _difference(self._of_model(way), expected):
            return ""
        return found

    def _of_model(self, way: _Way) -> _Outcome:
        try:
            return self._run(self._model, way)
        except Exception as error:  # a model may refuse inputs with any error
            raise EagerError(str(error)) from error

    def varied(self, traced: GraphModule) -> tuple[EagerReference, GraphModule]:
        """Return twins of model and trace, made once, with other numbers where state is zeros or ones."""
        if self._twins is None:
            both, stand_ins = nn.ModuleList([self._model, traced]), varied_state(self._model)
            twins: Any = Twin(both, lambda tensor: stand_ins.get(id(tensor), tensor)).model
            other = self.with_gradients(self._gradients)
            other._model, other._is_varied = twins[0], True
            other._kept = _KeptState(twins[0], self._kept.around, is_once=True)
            self._twins = other, twins[1]
        return self._twins

    def _run(self, module: nn.Module, way: _Way) -> _Outcome:
        gradients = True if way.with_reach or needs_gradients(module) else self._gradients
        given: list[torch.Tensor] = []
        reached: frozenset[str] = frozenset()

        def noted(*args: Any, **kwargs: Any) -> Any:
            nonlocal reached
            given[:] = [tensor for _, tensor in tensors_inside(flatten_objects((args, kwargs)))]
            with way.in_call():
                result = call_model(module, args, kwargs)
            if way.with_reach:
                reached = frozenset(_reached_by_gradients(result, self._names_of_leaves(given)))
            return result

        with device_errors_raised(), self._kept.put_back_after() as state:
            context = copy_context()  # context variables that the model sets end with the runs
            # With one seed, numbers that it keeps would look like new.
            for seed, values in enumerate(way.runs):
                inputs = inputs_of(self.arguments, values)
                result = context.run(run, noted, inputs, seed=seed, gradients=gradients)
            return _Outcome(
                result, detached(given), state.written(replaced=False), reached, _takes_functions(module)
            )

    def _names_of_leaves(self, given: list[torch.Tensor]) -> dict[int, str]:
        held = (*self._model.named_parameters(), *self._model.named_buffers())
        names = {id(tensor): f"input tensor {index}" for index, tensor in enumerate(given)}
        return names | {id(tensor): name for name, tensor in held}


def _not_kept(_: Any) -> Any:
    raise RuntimeError("Nothing was kept for a backward pass.")


def _both_branches(cond: Callable[..., Any]) -> Callable[..., Any]:
    def call(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if isinstance(pred, torch.Tensor):
            cond(~pred, true_fn, false_fn, operands)
        return cond(pred, true_fn, false_fn, operands)

    return call


class _KeptState:
    """The state of a model, to which it is put back after each run."""

    def __init__(self, model: nn.Module, around: Surroundings, *, is_once: bool = False) -> None:
        self._model, self.around = model, around
        self._is_once = is_once
        self._state: ModelState | None = None

    @contextmanager
    def kept_once(self) -> Iterator[None]:
        """Keep the state at the first run, for all that follow until the block ends."""
        self._is_once = True
        try:
            yield
        finally:
            self._is_once, self._state = False, None

    @contextmanager
    def put_back_after(self) -> Iterator[ModelState]:
        """Put the model and the Python around it back at the end of the block."""
        state = self._state or ModelState(self._model, others=self.around.tensors)
        if self._is_once:
            self._state = state
        with put_back_after(self.around), state.put_back_after():
            yield state


@dataclass(frozen=True)
class _Outcome:
    """All that a run leaves: what it returns, and what it has written."""

    output: Any
    inputs: list[torch.Tensor]
    """The tensors that it was given, as they are afterwards."""
    state: dict[str, torch.Tensor]
    """The tensors of the model that it has written, by name."""
    reached: frozenset[str]
    """The outputs that gradients flow from, and the tensors of the model and inputs that they reach."""
    takes_functions: bool
    """Whether a graph has run with operators that take functions, such as ``torch.cond``."""


def _takes_functions(module: nn.Module) -> bool:
    nodes = module.graph.nodes if isinstance(module, GraphModule) else ()
    return any(isinstance(node.target, HigherOrderOperator) for node in nodes)


def _reached_by_gradients(output: Any, names: Mapping[int, str]) -> Iterator[str]:
    pending: list[Any] = []
    for path, tensor in tensors_by_path(output).items():
        if tensor.requires_grad:
            yield f"from {path}"
            pending.append(tensor if tensor.grad_fn is None else tensor.grad_fn)
    seen = set(pending)
    while pending:
        step = pending.pop()
        leaf = step if isinstance(step, torch.Tensor) else getattr(step, "variable", None)
        if leaf is not None:
            if id(leaf) in names:  # others are made in the run
                yield f"to {names[id(leaf)]}"
            continue
        following = {function for function, _ in step.next_functions if function is not None} - seen
        seen |= following
        pending += following


def _difference(actual: _Outcome, expected: _Outcome) -> str:
    if difference := _difference_of_outputs(actual.output, expected.output):
        return difference
    for index, (ours, theirs) in enumerate(zip(actual.inputs, expected.inputs, strict=True)):
        if difference := _difference_of(f"input tensor {index}, which is written,", ours, theirs):
            return difference
    if written := actual.state.keys() ^ expected.state.keys():
        return f"only one of the two writes {', '.join(sorted(written))[:300]}"
    for name, tensor in actual.state.items():
        if difference := _difference_of(f"{name}, which is written,", tensor, expected.state[name]):
            return difference
    if lost := expected.reached - actual.reached:
        return f"gradients flow in the model only: {', '.join(sorted(lost))[:300]}"
    # A checkpoint may reach more than its graph shows. Eager torch compiles the functions that an operator
    # takes, and finds their tensors; here it does not.
    found = {name for name in actual.reached - expected.reached if name.startswith("from")}
    if found and not actual.takes_functions:
        return f"gradients flow in the graph only: {', '.join(sorted(found))[:300]}"
    return ""


def _difference_of(path: str, tensor: torch.Tensor, other: torch.Tensor) -> str:
    if same_bits(tensor, other):
        return ""
    if (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
        return f"{path} is {tensor.dtype} {tuple(tensor.shape)}, not {other.dtype} {tuple(other.shape)}"
    distance = (tensor.to(torch.complex128) - other.to(torch.complex128)).abs().max().item()
    return f"{path} differs by up to {distance:.3g}"


def _difference_of_outputs(actual: Any, expected: Any) -> str:
    if type(actual) is not type(expected):
        return f"it returns a {type(actual).__name__}, the model a {type(expected).__name__}"
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    if ours.keys() != theirs.keys():
        return f"only one of the two returns {', '.join(sorted(ours.keys() ^ theirs.keys()))[:300]}"
    for path, tensor in ours.items():
        if found := _difference_of(path, tensor, theirs[path]):
            return found
    texts = zip_longest(texts_inside(actual), texts_inside(expected))
    return next((f"it returns {own!r:.80}, the model {text!r:.80}" for own, text in texts if own != text), "")


def _are_close(actual: _Outcome, expected: _Outcome) -> bool:
    ours, theirs = ({**tensors_by_path(each.output), **each.state} for each in (actual, expected))
    shapes = ({path: tensor.shape for path, tensor in each.items()} for each in (ours, theirs))
    return (
        actual.reached >= expected.reached
        and operator.eq(*shapes)
        and all(
            torch.allclose(tensor.double(), theirs[path].double(), rtol=1e-3, atol=1e-4, equal_nan=True)
            for path, tensor in ours.items()
        )
    )


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FIRST = 1024
"""How many elements are looked at before all are."""


def varied(value: Any) -> Any:
    """Return a value whose floating-point tensors of one number have different ones near it."""
    return map_tensors(lambda _, tensor: _spread(tensor) if _is_of_one_number(tensor) else tensor, value)


def varied_state(model: nn.Module) -> dict[int, torch.Tensor]:
    """Return stand-ins for the parameters and buffers of a model that are of one number, by identity."""
    state = (*model.parameters(), *model.buffers())
    return {id(tensor): _spread(tensor.detach()) for tensor in state if _is_of_one_number(tensor)}


def other_data(arguments: tuple[Argument, ...]) -> Iterator[dict[str, Any]]:
    """Yield inputs of the same shapes, within the range of the given numbers: all others, then fewer.

    Whole numbers are as likely to be names of things, of which others would mean nothing to the model.
    """
    generator = torch.Generator().manual_seed(0)

    def changed(*kinds: bool) -> dict[str, Any]:
        def change(_: str, __: Path, tensor: torch.Tensor) -> torch.Tensor:
            return _other(tensor, generator) if is_floating(tensor) in kinds else tensor

        return mapped_tensors(arguments, change)

    kinds = [is_floating(t) for a in arguments for _, t in tensors_inside(a.value)]
    yield changed(True, False)
    if any(kinds) and not all(kinds):
        yield changed(True)
        yield changed(False)


def with_padding(
    arguments: tuple[Argument, ...], values: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return inputs whose masks end in zeros, or ``None`` if there is no mask of ones to change.

    ``values``: others in place of the given ones, by name.
    """
    if values is not None:
        arguments = tuple(replace(argument, value=values[argument.name]) for argument in arguments)
    changed = False

    def pad(name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        is_number = is_floating(tensor)
        has_places = tensor.dim() == 2 and tensor.shape[-1] > 1 and tensor.numel()
        if is_number or not has_places or not bool((tensor == 1).all()):
            return tensor
        changed = True
        padded = tensor.clone()
        padded[-1, -(tensor.shape[-1] // 4 or 1) :] = 0
        return padded

    values = mapped_tensors(arguments, pad)
    return values if changed else None


def _other(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor like another, of other numbers between its smallest and its largest.

    Where there is but one number, the others are near it, and whole ones below it.
    """
    given = tensor.detach()
    if (
        type(given) not in (torch.Tensor, nn.Parameter)
        or given.layout is not torch.strided
        or not given.numel()
    ):
        return tensor
    if given.is_complex():
        parts = (_other(part, generator) for part in (given.real.clone(), given.imag.clone()))
        return given.clone().copy_(torch.complex(*parts)).requires_grad_(tensor.requires_grad)
    if given.dtype not in (*_FLOATS, *_WHOLE):
        return tensor
    share = torch.rand(given.shape, generator=generator, dtype=torch.float64, device="cpu").to(given.device)
    result = given.clone()
    if given.is_floating_point():
        finite = given.isfinite()
        known = given[finite].double()
        low, high = (known.min(), known.max()) if known.numel() else (given.new_zeros(()).double(),) * 2
        spread = torch.where(high > low, high - low, low.abs() / 2 + (low == 0))
        result.copy_(torch.where(finite, (low + spread * share).to(given.dtype), given))
    else:
        low, high = given.min().to(torch.int64), given.max().to(torch.int64)
        low = torch.where(high > low, low, (high - 1).clamp(min=min(int(high), 0)))
        result.copy_(low + (share * (high - low + 1)).floor().to(torch.int64))
    return result.requires_grad_(tensor.requires_grad)


def _is_of_one_number(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.dtype not in _FLOATS or not tensor.numel():
        return False
    elements = tensor.detach().flatten()
    return all(bool((part == elements[0]).all()) for part in (elements[:_FIRST], elements))


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    more = torch.linspace(0.1, 1, tensor.numel(), dtype=torch.float32, device=tensor.device)
    return tensor + more.reshape(tensor.shape).to(tensor.dtype)
