"""Inputs of other kinds, made from given ones."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from fxlab.nested import map_tensors, parted, put_together, tensors_inside
from fxlab.running import Inputs, call_arguments

Change = Callable[[torch.Tensor], torch.Tensor]

LARGE = 100.0
"""What floating-point inputs are multiplied by to be large."""


def input_variants(inputs: Inputs) -> dict[str, Inputs]:
    """Make other inputs from given ones: other values, sizes, masks and magnitudes.

    Parameters
    ----------
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor.

    Returns
    -------
    dict of str to inputs
        By what they are. ``as given`` is the first; the others are those of which something is there to
        change:

        ``other values``
            Floating-point numbers are drawn anew with the same mean and deviation, the integers of each
            tensor change places (so they stay in range). Masks, of zeros and ones, stay.
        ``batch of ...``
            One element, and more than were given, where the first size of all tensors is the same.
        ``length ...``
            Shorter and longer along the second size, where integers have the same one (ids and masks).
        ``half masked``
            The second half of each mask is zero.
        ``large values``, ``zeros``
            Floating-point numbers times 100, and none.

    Raises
    ------
    TypeError
        If ``inputs`` is nothing that a model can be called with.

    Examples
    --------
    >>> ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    >>> variants = input_variants({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    >>> {name: tuple(given["input_ids"].shape) for name, given in variants.items()}
    {'as given': (2, 4), 'other values': (2, 4), 'batch of 1': (1, 4), 'batch of 5': (5, 4),
     'length 2': (2, 2), 'length 7': (2, 7), 'half masked': (2, 4)}
    """
    call_arguments(inputs)
    tensors = [tensor for _, tensor in tensors_inside(_plain(inputs))]
    result: dict[str, Inputs] = {"as given": inputs}
    for name, change in _changes(tensors):
        changed = [change(tensor) for tensor in tensors]
        if not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(changed, tensors, strict=True)):
            result[name] = _with_tensors(inputs, changed)
    return result


def _changes(tensors: list[torch.Tensor]) -> Iterator[tuple[str, Change]]:
    generator = torch.Generator().manual_seed(0)
    yield "other values", lambda tensor: _with_other_values(tensor, generator)
    batch = {tensor.shape[0] for tensor in tensors if tensor.dim()}
    if len(batch) == 1 and (size := batch.pop()) > 0:
        for other in (1, 2 * size + 1):
            yield f"batch of {other}", partial(_resized, dim=0, size=other)
    lengths = {tensor.shape[1] for tensor in tensors if _is_text(tensor)}
    if len(lengths) == 1 and (length := lengths.pop()) > 1:
        for other in (length // 2, 2 * length - 1):
            yield f"length {other}", partial(_with_length, length=other)
    yield "half masked", _half_masked
    yield "large values", lambda tensor: tensor * LARGE if tensor.is_floating_point() else tensor
    yield "zeros", lambda tensor: torch.zeros_like(tensor) if tensor.is_floating_point() else tensor


def _with_other_values(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if _is_mask(tensor) or tensor.numel() < 2:
        return tensor
    if tensor.is_floating_point():
        drawn = torch.randn(tensor.shape, generator=generator)
        wide = tensor.double()
        return (drawn.to(tensor.device) * wide.std() + wide.mean()).to(tensor.dtype)
    order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
    return tensor.flatten()[order].reshape(tensor.shape)


def _resized(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Return a tensor of another size, its elements over and over."""
    if not tensor.dim():
        return tensor
    return tensor.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])


def _half_masked(tensor: torch.Tensor) -> torch.Tensor:
    if not _is_mask(tensor) or not _is_text(tensor) or not tensor.any():
        return tensor
    result = tensor.clone()
    result[:, -(tensor.shape[1] // 2) :] = 0
    return result


def _is_mask(tensor: torch.Tensor) -> bool:
    """Tell whether there is nothing but zeros and ones."""
    return (
        not tensor.is_floating_point()
        and not tensor.is_complex()
        and bool(((tensor == 0) | (tensor == 1)).all())
    )


def _is_text(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and not tensor.is_floating_point()


def _with_length(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return _resized(tensor, 1, length) if _is_text(tensor) else tensor


def _plain(inputs: Inputs) -> Any:
    """Return inputs in containers alone: objects, such as caches, are taken apart."""
    return parted(inputs if isinstance(inputs, torch.Tensor | tuple | list) else dict(inputs))


def _with_tensors(inputs: Inputs, tensors: list[torch.Tensor]) -> Inputs:
    rest = iter(tensors)
    result: Inputs = put_together(map_tensors(lambda *_: next(rest), _plain(inputs)))
    return result
