"""Modules put into and taken out of a module tree, for the journal; stand-ins for others, for passes."""

import copy
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.models.graph_modules.parts import Container
from fxlab.transformations.journal.name_order import in_order
from fxlab.values.tensors import bits_of, same_bits


def split_path(path: str) -> tuple[str, str]:
    """Return the path of a module's parent and its name there: ``"a.b.c"`` -> ``("a.b", "c")``."""
    parent, _, name = path.rpartition(".")
    return parent, name


def join_path(parent: str, name: str) -> str:
    """Return the path of a child."""
    return f"{parent}.{name}" if parent else name


def parents_of(path: str) -> list[str]:
    """Return the paths of a module's parents, from the root: ``"a.b.c"`` -> ``["", "a", "a.b"]``."""
    names = path.split(".")[:-1]
    return [".".join(names[:length]) for length in range(len(names) + 1)]


def find_module(root: nn.Module, path: str) -> nn.Module | None:
    """Return the module at a path, or ``None``."""
    module: nn.Module | None = root
    for name in path.split(".") if path else ():
        module = module._modules.get(name) if module is not None else None
    return module


def put_module(root: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a path, in place of any other; missing parents are made."""
    parent_path, name = split_path(path)
    parent = root
    for part in parent_path.split(".") if parent_path else ():
        child = parent._modules.get(part)
        if child is None:
            child = Container().train(parent.training)
            parent.add_module(part, child)
        parent = child
    parent._modules[name] = module


def remove_module(root: nn.Module, path: str) -> None:
    """Remove the module at a path, if there is one."""
    parent_path, name = split_path(path)
    parent = find_module(root, parent_path)
    if parent is not None:
        parent._modules.pop(name, None)


def reorder_children(root: nn.Module, path: str, order: list[str]) -> None:
    """Sort the children of the module at a path by an order of names."""
    parent = find_module(root, path)
    if parent is None:
        return
    names = in_order(parent._modules, order)
    children = dict(parent._modules)
    parent._modules.clear()
    parent._modules.update({name: children[name] for name in names})


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module; the dictionaries of its children, tensors and hooks are copied."""
    attributes = vars(module).items()
    return {name: copy.copy(value) if isinstance(value, dict) else value for name, value in attributes}


@dataclass(frozen=True)
class ModulePrint:
    """A fingerprint of a module: its tensors, flags and mode."""

    tensors: dict[str, tuple[object, ...]]
    """Dtype, device, shape and a checksum of each: a different tuple once it is written, moved or cast."""
    requires_grad: dict[str, bool]
    training: bool

    @classmethod
    def of(cls, module: nn.Module, names: Collection[str] | None = None) -> "ModulePrint":
        """Take the print of a module, of all its tensors or of those with the given names."""
        return cls(
            {
                name: (tensor.dtype, str(tensor.device), tuple(tensor.shape), _checksum(tensor))
                for name, tensor in module.named_parameters()
                if names is None or name in names
            },
            {name: parameter.requires_grad for name, parameter in module.named_parameters()},
            module.training,
        )


def carry_tensor(module: nn.Module, name: str, value: torch.Tensor) -> None:
    """Give a parameter of a module a new value, dtype or device, in the same object.

    An equal value is not written. Only if the parameter cannot be changed in place, as on the meta device, a
    new object replaces it, as ``Module.to`` does.
    """
    parameter, value = module.get_parameter(name), value.detach()
    if same_bits(parameter.detach(), value):
        return
    if (parameter.dtype, parameter.device) == (value.dtype, value.device):
        with torch.no_grad():
            parameter.data.copy_(value)
        return
    value = value.clone(memory_format=torch.preserve_format)
    if torch._has_compatible_shallow_copy_type(parameter, value):
        parameter.data = value
    else:
        setattr(module, name, nn.Parameter(value, parameter.requires_grad))


def carry_flags(current: nn.Module, made: ModulePrint, originals: Iterator[nn.Module]) -> None:
    """Bring a new mode and ``requires_grad`` of a replacement to its originals."""
    frozen_or_freed = {
        name: parameter.requires_grad
        for name, parameter in current.named_parameters()
        if made.requires_grad.get(name, parameter.requires_grad) != parameter.requires_grad
    }
    for original in originals:
        if current.training != made.training:
            original.train(current.training)
        if not frozen_or_freed:
            continue
        for name, parameter in original.named_parameters():
            if name not in made.requires_grad or name in frozen_or_freed:
                parameter.requires_grad_(frozen_or_freed.get(name, next(iter(frozen_or_freed.values()))))


def _checksum(tensor: torch.Tensor) -> int | None:
    """Return a checksum of the bits of a tensor; ``None`` for one without data, as on the meta device."""
    if tensor.is_meta:
        return None
    return zlib.crc32(bits_of(tensor).cpu().numpy().data)
