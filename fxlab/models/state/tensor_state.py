"""Tensors of a model: their names and places, and their state at one moment, to tell if they changed."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx import GraphModule
from torch.optim.optimizer import register_optimizer_step_post_hook

from fxlab.base.torch_private import FakeTensor, is_of_transform
from fxlab.models.state.python_read import REGISTRIES
from fxlab.operators.node_info import attribute_at
from fxlab.values.tensors import address, bits_of, inner_tensors, is_strided_on_cpu, version_of

CALLS_A_MODULE = "fxlab.calls_a_module"
"""The entry of ``meta`` of a graph that is a single call of a module under the name ``model``."""
_OF_COMPILE = "_orig_mod."


def plain_name(module: nn.Module, name: str) -> str:
    """Return the name of a tensor as the model has it by itself, called by a graph or compiled or not."""
    if getattr(module, "meta", {}).get(CALLS_A_MODULE):
        name = name.removeprefix("model.")
    return name.replace(_OF_COMPILE, "")


def tensors_of(module: GraphModule) -> Iterator[torch.Tensor]:
    """Yield the parameters, buffers and constants of a module."""
    yield from module.parameters()
    yield from module.buffers()
    for node in module.graph.find_nodes(op="get_attr"):
        value = attribute_at(module, str(node.target))
        if isinstance(value, torch.Tensor):
            yield value


def place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a key that is equal for two tensors with the same memory and layout."""
    if is_of_transform(tensor):  # torch.func hides its memory
        return (id(tensor),)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


SMALL = 1 << 14
"""The most bytes of a tensor that is compared bit by bit: a counter that was put back is no change."""
_WHOLE, _SAMPLED = 1 << 10, 8
"""The most bytes of a tensor whose elements are all looked at without a count; how many are, of others."""


class Sampled:
    """Elements of tensors in the CPU's memory: a write that torch does not count shows in them.

    All of a small tensor are compared, some of a larger one: on one core a checksum of all takes 0.06 to
    0.4 s for a GB (a sum, ``torch.hash_tensor``), and a call with one row 0.14 s. Ask only while the tensors
    have the memory that they had.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        found = [tensor for tensor in tensors if _is_in_memory(tensor)]
        self._held = [tensor.untyped_storage() for tensor in found]
        self._parts = [_elements(tensor) for tensor in found]
        self._before = self._now()

    def _now(self) -> bytes:
        return np.concatenate(self._parts).tobytes() if self._parts else b""

    def changed(self) -> bool:
        """Tell whether an element is another one now."""
        return self._now() != self._before


def _is_in_memory(tensor: torch.Tensor) -> bool:
    if not is_strided_on_cpu(tensor):
        return False
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return 0 < extent == tensor.numel() and address(tensor) != 0


def _elements(tensor: torch.Tensor) -> Any:
    """Return some of a tensor's memory, whatever mode of torch is on."""
    memory: Any = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data_ptr())
    words = np.frombuffer(memory, f"u{min(tensor.itemsize, 8)}")
    return words if tensor.nbytes <= _WHOLE else words[:: (words.size - 1) // (_SAMPLED - 1)]


@dataclass(frozen=True, eq=False)
class TensorState:
    """A tensor at one moment; writes through ``tensor.data`` or NumPy change no version, but the sample."""

    tensor: torch.Tensor
    version: int
    place: tuple[object, ...]
    bits: torch.Tensor | None
    sample: Sampled
    inner: tuple[TensorState, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, *, keep_small: bool = False) -> TensorState:
        """Note the state of a tensor, with its bits if it is small and ``keep_small``."""
        count_fused_steps()
        inner = tuple(cls.of(part, keep_small=keep_small) for part in inner_tensors(tensor).values())
        has_bits = keep_small and not (inner or tensor.is_meta or isinstance(tensor, FakeTensor))
        is_small = has_bits and tensor.layout is torch.strided and tensor.numel() * tensor.itemsize <= SMALL
        bits = bits_of(tensor).clone() if is_small else None
        return cls(tensor, version_of(tensor), _place(tensor), bits, Sampled((tensor,)), inner)

    def is_of(self, tensor: torch.Tensor | None) -> bool:
        """Tell whether a tensor is the noted one, and unchanged."""
        if tensor is not self.tensor or tensor is None or _place(tensor) != self.place:
            return False
        parts = list(inner_tensors(tensor).values())
        if len(parts) != len(self.inner) or not all(map(TensorState.is_of, self.inner, parts)):
            return False
        if version_of(tensor) == self.version:
            return not self.sample.changed()
        return self.bits is not None and torch.equal(self.bits, bits_of(tensor))


def named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters, buffers and other tensors of a module, by all of their names."""
    for path, child in module.named_modules():
        own = ((name, value) for name, value in vars(child).items() if name not in REGISTRIES)
        for name, value in (*child._parameters.items(), *child._buffers.items(), *own):
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}" if path else name, value


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    is_plain = tensor.layout is torch.strided and not tensor.is_meta and not isinstance(tensor, FakeTensor)
    memory = (tensor.data_ptr(), tensor.stride()) if is_plain and not inner_tensors(tensor) else None
    return tensor.device, tensor.dtype, tensor.layout, tuple(tensor.shape), tensor.requires_grad, memory


@functools.cache
def count_fused_steps() -> None:
    """Count steps of fused optimizers as writes from now on, like those of other optimizers."""

    def count(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if group.get("fused"):  # whose kernels count no versions
                torch.autograd.graph.increment_version([p for p in group["params"] if p.grad is not None])

    register_optimizer_step_post_hook(count)
