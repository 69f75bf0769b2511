"""Copies of graph modules that share their tensors: stages, traces and exports are made of them."""

import copy
import copyreg
import types
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.base.torch_private import without_tensors
from fxlab.models.graph_modules.graph_module import (
    CODE_ON_DEMAND,
    INPUTS,
    SharedByCopies,
    code_on_demand,
    copy_others,
)
from fxlab.values.tensors import same_bits

_WITHOUT_PARTS = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, Graph)
"""Types that a deep copy shares, or copies without reaching a tensor of the model."""


def share_tensors_copy(
    graph_module: GraphModule,
    *,
    own: Callable[[torch.Tensor], bool] = lambda tensor: False,
    memo: dict[int, Any] | None = None,
) -> GraphModule:
    """Copy a module's structure, sharing its tensors.

    Every submodule, the graph, its metadata and ``graph_module.meta`` are copied; every parameter, buffer and
    constant is the same object in both. A change to the structure of one never shows in the other. ``own``:
    tells which tensors are copied; left out, none. ``memo``: takes the copies, by the ``id`` of their
    originals. Returns the copy, of the same class name.
    """
    memo = {} if memo is None else memo
    modules = [module for module in graph_module.modules() if id(module) not in memo]
    known: dict[int, bool] = {}
    plain = [
        module
        for module in reversed(modules)  # submodules first, so that their owners find the copies
        if _is_plain(type(module)) and not _holds_modules_elsewhere(module, known)
    ]
    tensors = _tensors_of(graph_module, {id(module) for module in plain})
    memo |= {id(tensor): tensor for tensor in tensors if not own(tensor)}
    # Process groups and the like, which torch cannot copy.
    held = (value for module in modules for value in vars(module).values())
    memo |= {id(value): value for value in held if isinstance(value, torch.ScriptObject)}
    memo |= {id(module): type(module).__new__(type(module)) for module in plain}
    # By hand, as copy.deepcopy of each module made most of the cost of switching a pass on.
    for module in plain:
        state: dict[str, Any] = module.__getstate__()  # type: ignore[no-untyped-call]
        copied = {name: _part_copied(value, memo, own) for name, value in state.items()}
        memo[id(module)].__setstate__(copied)
    return _structural_copy(graph_module, memo)


def _is_plain(cls: type[nn.Module]) -> bool:
    """Tell whether a deep copy of a module is just a new object with copies of the attributes."""
    if cls not in _PLAIN_MODULES:
        names = "__reduce_ex__", "__reduce__", "__new__", "__getstate__", "__setstate__"
        _PLAIN_MODULES[cls] = (
            all(getattr(cls, name, None) == getattr(nn.Module, name, None) for name in names)
            and not hasattr(cls, "__deepcopy__")
            and cls not in copyreg.dispatch_table
            and not any(map(_slots, cls.__mro__))
        )
    return _PLAIN_MODULES[cls]


def _holds_modules_elsewhere(module: nn.Module, known: dict[int, bool]) -> bool:
    """Tell whether an attribute leads to modules, which could be copied too early, or copies by itself."""
    if "__deepcopy__" in vars(module):
        return True
    for name, value in vars(module).items():
        if name in _REGISTRIES or type(value) in _UNCOPIED or (isinstance(value, dict | set) and not value):
            continue
        if id(value) not in known:
            known[id(value)] = any(isinstance(each, nn.Module) for each in _inside(value))
        if known[id(value)]:
            return True
    return False


_PLAIN_MODULES: weakref.WeakKeyDictionary[type[nn.Module], bool] = weakref.WeakKeyDictionary()
_UNCOPIED = (type(None), bool, int, float, str)
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def _part_copied(value: Any, memo: dict[int, Any], own: Callable[[torch.Tensor], bool]) -> Any:
    """Return a deep copy of an attribute, with the same tensors except ``own`` ones."""
    kind = type(value)
    if kind in _UNCOPIED:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if kind is dict or (kind is OrderedDict and not value):
        result = memo[id(value)] = kind()
        result.update((copy.deepcopy(k, memo), _part_copied(item, memo, own)) for k, item in value.items())
        return result
    memo.update((id(tensor), tensor) for tensor in _tensors_of(value) if not own(tensor))
    return copy.deepcopy(value, memo)


T = TypeVar("T")


def deep_copy(value: T, memo: dict[int, Any] | None = None) -> T:
    """Return ``copy.deepcopy`` of a graph or module, without torch's warning about its own class."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        return copy.deepcopy(value, memo)


def _structural_copy(graph_module: GraphModule, memo: dict[int, Any]) -> GraphModule:
    result = deep_copy(graph_module, memo)
    # torch's copy calls each class GraphModule.
    type(result).__name__ = type(graph_module).__name__
    copy_others(graph_module, result, memo)
    return result


def changed_copy(
    graph_module: GraphModule,
    change: Callable[[GraphModule], GraphModule],
    *,
    writes_tensors: bool = True,
    code_when_asked: bool = False,
) -> GraphModule:
    """Apply a change to a copy of a module; the module itself and its tensors do not change.

    ``graph_module``: the module to copy; it is never changed, even if ``change`` raises. ``change``: takes
    the copy and returns the changed module. ``writes_tensors``: whether ``change`` may write into tensors in
    place. If so it gets tensors of its own, and those that it leaves alone are replaced by the originals
    afterwards, so that the two modules share them. ``code_when_asked``: whether generating the code of the
    changed graph waits until the module is called, or its code read; for a change that makes no graph without
    code. Returns the result of ``change``.
    """
    from fxlab.values.results_on_disk import results_on_disk

    with results_on_disk(graph_module):
        if writes_tensors:
            return _written_copy(graph_module, change)
        with code_on_demand(True):
            copied = share_tensors_copy(graph_module)
            _note_inputs(copied, graph_module)
        with code_on_demand(code_when_asked or CODE_ON_DEMAND.get()):
            return change(copied)


def _note_inputs(copied: GraphModule, graph_module: GraphModule) -> None:
    if graph_module in INPUTS:
        INPUTS[copied] = INPUTS[graph_module][0], {}


def _written_copy(graph_module: GraphModule, change: Callable[[GraphModule], GraphModule]) -> GraphModule:
    originals = list(_tensors_of(graph_module))
    memo: dict[int, Any] = {}
    copied = _structural_copy(graph_module, memo)
    _note_inputs(copied, graph_module)
    result = change(copied)
    twins = {id(memo[id(tensor)]): tensor for tensor in originals if id(tensor) in memo}
    for module in result.modules():
        holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for holder in holders:
            for name, tensor in holder.items():
                original = twins.get(id(tensor))
                if tensor is not None and original is not None and same_bits(tensor, original):
                    holder[name] = original
    return result


def _tensors_of(whole: Any, apart_from: Iterable[int] = ()) -> Iterator[torch.Tensor]:
    """Yield each tensor that a deep copy would reach, except through objects of some ``id``."""
    for value in _inside(whole, apart_from):
        if isinstance(value, torch.Tensor):
            yield value
            # torch warns when .grad of another tensor than a leaf is read.
            if value.is_leaf and value.grad is not None:
                yield value.grad


def _inside(whole: Any, apart_from: Iterable[int] = ()) -> Iterator[Any]:
    seen = set(apart_from)
    pending: list[Any] = [whole]
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            pending.extend(() if isinstance(value, torch.Tensor) else _parts(value))


def _parts(value: Any) -> Iterable[Any]:
    """Return the values directly inside another one."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if isinstance(value, (*_WITHOUT_PARTS, SharedByCopies)) or without_tensors(value):
        return ()
    slots = (name for cls in type(value).__mro__ for name in _slots(cls) if hasattr(value, name))
    return (*getattr(value, "__dict__", {}).values(), *(getattr(value, name) for name in slots))


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if isinstance(vars(cls).get(name), types.MemberDescriptorType))
