"""The class of fxlab's graph modules: exact pickles, safe code, errors for inputs that do not fit.

torch pickles a ``GraphModule`` as generated code and traces that code again on loading, which loses the names
of the nodes and all of ``node.meta``, and with them every mark of a transformation. After
:func:`ensure_picklable`, a graph module pickles its graph instead.
"""

import copy
import functools
import linecache
import pickle
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Self, SupportsIndex, cast

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx import graph_module as graph_module_of_torch

from fxlab.base.garbage import without_collecting
from fxlab.models.graph_modules.generated_code import protect
from fxlab.values.nested import REFUSAL

HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
"""Attributes with a module's own hooks, which ``GraphModule.__deepcopy__`` leaves behind."""

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


def copy_others(graph_module: GraphModule, result: GraphModule, memo: dict[int, Any]) -> None:
    """Give a copy by torch the hooks and attributes that it lacks."""
    for name, value in vars(graph_module).items():
        if name in HOOKS or name not in vars(result):
            vars(result)[name] = copy.deepcopy(value, memo)


CODE_ON_DEMAND = ContextVar("code is generated when it is asked for", default=False)


@contextmanager
def code_on_demand(value: bool) -> Iterator[None]:
    """Choose whether graph modules copied in the block generate their code on demand or at once."""
    token = CODE_ON_DEMAND.set(value)
    try:
        yield
    finally:
        CODE_ON_DEMAND.reset(token)


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
        with code_on_demand(False):
            graph_module.recompile()


def _waiting(graph_module: GraphModule) -> _CodeWhenAsked | None:
    """Return the stand-in for the code of a graph module, if the code is not generated yet."""
    forward = vars(type(graph_module)).get("forward")
    return forward if isinstance(forward, _CodeWhenAsked) else None


def _forget_source(filename: str) -> None:
    getattr(getattr(graph_module_of_torch, "_loader", None), "eval_cache", {}).pop(filename, None)
    linecache.cache.pop(filename, None)


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
        if CODE_ON_DEMAND.get():
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
        copy_others(graph_module, result, memo)
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
