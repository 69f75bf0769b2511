"""Tensors that a model returns or writes, by name, noted in one run: the results that comparisons compare."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from fxlab.base.interrupts import RestoringStack
from fxlab.models.hooks import compiled_calls
from fxlab.models.running import running
from fxlab.models.running.arguments import Inputs, call_arguments, given_arguments, named_arguments
from fxlab.models.running.call_record import CallRecord
from fxlab.models.state.model_state import state_kept_in_call, value_at
from fxlab.values.tensors import same_bits, tensors_by_path

INPUT, STATE, GRADIENT = "written input ", "written state ", "gradient of "
"""Prefixes of the names of tensors that a run has written, and of gradients, in tables."""


@dataclass(frozen=True)
class Observed:
    """The outputs of a run, and the tensors it has written in place."""

    returned: dict[str, torch.Tensor]
    """Outputs by path."""
    written: dict[str, torch.Tensor]
    """New values of inputs, buffers and parameters, by ``written input x`` and ``written state bn.mean``."""
    record: CallRecord
    """The other observable parts of the run."""
    unwritten: Callable[[str], torch.Tensor | None]
    """Returns the stand-in of a tensor that the run could have written and has not."""
    runs_with_gradients: bool = False
    """Whether gradients were recorded in the run, as a model needs them or the one beside it."""
    runs_compiled_code: bool = False
    """Whether the run has called functions that ``torch.compile`` has compiled."""

    @property
    def everything(self) -> dict[str, torch.Tensor]:
        """The results and the written tensors."""
        return self.returned | self.written

    def beside(self, other: "Observed") -> dict[str, torch.Tensor]:
        """Return everything, and the unchanged tensors of this run where another run has written."""
        there = {path: self.unwritten(path) for path in other.written if path not in self.written}
        return self.everything | {path: tensor for path, tensor in there.items() if tensor is not None}


def observed(
    model: torch.nn.Module,
    name: str,
    inputs: Inputs,
    beside: torch.nn.Module | None = None,
    under: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Observed:
    """Run a model and return its outcome; the model and the inputs are afterwards as they were.

    ``beside``: the model to compare with: both run with gradients if one of them needs these. ``under``:
    makes the context of the call. Raises ValueError if it does not run; the message begins with ``name``.
    """
    runs_compiled_code = runs_with_gradients = False

    def run(gradients: AbstractContextManager[Any]) -> tuple[Any, ...]:
        nonlocal runs_compiled_code, runs_with_gradients
        args, kwargs = call_arguments(inputs)
        after = named_arguments(model, args, kwargs)
        with RestoringStack(gradients, running.generators_kept()), state_kept_in_call(model) as state:
            running.seed_generators(0)
            before = running.Generators.now()
            with under(), compiled_calls() as compiled:
                output = running.call_model(model, args, kwargs)
            runs_compiled_code |= compiled.are_there
            runs_with_gradients = torch.is_grad_enabled()
            record = CallRecord.of(output, after, state.tensors(), before)
            returned = state.apart(_detached(tensors_by_path(output)))
            state_written = state.written()
        return returned, state_written, _detached(tensors_by_path(after)), record

    try:
        returned, state_written, after, record = running.with_gradients_if_needed(model, run, beside)
    except Exception as error:  # a model may refuse inputs with any error
        raise ValueError(
            f"{name}: the {type(model).__name__} does not run on these inputs: {error}"
        ) from error
    if on_meta := [path for path, tensor in returned.items() if tensor.is_meta]:
        raise ValueError(f"{name}: what it returns as {on_meta[0]} is on the meta device and has no numbers.")
    if nested := [path for path, tensor in returned.items() if tensor.is_nested]:
        raise ValueError(f"{name}: what it returns as {nested[0]} is a nested tensor, which is not compared.")
    before = named_arguments(model, *given_arguments(inputs))
    written = written_inputs(before, after)
    written |= {STATE + path: tensor for path, tensor in state_written.items()}

    def unwritten(path: str) -> torch.Tensor | None:
        if path.startswith(INPUT):
            return tensors_by_path(before).get(path.removeprefix(INPUT))
        value = value_at(model, path.removeprefix(STATE))
        return value if isinstance(value, torch.Tensor) else None

    return Observed(returned, written, record, unwritten, runs_with_gradients, runs_compiled_code)


def _detached(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {path: tensor.detach() for path, tensor in tensors.items()}


def written_inputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors in arguments that have changed, by their names in tables."""
    old, new = tensors_by_path(before), tensors_by_path(after)
    return {
        INPUT + path: tensor
        for path, tensor in new.items()
        if path not in old or not same_bits(tensor.detach(), old[path].detach())
    }


def is_written(path: str) -> bool:
    """Tell whether a row of a table is something that was written, and not an output."""
    return path.startswith((INPUT, STATE))


def is_output(path: str) -> bool:
    """Tell whether a row of a table is an output: neither written nor a gradient."""
    return not is_written(path) and not path.startswith(GRADIENT)
