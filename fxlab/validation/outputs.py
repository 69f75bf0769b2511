"""The tensors that a model returns, or what it is that it does not run on."""

import torch

from fxlab.running import Inputs, run
from fxlab.tensors import tensors_by_path


def outputs_of(model: torch.nn.Module, name: str, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Run a model and return its outputs by path; ``ValueError`` that names it if it does not run."""
    try:
        return tensors_by_path(run(model, inputs))
    except Exception as error:  # whatever a model raises for inputs that it does not take
        raise ValueError(
            f"{name}: the {type(model).__name__} does not run on these inputs: {error}"
        ) from error
