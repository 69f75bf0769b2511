"""What a model computes: the tensors that it returns, and those that it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fxlab.interrupts import RestoringStack
from fxlab.model_state import state_kept
from fxlab.running import (
    Inputs,
    call_arguments,
    generators_kept,
    given_arguments,
    named_arguments,
    seed_generators,
)
from fxlab.tensors import same_bits, tensors_by_path


@dataclass(frozen=True)
class Observed:
    """What a run has returned, and what it has written in place."""

    returned: dict[str, torch.Tensor]
    """Outputs by path."""
    written: dict[str, torch.Tensor]
    """New values of inputs, buffers and parameters, by ``written input x`` and ``written state bn.mean``."""

    @property
    def everything(self) -> dict[str, torch.Tensor]:
        """Both."""
        return self.returned | self.written


def observed(model: torch.nn.Module, name: str, inputs: Inputs) -> Observed:
    """Run a model and tell what came of it; the model and the inputs are afterwards as they were.

    Raises
    ------
    ValueError
        If it does not run; the message begins with ``name``.
    """
    try:
        args, kwargs = call_arguments(inputs)
        with RestoringStack(torch.no_grad(), generators_kept()) as stack:
            state = stack.enter_context(state_kept(model))
            seed_generators(0)
            returned = state.apart(tensors_by_path(model(*args, **kwargs)))
            state_written = state.written()
    except Exception as error:  # whatever a model raises for inputs that it does not take
        raise ValueError(
            f"{name}: the {type(model).__name__} does not run on these inputs: {error}"
        ) from error
    before = named_arguments(model, *given_arguments(inputs))
    written = written_inputs(before, named_arguments(model, args, kwargs))
    return Observed(returned, written | {written_state(path): new for path, new in state_written.items()})


def outputs_of(model: torch.nn.Module, name: str, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Run a model and return its outputs by path; ``ValueError`` that names it if it does not run."""
    return observed(model, name, inputs).returned


def written_inputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors in arguments that are not what they were, by what they are called in tables."""
    old, new = tensors_by_path(before), tensors_by_path(after)
    return {
        f"written input {path}": tensor
        for path, tensor in new.items()
        if path not in old or not same_bits(tensor.detach(), old[path].detach())
    }


def written_state(name: str) -> str:
    """Return what a buffer or parameter that is written is called in tables."""
    return f"written state {name}"
