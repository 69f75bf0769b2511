"""Tensors in nested values by path; bits and float64 copies of tensors, and their kinds: every room asks."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections import UserDict
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch

from fxlab.base.torch_private import FakeTensor, modes_disabled, pytree
from fxlab.values.nested import is_registered, parts_inside

NUMBERS = (bool, int, float, complex)
SIMPLE = (str, bytes, type(None), type, torch.dtype, torch.device, enum.Enum)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""The classes of numbers that are computed from sizes that vary."""
LEAVES = (torch.Tensor, *NUMBERS, *SYMBOLIC, *SIMPLE, ModuleType)


def tensors_by_path(output: Any) -> dict[str, torch.Tensor]:
    """Return each tensor (and number) inside a model's output by its path, in the order of the output.

    ``output``: a tensor or nested mappings (``ModelOutput`` is one), sequences, named tuples, dataclasses and
    objects with attributes (such as the caches of transformers, of which only tensors count). Numbers come as
    tensors without dimensions. The path of a bare tensor is ``"output"``.
    """
    found = {}
    for path, value in walk(output, "", set()):
        if isinstance(value, torch.Tensor):
            found[path or "output"] = value
        elif isinstance(value, NUMBERS) or _is_array(value):
            found[path or "output"] = torch.tensor(value, device="cpu")
        elif isinstance(value, SYMBOLIC):  # of which torch.tensor would take the number of this run
            dtype = torch.tensor((0, 0.0, False)[SYMBOLIC.index(type(value))], device="cpu").dtype
            found[path or "output"] = torch.scalar_tensor(cast("int", value), dtype=dtype, device="cpu")
    return found


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors agree in shape, dtype, device, ``requires_grad`` and every bit.

    NaN is itself, and 0.0 is not -0.0. Tensors on the meta device have no bits to differ in.
    """
    if (a.shape, a.dtype, a.device, a.requires_grad) != (b.shape, b.dtype, b.device, b.requires_grad):
        return False
    if (a.layout, a.is_quantized and a.qscheme()) != (b.layout, b.is_quantized and b.qscheme()):
        return False
    if inner_tensors(a) or inner_tensors(b):
        if type(a) is not type(b) or _settings(a) != _settings(b):
            return False
        return all(map(same_bits, inner_tensors(a).values(), inner_tensors(b).values()))
    return a.is_meta or torch.equal(bits_of(a), bits_of(b))


def refuse_fake(tensor: torch.Tensor) -> None:
    """Raise the ``ValueError`` for an input without numbers, such as those that a compiler's backend gets."""
    if isinstance(tensor, FakeTensor):
        raise ValueError(
            f"inputs: expected tensors with numbers, got a fake one of shape {tuple(tensor.shape)}, as "
            "AOTAutograd gives to compilers. Give real ones, or none to look at the graph alone."
        )


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements of a sparse tensor, the numbers of a quantized one, and others unchanged."""
    plain = tensor.dequantize() if tensor.is_quantized else tensor
    return plain if plain.layout is torch.strided else plain.to_dense()


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors in containers that torch takes apart: lists, tuples, dictionaries and the like."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def real_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers, and those of four bits, as pairs of real ones along a new dimension.

    Other numbers are unchanged, and bits of a dtype that torch does not compute with are whole numbers.
    """
    if tensor.dtype is _FOUR_BITS:
        numbers = torch.tensor(_OF_FOUR_BITS, device=tensor.device)
        both = tensor.view(torch.uint8)
        return torch.stack([numbers[(both & 15).long()], numbers[(both >> 4).long()]], -1)
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if _is_computed(tensor.dtype):
        return tensor
    return tensor.view(torch.uint8 if tensor.itemsize == 1 else torch.int16)


_FOUR_BITS = getattr(torch, "float4_e2m1fn_x2", None)
_OF_FOUR_BITS = [sign * number for sign in (1.0, -1.0) for number in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]
"""The numbers of one sign bit, two of the exponent and one of the mantissa, by their bits."""


@cache
def _is_computed(dtype: torch.dtype) -> bool:
    """Tell whether torch can convert a dtype, as it cannot integers of fewer than eight bits."""
    try:
        torch.zeros(16, dtype=torch.uint8, device="cpu").view(dtype).to(torch.float64)
    except (NotImplementedError, RuntimeError):
        return False
    return True


def unit_of(dtype: torch.dtype) -> float:
    """Return the relative rounding of a dtype; none of whole numbers, and of those of four bits."""
    if dtype is _FOUR_BITS:
        return 0.0
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def stored_otherwise(a: torch.Tensor, b: torch.Tensor) -> str:
    """Return in words how two tensors of one shape differ in layout or number of stored elements."""
    if a.layout != b.layout:
        return f"the layouts differ: {str(a.layout)[6:]} and {str(b.layout)[6:]}"
    if a.layout is torch.strided:
        return ""
    stored, others = (tensor._values() if tensor.is_sparse else tensor.values() for tensor in (a, b))
    if stored.shape == others.shape:
        return ""
    return f"they store {len(stored)} and {len(others)} elements"


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that is equal for tensors in the same memory."""
    return int(tensor.untyped_storage()._cdata)


def is_floating(tensor: torch.Tensor) -> bool:
    """Tell whether the elements of a tensor are floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the data of a tensor as bytes, in the order of its elements: uint8, in one dimension.

    The bytes of a wrapper, such as a quantized weight of torchao, are those of the tensors inside it.
    """
    inner = inner_tensors(tensor)
    if inner:
        return torch.cat([bits_of(part).cpu() for part in inner.values()])
    parts = [_bits_of_dense(part) for part in stored_parts(tensor.detach())]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def inner_tensors(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors that hold the data of a wrapper, by attribute; nothing for any other tensor.

    A wrapper is a tensor of a subclass that has a shape and a dtype, but no memory of its own, and may
    refuse any operation. Torch's protocol for them is ``__tensor_flatten__``; of one that lacks it, all
    attributes that are tensors count.
    """
    if is_plain(tensor):
        return {}
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        # Besides tensors it may name their layout, such as the mesh of a DTensor.
        held = {name: getattr(tensor, name) for name in flatten()[0]}
        return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
    if has_memory(tensor):
        return {}
    held = {name: value for name, value in vars(tensor).items() if isinstance(value, torch.Tensor)}
    return {name: value for name, value in held.items() if name != "grad"}


def address(tensor: torch.Tensor) -> int:
    """Return where the memory of a tensor begins, 0 if there is none: a wrapper, or one without data."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def version_of(tensor: torch.Tensor) -> int:
    """Return the count of writes to a tensor; -1 in inference mode, whose writes torch does not count."""
    return -1 if tensor.is_inference() else tensor._version


def is_plain(tensor: Any) -> bool:
    """Tell whether a tensor is of no subclass with its own behaviour."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_strided_on_cpu(value: Any) -> bool:
    """Tell whether a value is a plain tensor with strided numbers in the CPU's memory."""
    is_strided = is_plain(value) and value.layout is torch.strided
    return is_strided and value.device.type == "cpu" and not value.is_quantized


def has_memory(tensor: torch.Tensor) -> bool:
    """Tell whether the memory of a tensor is there, which that of a sharded parameter may not be."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return True
    try:
        return tensor.untyped_storage().data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:  # "an invalid python storage"
        return False


def _settings(tensor: torch.Tensor) -> str:
    """Return all that distinguishes two wrappers, except the data inside."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    names, context = flatten() if flatten is not None else ((), None)
    tensors = inner_tensors(tensor)
    others = [(name, getattr(tensor, name)) for name in names if name not in tensors]
    return repr((context, others, list(tensors)))


def _bits_of_dense(tensor: torch.Tensor) -> torch.Tensor:
    # A subclass may refuse these operations.
    with torch._C.DisableTorchFunctionSubclass():
        flat = tensor.as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous().flatten()
    # A single element counts as contiguous with any stride, but is not viewed as bytes.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def stored_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the plain tensors that store a tensor: itself, or those of a quantized or a sparse one."""
    if tensor.is_quantized:  # torch crashes when it compares the bytes of one
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            scale = torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64, device="cpu")
            return [tensor.int_repr(), scale.to(tensor.device)]
        return [tensor.int_repr(), tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
    if tensor.layout is torch.strided:  # most tensors are, and every run asks each
        return [tensor]
    return sparse_parts(tensor) or [tensor.to_dense() if tensor.is_mkldnn else tensor]


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the plain tensors that hold a sparse one; none for any other."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def known_number(number: Any) -> int | float | bool | str:
    """Return a number of a traced value as in the traced run.

    ``number``: a number, or a symbolic one (``torch.SymInt`` and its like), as sizes in ``node.meta["val"]``
    are. Returns the number; the symbol's name if it depends on data.
    """
    if isinstance(number, SYMBOLIC):
        number = number.node.hint if number.node.has_hint() else str(number)
    return cast("int | float | bool | str", number)


class NumberAttribute(NamedTuple):
    """A number that is an attribute of an object."""

    value: Any


def _is_array(value: Any) -> bool:
    """Tell whether a value is a NumPy array of numbers, or a single one of its own kind."""
    numpy = sys.modules.get("numpy")
    is_one = numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)
    return is_one and value.dtype.kind in "biufc"


def walk(value: Any, path: str, inside: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield a value and everything inside it, each container before its parts."""
    yield path, value
    if isinstance(value, (*LEAVES, NumberAttribute)) or callable(value) or id(value) in inside:
        return
    for name, part in _parts(value):
        yield from walk(part, f"{path}.{name}" if path else str(name), inside | {id(value)})


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a container, and its attributes besides."""
    held: dict[str, Any] = getattr(value, "__dict__", {})
    items: dict[Any, Any] = {}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = dict(zip(value._fields, tuple.__iter__(value), strict=True))
    elif isinstance(value, Mapping | list | tuple):
        items = dict(parts_inside(value))
        held = {} if isinstance(value, UserDict) or is_registered(value) else held
    elif dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        items = {name: getattr(value, name) for name in names if hasattr(value, name)}
    yield from items.items()
    for name, part in held.items():
        if name not in items:
            # Flags and counters, such as those of a cache, are no outputs.
            yield name, NumberAttribute(part) if isinstance(part, NUMBERS) else part


@cache
def has_float64(device: torch.device) -> bool:
    """Tell whether a device computes in float64; Apple's does not."""
    try:
        with modes_disabled():
            torch.empty(0, dtype=torch.float64, device=device)
    except Exception:  # each kind of device says so in its own way
        return False
    return True


def wide_device(device: torch.device) -> torch.device:
    """Return the device for float64 numbers of a device."""
    return device if has_float64(device) else torch.device("cpu")


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float64 for a floating-point dtype, complex128 for a complex one, and any other itself."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def to_float64(tensor: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    """Return a tensor in its wide dtype on its wide device; itself if it already is and no copy is wanted."""
    device = wide_device(tensor.device)
    if device != tensor.device:
        tensor, copy = tensor.to(device), False  # first, as the device may not convert it either
    return tensor.to(wide_dtype(tensor.dtype), copy=copy)
