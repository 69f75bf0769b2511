"""The model as the reference that a trace is measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.exchanged import exchanged
from fxlab.interrupts import RestoringStack
from fxlab.models.device_errors import device_errors_raised
from fxlab.models.model_state import ModelState
from fxlab.models.running import call_arguments, generators_kept, run
from fxlab.tracing.bound_inputs import Argument, Size, inputs_of, resized
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.shapes.leftovers import put_back_after
from fxlab.tracing.verification.distinct_values import varied_state
from fxlab.values.nested import REFUSAL, tensors_inside, texts_inside
from fxlab.values.tensors import same_bits, tensors_by_path


class EagerError(Exception):
    """The model itself does not run on some inputs."""


class RefusalError(Exception):
    """A graph does not hold for some inputs, and says so."""


class Eager:
    """The model as the reference that a trace is measured against.

    ``model``: the module that was traced. ``arguments``: inputs that it runs on. ``has_data``: whether there
    is something to compare: not on the meta device. ``around``: the Python around it. ``gradients``: whether
    to run with gradients; if ``None``, only if it turns out that they are needed.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: tuple[Argument, ...],
        *,
        has_data: bool,
        around: Surroundings,
        gradients: bool | None = None,
    ) -> None:
        self.arguments = arguments
        self.has_data = has_data
        self._model = model
        self._gradients = gradients
        self._state: Mapping[str, torch.Tensor] = {}
        self._kept = _KeptState(model, around)

    def with_gradients(self, gradients: bool | None) -> Eager:
        """Return the same model, to be run with gradients or without."""
        around = self._kept.around
        other = Eager(self._model, self.arguments, has_data=self.has_data, around=around, gradients=gradients)
        other._kept = self._kept
        return other

    def only_run(self) -> AbstractContextManager[None]:
        """Keep the state of the model once for all runs until the block ends: nothing else changes it."""
        return self._kept.kept_once()

    def run(self, *runs: Mapping[str, Any]) -> Any:
        """Run the model on each of some values in turn, and return the last result.

        Raises :class:`EagerError` if it does not take them.
        """
        try:
            return self._run(self._model, runs)
        except Exception as error:  # a model may refuse inputs with any error
            raise EagerError(str(error)) from error

    def why_not(self, values: Mapping[str, Any]) -> Exception | None:
        """Return the error of the model itself; ``None`` if it runs."""
        try:
            self.run(values)
        except EagerError as error:
            return error.__cause__  # type: ignore[return-value]
        return None

    def runs_with_gradients(self, values: Mapping[str, Any]) -> bool:
        """Tell whether the model runs where gradients are on: some kernels have no backward."""
        args, kwargs = call_arguments(inputs_of(self.arguments, values))
        with RestoringStack(
            self._kept.put_back_after(), device_errors_raised(), generators_kept(), torch.enable_grad()
        ):
            try:
                copy_context().run(self._model, *args, **kwargs)
            except Exception:  # a model may raise anything
                return False
        return True

    def accepts(self, sizes: Mapping[Size, int]) -> bool:
        """Tell whether the model runs on inputs of other sizes, as ``torch.cond`` does with both branches."""
        for values in self.resized(sizes):
            with suppress(EagerError), exchanged(torch, {"cond": _both_branches}):
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
        expected = self.run(*runs)
        try:
            actual = self._run(traced, runs)
        except Exception as error:  # a graph may fail in any way that torch can
            if isinstance(error, AssertionError) and str(error).startswith(REFUSAL):
                raise RefusalError(str(error)) from error
            return f"the graph raises {type(error).__name__}: {str(error).strip()[:300]}"
        found = _difference(actual, expected)
        if found and (noise := _difference(self.run(*runs), expected)):
            # No two runs of the model agree; then the graph must be about as close.
            return "" if _are_close(actual, expected) else f"{found} (the model by itself: {noise})"
        return found

    @cached_property
    def varied(self) -> Eager:
        """Return the model with other numbers where its parameters and buffers are all zeros, or ones."""
        other = self.with_gradients(self._gradients)
        other._state = varied_state(self._model)
        return other

    def _run(self, module: nn.Module, runs: Sequence[Mapping[str, Any]]) -> Any:
        with RestoringStack(self._kept.put_back_after(), device_errors_raised()):
            call = _with_state(module, self._state) if self._state else module
            context = copy_context()  # context variables that the model sets end with the runs
            for seed, values in enumerate(runs):  # with one seed, numbers that it keeps would look like new
                inputs = inputs_of(self.arguments, values)
                result = context.run(run, call, inputs, seed=seed, gradients=self._gradients)
            return result


def _both_branches(cond: Callable[..., Any]) -> Callable[..., Any]:
    def call(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if isinstance(pred, torch.Tensor):
            cond(~pred, true_fn, false_fn, operands)
        return cond(pred, true_fn, false_fn, operands)

    return call


class _KeptState:
    """The state of a model, to which it is put back after each run."""

    def __init__(self, model: nn.Module, around: Surroundings) -> None:
        self._model, self.around = model, around
        self._is_once = False
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
    def put_back_after(self) -> Iterator[None]:
        """Put the model and the Python around it back at the end of the block."""
        state = self._state or ModelState(self._model, others=self.around.tensors)
        if self._is_once:
            self._state = state
        with put_back_after(self.around), state.put_back_after():
            yield


def _with_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> nn.Module:
    """Return a twin of a module with other tensors in place of some of its parameters and buffers."""
    # Of a tensor with two names a graph may have the other one first.
    held = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    others = {id(tensor): state[name] for name, tensor in held if name in state}
    return Twin(module, lambda tensor: others.get(id(tensor), tensor)).model


def _difference(actual: Any, expected: Any) -> str:
    if type(actual) is not type(expected):
        return f"it returns a {type(actual).__name__}, the model a {type(expected).__name__}"
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    if ours.keys() != theirs.keys():
        return f"only one of the two returns {', '.join(sorted(ours.keys() ^ theirs.keys()))[:300]}"
    for path, tensor in ours.items():
        other = theirs[path]
        if same_bits(tensor, other):
            continue
        if (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
            return f"{path} is {tensor.dtype} {tuple(tensor.shape)}, not {other.dtype} {tuple(other.shape)}"
        distance = (tensor.to(torch.complex128) - other.to(torch.complex128)).abs().max().item()
        return f"{path} differs by up to {distance:.3g}"
    texts = zip_longest(texts_inside(actual), texts_inside(expected))
    return next((f"it returns {own!r:.80}, the model {text!r:.80}" for own, text in texts if own != text), "")


def _are_close(actual: Any, expected: Any) -> bool:
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    return all(
        torch.allclose(tensor.double(), theirs[path].double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        for path, tensor in ours.items()
    )
