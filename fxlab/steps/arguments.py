"""A batch as arguments of a step: tensors with names, divided between the model and its loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.base.torch_private import pytree
from fxlab.models.running.arguments import (
    Inputs,
    call_arguments,
    given_arguments,
    model_inputs_in_batch,
    named_arguments,
    names_of_inputs,
    takes_by_name,
)
from fxlab.tracing.report import TraceError


@dataclass(frozen=True)
class Batch:
    """Inputs of a model: the tensors are arguments of the step, and all else is fixed."""

    names: tuple[str, ...]
    """The path of each tensor: the argument, and the place in it."""
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Any, ...]
    """All leaves of the structure, the tensors too."""
    structure: Any
    """As in the inputs: a mapping, a tuple or one tensor."""

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Inputs, loss: Callable[..., Any] | None, *, copied: bool = True
    ) -> Batch:
        """Take inputs of a model and its loss apart; TypeError or ValueError if they are no inputs."""
        args, kwargs = (call_arguments if copied else given_arguments)(inputs)
        is_tensor, is_named = isinstance(inputs, torch.Tensor), isinstance(inputs, Mapping)
        leaves, structure = pytree.tree_flatten(kwargs if is_named else args[0] if is_tensor else args)
        numbered = pytree.tree_unflatten(range(len(leaves)), structure)
        parts = (numbered,) if is_tensor else numbered
        by_name = numbered if is_named else _by_name(model, tuple(parts), loss)
        paths = dict[int, str]()
        for path, place in pytree.tree_flatten_with_path(by_name)[0]:
            keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
            paths[place] = ".".join(map(str, keys))
        tensors = {
            at: leaf.detach().requires_grad_(leaf.requires_grad)  # a model may derive its output by it
            for at, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor)
        }
        if computed := next((paths[at] for at in tensors if leaves[at].grad_fn is not None), None):
            raise ValueError(
                f"inputs: {computed} was computed from other tensors that require gradients, which get none "
                "from a step of this model alone. Pass it detached, or trace the model that computes it too."
            )
        return cls(tuple(paths[at] for at in tensors), tuple(tensors.values()), tuple(leaves), structure)

    def with_tensors(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        """Return inputs of the same structure with other tensors."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)


def _by_name(model: nn.Module, parts: tuple[Any, ...], loss: Callable[..., Any] | None) -> dict[str, Any]:
    by_name, beside = divided_by_name(model, parts) or ({}, ())
    if not by_name:
        taken = _taken(model, parts, loss)
        by_name, beside = named_arguments(model, taken, {}), parts[len(taken) :]
    return by_name | {f"target_{at}" if at else "target": part for at, part in enumerate(beside)}


def divided_by_name(model: nn.Module, given: Any) -> tuple[dict[str, Any], tuple[Any, ...]] | None:
    """Return the inputs by name that a batch begins with, and the parts behind them, if it has that form."""
    if not isinstance(given, tuple | list) or len(given) < 2 or not isinstance(given[0], Mapping):
        return None
    return ({**given[0]}, tuple(given[1:])) if takes_by_name(model, given[0]) else None


def called(model: nn.Module, loss: Callable[..., Any] | None, given: Any) -> tuple[Any, tuple[Any, ...]]:
    """Call a model with a batch; return its output, and the parts that it does not take, or else all."""
    if (parts := divided_by_name(model, given)) is not None:
        return model(**parts[0]), parts[1] if loss is not None and _takes_inputs(loss) else ()
    if loss is None or not _takes_inputs(loss):
        args, kwargs = given_arguments(given)
        return model(*args, **kwargs), ()
    taken = _taken(model, given, loss)
    args, kwargs = given_arguments(taken)
    rest: tuple[Any, ...] = ()
    if isinstance(given, tuple | list):
        rest = tuple(given[len(taken) :])
    elif isinstance(given, Mapping):
        rest = tuple(value for name, value in given.items() if name not in taken)
    return model(*args, **kwargs), rest or (given,)


def _taken(model: nn.Module, given: Any, loss: Callable[..., Any] | None) -> Any:
    """Return the parts of a batch that a model takes; labels are the last part, unless it requires that."""
    taken = model_inputs_in_batch(given, model, optional=True)
    if loss is None or not _takes_inputs(loss) or not isinstance(given, tuple | list):
        return taken
    names = names_of_inputs(model)
    is_required = names is None or len(given) <= max(names.required, 1)
    return taken if is_required else taken[: len(given) - 1]


def loss_of(loss: Callable[..., Any] | None, output: Any, beside: tuple[Any, ...]) -> torch.Tensor:
    """Return the loss as one number with gradients; TraceError if it is none."""
    if loss is None:
        found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if found is None:
            raise TraceError(
                f"The output of the model ({type(output).__name__}) has no loss. Give inputs for which it "
                "has one (transformers: labels), or a function: loss=lambda output, inputs: ..."
            )
    else:
        found = loss(output, *beside)
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        shape = f" of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else ""
        raise TraceError(
            f"loss: expected a tensor of one element, got {type(found).__name__}{shape}. "
            "Reduce it, for example with .mean()."
        )
    if not found.requires_grad:
        raise TraceError(
            "loss: no gradients flow from it. A parameter that it is made of has to require them."
        )
    return found


def _takes_inputs(loss: Callable[..., Any]) -> bool:
    try:
        given = inspect.signature(getattr(loss, "forward", loss)).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in positional if p.default is p.empty]) >= 2
