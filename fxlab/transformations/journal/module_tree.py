"""Putting modules into a module tree and taking them out, by their path."""

import copy
from typing import Any

from torch import nn

from fxlab.models.containers import Container
from fxlab.transformations.journal.name_order import in_order


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
    """Return the module at a path, or ``None`` where there is none."""
    module: nn.Module | None = root
    for name in path.split(".") if path else ():
        module = module._modules.get(name) if module is not None else None
    return module


def put_module(root: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a path, in place of what is there; missing parents are made."""
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
    """Remove the module at a path, where there is one."""
    parent_path, name = split_path(path)
    parent = find_module(root, parent_path)
    if parent is not None:
        parent._modules.pop(name, None)


def child_names(root: nn.Module, path: str) -> list[str]:
    """Return the names of the children of the module at a path, in order."""
    parent = find_module(root, path)
    return [] if parent is None else list(parent._modules)


def reorder_children(root: nn.Module, path: str, order: list[str]) -> None:
    """Put the children of the module at a path in an order of names that knows them."""
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


def unused_name(parent: nn.Module, wanted: str) -> str:
    """Return ``wanted``, or a numbered variant of it where the parent has that attribute already."""
    name, number = wanted, 0
    while hasattr(parent, name):
        number += 1
        name = f"{wanted}_{number}"
    return name
