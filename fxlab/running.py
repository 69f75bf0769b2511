"""Running a model for a comparison: same inputs, same random numbers, nothing left behind."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from fxlab.interrupts import RestoringStack
from fxlab.nested import is_object, map_tensors, parted, put_together

_DERIVATIVES = (torch.autograd.grad, torch.autograd.backward, "backward", "requires_grad_")
"""Targets of nodes that need what they read to have a history."""

Inputs: TypeAlias = Mapping[str, Any] | tuple[Any, ...] | list[Any] | torch.Tensor
"""What a model is called with: keyword arguments, positional arguments, or one tensor."""


def checked_module(model: Any, name: str) -> torch.nn.Module:
    """Return ``model``, or raise the ``TypeError`` that says which argument is no module."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"{name}: expected a torch.nn.Module or GraphModule, got {type(model).__name__}. "
            "Load or build the model first."
        )
    return model


def generators_kept() -> AbstractContextManager[None]:
    """Put the random number generators of the CPU and of each CUDA device in use back, at the end.

    ``torch.manual_seed`` seeds all of them, whichever a model is on.
    """
    return torch.random.fork_rng(devices=cuda_devices_in_use())


def cuda_devices_in_use() -> list[int]:
    """Return all CUDA devices, or none as long as nothing has used CUDA."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if in_use else []


def run(model: Callable[..., Any], inputs: Inputs, *, seed: int = 0) -> Any:
    """Call a model on copies of its inputs with a fixed seed, and without gradients unless it needs them.

    Parameters
    ----------
    model
        The module, or what calls it, in the mode (training or not) that it is in.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple or list) or one tensor. Tensors are
        cloned, so that a model that writes into its inputs does not change the next run.
    seed
        For dropout and the like; the generators of the caller are left as they were.

    Returns
    -------
    Any
        The output of the model.

    Raises
    ------
    TypeError
        If ``inputs`` is none of these.
    """
    try:
        return detached(_run(model, inputs, seed, gradients_for(model)))
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
    # It takes derivatives of what it computes itself, as a force field does.
    return detached(_run(model, inputs, seed, torch.enable_grad()))


def _run(model: Callable[..., Any], inputs: Inputs, seed: int, gradients: AbstractContextManager[Any]) -> Any:
    args, kwargs = call_arguments(inputs)
    with RestoringStack(gradients, generators_kept()):
        torch.manual_seed(seed)
        return model(*args, **kwargs)


def gradients_for(model: Any) -> AbstractContextManager[Any]:
    """Return a context without gradients, or with them if a graph takes derivatives itself."""
    nodes = model.graph.nodes if isinstance(model, GraphModule) else ()
    takes_derivatives = any(node.target in _DERIVATIVES for node in nodes)
    return torch.enable_grad() if takes_derivatives else torch.no_grad()


def detached(value: Any) -> Any:
    """Return a nested value whose tensors have no history."""
    return pytree.tree_map(_without_history, value)


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of inputs as positional and keyword arguments; ``TypeError`` if they are neither."""
    if not isinstance(inputs, Mapping | tuple | list | torch.Tensor):
        raise TypeError(
            "inputs: expected a mapping of keyword arguments, a tuple of positional arguments or one tensor, "
            f"got {type(inputs).__name__}"
        )
    copied = pytree.tree_map(_copied, inputs)
    if isinstance(copied, Mapping):
        return (), dict(copied)
    return ((copied,) if isinstance(copied, torch.Tensor) else tuple(copied)), {}


def _without_history(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    return (
        put_together(map_tensors(lambda _, tensor: tensor.detach(), parted(leaf)))
        if is_object(leaf)
        else leaf
    )


def _copied(leaf: Any) -> Any:
    """Return a copy of a tensor, or of an object such as a cache, which a model may write into."""
    if not isinstance(leaf, torch.Tensor) and not is_object(leaf):
        return leaf
    return put_together(map_tensors(lambda _, tensor: tensor.clone(), parted(leaf)))
