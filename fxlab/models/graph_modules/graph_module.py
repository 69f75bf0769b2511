"""Exact pickles of graph modules, and copies that share their tensors.

torch pickles a ``GraphModule`` as generated code and traces that code again on loading, which loses the names
of the nodes and all of ``node.meta``, and with them every mark of a transformation. After
:func:`ensure_picklable`, a graph module pickles its graph instead.
"""

import copy
import copyreg
import functools
import linecache
import pickle
import types
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Self, SupportsIndex, TypeVar, cast

import numpy as np
import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.fx import graph_module as graph_module_of_torch

from fxlab.base.garbage import without_collecting
from fxlab.base.torch_private import without_tensors
from fxlab.models.graph_modules.generated_code import protect
from fxlab.values.nested import REFUSAL
from fxlab.values.tensors import same_bits

HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
"""Attributes with a module's own hooks, which ``GraphModule.__deepcopy__`` leaves behind."""

_WITHOUT_PARTS = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, Graph)
"""Types that a deep copy shares, or copies without reaching a tensor of the model."""


INPUTS: weakref.WeakKeyDictionary[GraphModule, tuple[tuple[Any, ...], dict[str, Any]]]
INPUTS = weakref.WeakKeyDictionary()
"""The inputs that a session was given for a plain graph, and fake values of its nodes by name, once asked.

Functions that make tensors of the same shapes stand for tensors, so that these are not kept alive.

They are no facts of the graph, which holds for others, so passes do not rely on them.
"""


class SharedByCopies:
    """An entry of ``graph_module.meta`` that copies of the module share, and pickles lose."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} cannot be pickled.")


def check_lints(graph_module: GraphModule, argument: str) -> None:
    """Refuse a graph that was broken before, so that no later failure is blamed for it."""
    try:
        graph_module.graph.lint()
    except Exception as error:
        raise ValueError(
            f"{argument}: its graph is broken, and was so before: {str(error).splitlines()[0]}. "
            "graph.lint() tells where; mend that first."
        ) from error


def ensure_picklable(graph_module: GraphModule) -> None:
    """Make ``pickle``, ``torch.save`` and ``copy.deepcopy`` keep the graph of a module exactly.

    Nodes keep their names, order, targets, arguments and every entry of ``node.meta`` that can be pickled;
    the same holds for ``graph_module.meta``. The class of the module becomes a subclass of its present one,
    which copies inherit; a second call does nothing.
    """
    protect(graph_module.graph)
    # torch gives every GraphModule a class of its own, so changing its base concerns this module alone.
    own_class = type(graph_module)
    base = own_class.__bases__[0]
    if not issubclass(base, _PicklesItsGraph):
        own_class.__bases__ = (_picklable_class(base),)  # type: ignore[arg-type]


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
    _copy_others(graph_module, result, memo)
    return result


def _copy_others(graph_module: GraphModule, result: GraphModule, memo: dict[int, Any]) -> None:
    """Give a copy by torch the hooks and attributes that it lacks."""
    for name, value in vars(graph_module).items():
        if name in HOOKS or name not in vars(result):
            vars(result)[name] = copy.deepcopy(value, memo)


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
        with _code_when_asked(True):
            copied = share_tensors_copy(graph_module)
            _note_inputs(copied, graph_module)
        with _code_when_asked(code_when_asked or _CODE_WHEN_ASKED.get()):
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


_CODE_WHEN_ASKED = ContextVar("code is generated when it is asked for", default=False)


@contextmanager
def _code_when_asked(value: bool) -> Iterator[None]:
    """Choose whether graph modules copied in the block generate their code on demand or at once."""
    token = _CODE_WHEN_ASKED.set(value)
    try:
        yield
    finally:
        _CODE_WHEN_ASKED.reset(token)


class _CodeWhenAsked:
    """Stands for ``forward`` in the class of one graph module until its first use."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._of = weakref.ref(graph_module)

    def __get__(self, instance: GraphModule | None, owner: type[GraphModule]) -> Any:
        self.generate()
        return (owner if instance is None else instance).forward

    def generate(self) -> None:
        """Generate the code: the class has its own ``forward`` from then on."""
        graph_module = self._of()
        assert graph_module is not None
        with _code_when_asked(False):
            graph_module.recompile()


def _waiting(graph_module: GraphModule) -> _CodeWhenAsked | None:
    """Return the stand-in for the code of a graph module, if the code is not generated yet."""
    forward = vars(type(graph_module)).get("forward")
    return forward if isinstance(forward, _CodeWhenAsked) else None


def _forget_source(filename: str) -> None:
    getattr(getattr(graph_module_of_torch, "_loader", None), "eval_cache", {}).pop(filename, None)
    linecache.cache.pop(filename, None)


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


_NO_TENSORS = (type(None), bool, int, float, complex, str, list, tuple, dict, np.ndarray)


KEYWORD_ORDER = "keyword_order"
"""In the ``meta`` of a graph module: the items of the model's ``**kwargs``, whose order it may read."""


class _PicklesItsGraph:
    """Mixed into a module's class by :func:`ensure_picklable`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; an error for something else in place of a tensor names the input."""
        order = cast(GraphModule, self).meta.get(KEYWORD_ORDER, ())
        given = [name for name in kwargs if name in order]
        if given != [name for name in order if name in given]:
            raise AssertionError(f"{REFUSAL} the keywords {', '.join(order)} in this order only")
        try:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if isinstance(error, AssertionError) or (words := self._no_tensor(args, kwargs)) is None:
                raise
            raise AssertionError(f"{REFUSAL} {words}") from error

    def _no_tensor(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return a message about the first input that was a tensor in the trace and is not one now."""
        inputs = cast(GraphModule, self).graph.find_nodes(op="placeholder")
        given = dict(zip((str(node.target) for node in inputs), args, strict=False)) | kwargs
        for node in inputs:
            if isinstance(node.meta.get("val"), torch.Tensor):
                if node.target not in given and not node.args:
                    return f"{node.name} as a tensor only, and it is missing"
                if isinstance(given.get(str(node.target), node), _NO_TENSORS):
                    return f"{node.name} as a tensor only"
        return None

    def recompile(self) -> Any:
        """Generate the code of the present graph, with names that nothing shadows."""
        protect(cast(GraphModule, self)._graph)
        if _CODE_WHEN_ASKED.get():
            type(self).forward = _CodeWhenAsked(cast(GraphModule, self))  # type: ignore[attr-defined]
            return None
        written = super().recompile()  # type: ignore[misc]
        # For tracebacks torch keeps the source of every version, megabytes for a long session.
        code = type(self).forward.__code__  # type: ignore[attr-defined]
        weakref.finalize(code, _forget_source, code.co_filename).atexit = False
        return written

    @property
    def code(self) -> str:
        """The code of the graph."""
        self._generate_if_asked_for()
        return super().code  # type: ignore[misc,no-any-return]

    def __str__(self) -> str:
        self._generate_if_asked_for()
        return super().__str__()

    def _generate_if_asked_for(self) -> None:
        if (waiting := _waiting(cast(GraphModule, self))) is not None:
            waiting.generate()

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        graph_module = cast(GraphModule, self)
        result: GraphModule = super().__deepcopy__(memo)  # type: ignore[misc]
        _copy_others(graph_module, result, memo)
        return result

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        from fxlab.models.graph_modules.graph_state import GraphState
        from fxlab.values.pickling import is_picklable

        graph_module = cast(GraphModule, self)
        if local := next(_local_functions(graph_module), None):
            raise pickle.PicklingError(
                f"Cannot pickle {type(self).__name__}: its {local} is a function that no module has under "
                "its name, so loading could not find it. Remove it; or, for a graph of torch.export, pickle "
                "what fxlab.from_exported makes of the program, which needs no such functions."
            )
        for part in graph_module.modules():
            if isinstance(part, GraphModule):  # a body, whose names would be lost as well
                ensure_picklable(part)
        base = next(
            cls
            for cls in type(self).__mro__
            if issubclass(cls, GraphModule) and not issubclass(cls, _PicklesItsGraph)
        )
        state = {name: value for name, value in vars(self).items() if name != "_graph"}
        state["meta"] = {key: value for key, value in graph_module.meta.items() if is_picklable(value)}
        state["shape_env"] = None
        with without_collecting():
            graph = GraphState.of(graph_module.graph, int(protocol))
        return _new_picklable, (base, type(self).__name__), (state, graph)

    def __setstate__(self, state: tuple[dict[str, Any], Any]) -> None:
        attributes, graph = state
        vars(self).update(attributes)
        with without_collecting():
            cast(GraphModule, self).graph = graph.build()


def _local_functions(graph_module: GraphModule) -> Iterator[str]:
    """Yield the attributes and hooks of modules with functions that cannot be pickled."""
    for path, module in graph_module.named_modules():
        for name, value in vars(module).items():
            functions = value.values() if name.endswith("_hooks") and isinstance(value, dict) else (value,)
            if any(callable(f) and not _is_found_by_name(f) for f in functions):
                yield f"{path}.{name}" if path else name


def _is_found_by_name(function: Any) -> bool:
    from fxlab.values.pickling import is_picklable

    if isinstance(function, types.MethodType):
        name = getattr(function.__func__, "__name__", "")
        return getattr(type(function.__self__), name, None) is function.__func__
    return not isinstance(function, types.FunctionType) or is_picklable(function)


@functools.cache
def _picklable_class(base: type[GraphModule]) -> type[GraphModule]:
    return type(base.__name__, (_PicklesItsGraph, base), {"__module__": base.__module__})


def _new_picklable(base: type[GraphModule], class_name: str) -> GraphModule:
    cls = _picklable_class(base)  # type: ignore[arg-type]
    result = cls.__new__(cls)
    type(result).__name__ = class_name
    return result
