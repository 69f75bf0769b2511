"""The model that is given to a trace: checks, a function as a module, and modules kept as one node."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from fxlab.base.checks import describe
from fxlab.tracing.model_code.model_files import file_of

_SHARDING = ("torch.distributed.fsdp", "torch.distributed._composable")
_FINDING = {"modules", "named_modules", "parameters", "named_parameters", "buffers", "named_buffers"}


def check_is_module(model: object) -> None:
    """Raise the ``TypeError`` that asks for a module in Python."""
    refuse_torch_script(model, "model")
    if isinstance(model, ExportedProgram):
        raise TypeError(
            "model: expected a torch.nn.Module, got an ExportedProgram, which is traced already. Its "
            "graph module is "
            "fxlab.from_exported(model); fxlab.Session, inspect, draw and report take the program itself."
        )
    if not isinstance(model, nn.Module):
        is_traced = "graph_module" in dir(model)  # a session makes its own when it is read
        advice = "Its graph is model.graph_module" if is_traced else "Load or build the model first"
        advice = "Write fxlab.load_model(place)" if isinstance(model, str | os.PathLike) else advice
        raise TypeError(
            f"model: expected a torch.nn.Module, got {describe(model)}"
            f"{', which is traced already' if is_traced else ''}. {advice}."
        )


def refuse_torch_script(model: object, name: str) -> None:
    """Raise the ``TypeError`` for objects of ``torch.jit``, whose graph is not a ``torch.fx`` graph."""
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise TypeError(
            f"{name}: expected a module in Python, got {describe(model)}, which torch.jit made and "
            "whose graph is none "
            "of torch.fx. Give the module that it was made of."
        )


def traceable(model: nn.Module | Callable[..., Any]) -> nn.Module:
    """Return a model that can be traced, or the source of a compiled one; raise if there is none.

    A function is traced as the module that calls it.
    """
    if is_function(model):
        model = module_of(model)
    check_is_module(model)
    assert isinstance(model, nn.Module)
    if type(model).__module__ == "torch._dynamo.eval_frame":  # the result of torch.compile
        model = model.get_submodule("_orig_mod")
    _check_hides_no_method(model, "")
    classes = ((name, cls) for name, module in model.named_modules() for cls in type(module).__mro__)
    # FSDP manages these modules, whose parameters are there only while they run.
    if sharded := [name for name, cls in classes if file_of(cls).startswith(_SHARDING)]:
        raise ValueError(
            f"model: {sharded[0] or 'it'} is sharded by FSDP, whose hooks gather weights while it runs. "
            "Trace the model before it is sharded, and shard what you make of the graph."
        )
    tensors = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, tensor in tensors if is_lazy(tensor)]:
        raise ValueError(
            f"model: {', '.join(lazy[:3])}{' and more' if len(lazy) > 3 else ''} not initialized yet, as the "
            "shapes of lazy modules come with the first inputs. Run the model on them once, then trace it."
        )
    return model


def _check_hides_no_method(module: nn.Module, path: str) -> None:
    """Raise if an attribute hides a method that finds modules or tensors."""
    for name in _FINDING.intersection((*vars(module), *module._modules.keys())):
        if not callable(value := getattr(module, name)) or isinstance(value, nn.Module):
            raise ValueError(
                f"model: the attribute self.{name} of {path or type(module).__name__} ({describe(value)}) "
                f"hides the method {name}() of torch.nn.Module, by which others find what is in a module. "
                "Give the attribute another name."
            )
    for name, child in module._modules.items():
        if child is not None:
            _check_hides_no_method(child, f"{path}.{name}".lstrip("."))


def attribute_of(model: nn.Module, name: str) -> Any:
    """Return an attribute of a model, ``None`` where asking for it raises anything."""
    try:
        return getattr(model, name, None)
    except Exception:  # a property, or ``__getattr__``, is the model's own code
        return None


def has_data(model: nn.Module) -> bool:
    """Tell whether a model can be run: it cannot on the meta device."""
    return not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def is_function(value: object) -> bool:
    """Tell whether a value is a function, a method or a partial function, and no class or object."""
    return isinstance(value, _FUNCTIONS)


def module_of(function: Callable[..., Any]) -> nn.Module:
    """Return a module that calls a function, and holds the modules that this reads from outside of it.

    Those are the owner of a method, and modules that variables around a function or global ones stand for.
    They keep these names, which are the paths of their parameters in a graph.

    Examples
    --------
    >>> layer = nn.Linear(2, 2)
    >>> [name for name, _ in module_of(lambda x: layer(x) + 1).named_parameters()]
    ['layer.weight', 'layer.bias']
    """
    inner = _innermost(function)
    name = getattr(inner, "__name__", "")
    names = {"__module__": getattr(inner, "__module__", __name__), "__doc__": inner.__doc__}
    result: nn.Module = type(name if name.isidentifier() else "function", (nn.Module,), names)()
    for variable, module in _modules_read(function):
        if not hasattr(result, variable):
            result.add_module(variable, module)
    try:
        inspect.signature(function)
        vars(result)["forward"] = function
    except ValueError:  # functions in C do not tell their parameters
        vars(result)["forward"] = lambda *inputs: function(*inputs)
    modes = {module.training for module in result.children()}
    return result.train(modes.pop()) if len(modes) == 1 else result


def _innermost(function: Any) -> Any:
    """Return the function inside of a partial, or behind a wrapper that ``torch.compile`` has made."""
    while True:
        inner = getattr(function, "_torchdynamo_orig_callable", None)
        if inner is None or getattr(function, "_torchdynamo_disable", False):
            inner = function.func if isinstance(function, functools.partial) else None
        if inner is None:
            return function
        function = inner


def _modules_read(function: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(function, functools.partial):
        named = {f"argument_{place}": value for place, value in enumerate(function.args)} | function.keywords
        yield from ((name, value) for name, value in named.items() if isinstance(value, nn.Module))
    inner = _innermost(function)
    if isinstance(inner, MethodType) and isinstance(inner.__self__, nn.Module):
        yield "module", inner.__self__
    if not isinstance(inner, FunctionType):
        return
    around = inspect.getclosurevars(inner)
    for variable, value in {**around.globals, **around.nonlocals}.items():
        if isinstance(value, nn.Module):
            yield variable, value
        elif hasattr(value, "_torchdynamo_orig_callable"):
            yield from _modules_read(value)


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

Predicate: TypeAlias = Callable[[nn.Module, str], bool]
"""Told a module and its path, says whether it is one node."""

Choice: TypeAlias = type[nn.Module] | str | Predicate
"""A module class, a path in the module tree, or a predicate."""


class LeafModules:
    """Decides which modules become one ``call_module`` node each.

    ``chosen``: module classes, and paths in the module tree such as ``"encoder.layers.0"``, that are leaves
    besides those of ``torch.nn``; predicates, which decide alone. Raises TypeError for other values.
    """

    def __init__(self, chosen: Iterable[Choice] | Choice | None = None) -> None:
        is_one = isinstance(chosen, str) or not isinstance(chosen, Iterable)
        items: list[Any] = [] if chosen is None else [chosen] if is_one else list(chosen)  # type: ignore[arg-type]
        for item in items:
            is_class = isinstance(item, type) and issubclass(item, nn.Module)
            is_predicate = callable(item) and not isinstance(item, type | nn.Module)
            if not (isinstance(item, str) or is_class or is_predicate):
                raise TypeError(
                    "leaf_modules: expected module classes, module paths such as 'encoder.layers.0' and "
                    f"functions of a module and its path, got {item!r}"
                )
        self.paths = frozenset(item for item in items if isinstance(item, str))
        self._classes = tuple(item for item in items if isinstance(item, type))
        self._predicates: list[Predicate] = [item for item in items if not isinstance(item, str | type)]

    def require_known(self, model: nn.Module) -> None:
        """Raise ``ValueError`` unless a model has each of the paths."""
        if self.paths and (unknown := self.paths - dict(model.named_modules()).keys()):
            raise ValueError(f"leaf_modules: the model has no module {', '.join(sorted(unknown))}")

    def is_leaf(self, module: nn.Module, path: str) -> bool:
        """Tell whether the module at a path is a leaf, which the model itself, at the empty path, is not."""
        if not path:
            return False
        if self.is_named(module, path):
            return True
        of_torch = type(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
        return not self._predicates and of_torch and not isinstance(module, _CONTAINERS)

    def is_named(self, module: nn.Module, path: str) -> bool:
        """Tell whether the caller chose this module as a leaf."""
        chosen = path in self.paths or isinstance(module, self._classes)
        return chosen or any(predicate(module, path) for predicate in self._predicates)
