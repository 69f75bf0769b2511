"""Compare a trace with the model, bit for bit: on its inputs, at other sizes and with padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import sympy
import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.interrupts import RestoringStack
from fxlab.models.model_state import state_kept
from fxlab.models.running import call_arguments, generators_kept, run
from fxlab.tracing.bound_inputs import Argument, inputs_of
from fxlab.tracing.report import REFUSAL, Finding, TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs, Size, name_of_size, resized, with_padding
from fxlab.tracing.verification.distinct_values import other_data, varied_state
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import same_bits, tensors_by_path

_SAME = "same bits as the model"
_SMALL = 33, 40, 64, 96, 128
"""Sizes that take little time to compare at, where the given ones are large."""

Change = tuple[str, dict[Size, int]]
"""Other sizes to compare at, and words for them."""


class EagerError(Exception):
    """The model itself does not run on some inputs."""


class RefusalError(Exception):
    """A graph does not hold for some inputs, and says so."""


class Eager:
    """The model as the reference that a trace is measured against.

    Parameters
    ----------
    model
        The module that was traced.
    arguments
        Inputs that it runs on.
    has_data
        Whether there is something to compare: not on the meta device.
    """

    def __init__(self, model: nn.Module, arguments: tuple[Argument, ...], *, has_data: bool) -> None:
        self.arguments = arguments
        self.has_data = has_data
        self._model = model
        self._state: Mapping[str, torch.Tensor] = {}

    def run(self, values: Mapping[str, Any], times: int = 1) -> Any:
        """Run the model; raise :class:`EagerError` if it does not take these values."""
        try:
            return self._run(self._model, values, times)
        except Exception as error:  # whatever the model raises for inputs that it does not take
            raise EagerError(str(error)) from error

    def why_not(self, values: Mapping[str, Any]) -> Exception | None:
        """Return what the model itself raises; ``None`` if it runs."""
        try:
            self.run(values)
        except EagerError as error:
            return error.__cause__  # type: ignore[return-value]
        return None

    def runs_with_gradients(self, values: Mapping[str, Any]) -> bool:
        """Tell whether the model runs where gradients are on: some kernels have no backward."""
        args, kwargs = call_arguments(inputs_of(self.arguments, values))
        with RestoringStack(state_kept(self._model), generators_kept(), torch.enable_grad()):
            try:
                self._model(*args, **kwargs)
            except Exception:  # whatever a model raises
                return False
        return True

    def accepts(self, sizes: Mapping[Size, int]) -> bool:
        """Tell whether the model runs on inputs of other sizes."""
        for values in self.resized(sizes):
            with suppress(EagerError):
                self.run(values)
                return True
        return False

    def resized(self, sizes: Mapping[Size, int]) -> Iterator[dict[str, Any]]:
        """Yield inputs of other sizes; a second time, filled in another way, if there may be a text."""
        yield resized(self.arguments, sizes)
        tensors = (t for argument in self.arguments for _, t in tensors_inside(argument.value))
        if not all(tensor.is_floating_point() for tensor in tensors):
            yield resized(self.arguments, sizes, from_end=True)

    def difference(self, traced: GraphModule, values: Mapping[str, Any], *, times: int = 1) -> str:
        """Return how the outputs of a trace differ from the model's, or ``""`` if every bit is the same.

        Parameters
        ----------
        traced
            The trace.
        values
            The inputs.
        times
            How often both run, for the last outputs.

        Raises
        ------
        EagerError
            If the model does not take these values.
        RefusalError
            If the trace says that it does not hold for them.
        """
        expected = self.run(values, times)
        try:
            actual = self._run(traced, values, times)
        except Exception as error:  # a graph may fail in any way that torch can
            if isinstance(error, AssertionError) and str(error).startswith(REFUSAL):
                raise RefusalError(str(error)) from error
            return f"the graph raises {type(error).__name__}: {str(error).strip()[:300]}"
        found = _difference(actual, expected)
        if found and (noise := _difference(self.run(values, times), expected)):
            # No two runs of the model agree; then the graph must be about as close.
            return "" if _are_close(actual, expected) else f"{found} (the model by itself: {noise})"
        return found

    @cached_property
    def varied(self) -> Eager:
        """Return the model with other numbers where its parameters and buffers are all zeros, or ones."""
        other = Eager(self._model, self.arguments, has_data=self.has_data)
        other._state = varied_state(self._model)
        return other

    def _run(self, module: nn.Module, values: Mapping[str, Any], times: int) -> Any:
        with RestoringStack(state_kept(self._model)):
            call = _with_state(module, self._state) if self._state else module
            return [run(call, inputs_of(self.arguments, values)) for _ in range(times)][-1]


def _with_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> Callable[..., Any]:
    """Return what calls a module with other tensors in place of some of its parameters and buffers."""
    # Of a tensor with two names a graph may have the other one first.
    held = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    own = {name: state[name] for name, _ in held if name in state}
    return lambda *args, **kwargs: torch.func.functional_call(module, own, args, kwargs)


def check_against_eager(
    eager: Eager, traced: GraphModule, fakes: FakeInputs, *, on_other_data: bool
) -> list[Finding]:
    """Compare a trace with the model, on the given inputs, with padding and at other sizes.

    Parameters
    ----------
    eager
        The model.
    traced
        The trace.
    fakes
        The inputs of the run.
    on_other_data
        Whether to compare on other numbers of the same sizes as well, since the given ones were computed with
        when the model was recorded.

    Raises
    ------
    TraceError
        If they do not agree.
    """
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        _expect_same(eager, traced, given, "the inputs")
    except RefusalError as error:
        raise TraceError(f"The graph refuses the inputs that it was made of: {error}") from error
    except EagerError as error:
        raise TraceError("The model does not run on these inputs") from error.__cause__
    findings = [Finding("check", "the inputs", _SAME)]
    if on_other_data:
        findings.append(Finding("check", "other data", _outcome_on_other_data(eager, traced)))
    if (padded := with_padding(eager.arguments)) is not None:
        outcome = _outcome(eager, traced, iter([padded]), "padded masks")
        findings.append(Finding("check", "padded masks", outcome))
    return findings + _check_other_sizes(eager, traced, fakes)


def _check_other_sizes(eager: Eager, traced: GraphModule, fakes: FakeInputs) -> list[Finding]:
    """Compare with all sizes changed at once; one by one where the model does not take that."""

    def first_taken(changes: list[Change]) -> Finding:
        for words, sizes in changes:
            finding = Finding("check", words, _outcome(eager, traced, eager.resized(sizes), words))
            if finding.detail == _SAME:
                break
        return finding

    together, one_by_one = _other_sizes(fakes)
    findings = [first_taken(together)] if together else []
    if not findings or findings[0].detail != _SAME:
        findings += map(first_taken, one_by_one)
    larger = larger_batch(fakes)
    if len(set(larger.values())) > 1 and not any(fakes.expression(size).is_number for size in larger):
        findings.append(first_taken([("a larger batch", larger)]))
    return findings


def check_second_run(eager: Eager, traced: GraphModule) -> list[Finding]:
    """Compare a trace with a model that changes its attributes when both run a second time."""
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        difference = eager.difference(traced, given, times=2)
    except (EagerError, RefusalError) as error:
        difference = str(error)
    if not difference:
        return [Finding("check", "a second run", _SAME)]
    return [
        Finding("state", "a second run", f"the model has changed what the graph has not: {difference[:200]}")
    ]


def sizes_at(fakes: FakeInputs, values: Mapping[sympy.Symbol, int]) -> dict[Size, int]:
    """Return the sizes that inputs have if symbols take other values than in the given inputs."""
    values = fakes.free_symbols() | dict(values)
    sizes = {size: fakes.expression(size).subs(values) for size in fakes.symbols}
    # A size may have turned out to be that of something which depends on data.
    return {size: int(value) if value.is_number else fakes.given[size] for size, value in sizes.items()}


def holds(condition: Any, values: Mapping[sympy.Symbol, int]) -> bool:
    """Tell whether a condition on symbols holds for their values, as far as these decide on it."""
    try:
        return condition.subs(values) not in (sympy.false, False)
    except (ZeroDivisionError, AssertionError):  # a remainder by zero, or one of a negative number
        return False


def _expect_same(eager: Eager, traced: GraphModule, values: Mapping[str, Any], words: str) -> None:
    difference = eager.difference(traced, values)
    if difference:
        raise TraceError(
            f"The recorded graph does not compute what the model computes. On {words}: {difference}"
        )


def _outcome(eager: Eager, traced: GraphModule, ways: Iterator[dict[str, Any]], words: str) -> str:
    """Return what comes of a comparison on the first of several inputs that the model takes."""
    left_out = ""
    for values in ways:
        try:
            _expect_same(eager, traced, values, words)
        except EagerError as error:
            left_out = left_out or f"left out: the model raises {str(error)[:200]}"
        except RefusalError as error:
            return f"refused: {str(error)[:200]}"
        else:
            return _SAME
    return left_out


def _outcome_on_other_data(eager: Eager, traced: GraphModule) -> str:
    """Return what comes of a comparison on the first other data that both take."""
    left_out = "left out: there is no other data"
    for values in other_data(eager.arguments):
        try:
            _expect_same(eager, traced, values, "other data")
        except EagerError as error:
            left_out = f"left out: the model raises {str(error)[:200]}"
        except RefusalError as error:
            left_out = f"refused: {str(error)[:200]}"
        else:
            return _SAME
    return left_out


def _other_sizes(fakes: FakeInputs) -> tuple[list[Change], list[list[Change]]]:
    """Return changes of all sizes at once, the smallest first, and the same for each size alone.

    Sizes that are equal in the given inputs change together, as those of a text and of its mask must.
    """
    symbols = fakes.free_symbols()
    guards = [_in_free_symbols(guard.expr, fakes) for guard in fakes.shape_env.guards]

    def is_allowed(values: dict[sympy.Symbol, int]) -> bool:
        return all(holds(guard, symbols | values) for guard in guards)

    alone: list[list[dict[sympy.Symbol, int]]] = []
    for size in sorted(set(symbols.values())):
        equal = [symbol for symbol in symbols if symbols[symbol] == size]
        # Two sizes that differ must differ here as well, so that one in place of the other is seen.
        taken = {other for found in alone for other in found[0].values()}
        smaller = (small for small in _SMALL if 2 * small <= size and small not in taken)
        near = (other for other in (size + 1, size - 1, size * 2, size // 2, size + 2) if other > 1)
        ways = ((dict.fromkeys(equal, other) for other in others) for others in (smaller, near))
        if found := [values for way in ways if (values := next(filter(is_allowed, way), None))]:
            alone.append(found)
    at_once = [_merged(found[0] for found in alone), _merged(found[-1] for found in alone)]
    together = [values for values in at_once if len(alone) > 1 and is_allowed(values)]
    if at_once[0] == at_once[1]:
        del together[1:]
    return [_named(fakes, values) for values in together], [
        [_named(fakes, values) for values in found] for found in alone
    ]


def _merged(changes: Iterable[Mapping[sympy.Symbol, int]]) -> dict[sympy.Symbol, int]:
    return {symbol: size for values in changes for symbol, size in values.items()}


def larger_batch(fakes: FakeInputs) -> dict[Size, int]:
    """Return the first dimensions of all inputs for one more item in a batch.

    An input may have several rows for each item, as the patches of images do beside a text.
    """
    rows = {size: number for size, number in fakes.given.items() if size[-1] == 0}
    batch = math.gcd(*rows.values())
    return {size: number // batch * (batch + 1) for size, number in rows.items()} if batch else {}


def _in_free_symbols(condition: Any, fakes: FakeInputs) -> Any:
    return condition.subs({symbol: fakes.shape_env.replace(symbol) for symbol in condition.free_symbols})


def _named(fakes: FakeInputs, values: Mapping[sympy.Symbol, int]) -> tuple[str, dict[Size, int]]:
    first: dict[int, Size] = {}
    for size in fakes.symbols:
        if (expression := fakes.expression(size)) in values:
            first.setdefault(values[expression], size)
    return ", ".join(f"{name_of_size(size)} = {new}" for new, size in first.items()), sizes_at(fakes, values)


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
    return ""


def _are_close(actual: Any, expected: Any) -> bool:
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    return all(
        torch.allclose(tensor.double(), theirs[path].double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        for path, tensor in ours.items()
    )
