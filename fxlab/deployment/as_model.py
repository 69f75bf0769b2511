"""A module of a model's own class whose ``forward`` runs graphs."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable
from functools import cached_property
from types import CodeType, MethodType
from typing import Any

import torch
from torch import nn

from fxlab.deployment.compiled_model import CompiledModel
from fxlab.deployment.held_graph import Switched
from fxlab.exchanged import ABSENT
from fxlab.first_use import pd
from fxlab.models.graph_module import HOOKS


def as_model(model: nn.Module, passes: Switched, *, check: bool) -> nn.Module:
    """Return a module of the class of a model, with its parameters, that runs graphs transformed by passes.

    Raises ValueError if the model has an attribute ``graphs``.
    """
    if hasattr(model, "graphs"):
        raise ValueError(
            f"{type(model).__name__} has an attribute graphs, the name of the table that the result gets. "
            "Rename it in the model."
        )
    result = twin_of(model)
    forward = Forward(result, vars(model).get("forward"), passes, check, Followed(model))
    vars(result).update(forward=forward, graphs=forward.graphs)
    return result


def twin_of(model: nn.Module) -> nn.Module:
    """Return a module of a model's own class that shares its registries of parameters, buffers and modules.

    A move, a load or a replacement in one shows in both. Hooks of the module itself are its own.
    """
    result: nn.Module = object.__new__(type(model))
    vars(result).update(vars(model))
    for name in HOOKS:
        vars(result)[name] = vars(model)[name].copy()
    return result


class Followed:
    """A model whose set or deleted attributes are carried over to its twin."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._known = dict(vars(model))

    def changed(self) -> dict[str, Any]:
        """Return the attributes set since the last call, by name, with :data:`ABSENT` for deleted ones."""
        model = self._model()
        now = self._known if model is None else vars(model)
        names = {**self._known, **now}
        found = {
            name: value
            for name in names
            if (value := now.get(name, ABSENT)) is not self._known.get(name, ABSENT) and name not in HOOKS
        }
        if found:
            self._known = dict(now)
        return found


def _is_traced_now() -> bool:
    """Tell whether the running code is traced or compiled, which needs code and no graphs."""
    return bool(
        torch.compiler.is_compiling()
        or torch.compiler.is_dynamo_compiling()
        or torch._C._is_tracing()
        or torch.fx._symbolic_trace._is_fx_tracing_flag
    )


class Forward:
    """The ``forward`` of such a module: it chooses a graph for each call, or runs the model's ``own`` code.

    ``check``: whether a transformed graph is used only if it computes the same up to rounding. ``followed``:
    whose attributes the module takes over, if it is not on its own.
    """

    def __init__(
        self,
        module: nn.Module,
        own: Callable[..., Any] | None,
        passes: Switched,
        check: bool,
        followed: Followed | None = None,
    ) -> None:
        self._module, self._own, self._passes, self._check = module, own, passes, check
        self._followed = followed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        if _is_traced_now():
            # A tracer needs the code, not a choice of graphs; Dynamo cannot trace a newly bound method.
            if self._own is not None:
                return self._own(*args, **kwargs)
            return type(self._module).forward(self._module, *args, **kwargs)
        if self._followed is not None:
            self._take_over(self._followed.changed())
        return self._compiled(args, kwargs)

    def _take_over(self, changed: dict[str, Any]) -> None:
        for name, value in changed.items():
            if name == "forward":
                self._own = None if value is ABSENT else value
                for made in ("_compiled", "__signature__"):
                    vars(self).pop(made, None)
            elif value is ABSENT:
                vars(self._module).pop(name, None)
            else:
                vars(self._module)[name] = value

    def graphs(self) -> pd.DataFrame:
        """Return a table of the graphs, and of the calls that run eagerly.

        Returns
        -------
        pandas.DataFrame
            A row for each graph, and for each reason to run eagerly: ``call`` (the arguments of the first),
            ``mode``, ``runs`` (``graph`` or ``eager``), ``hits``, ``nodes``, ``passes`` (that changed the
            graph), ``verdict`` (on these arguments) and ``reason`` (of running eagerly, or without a pass).
        """
        return self._compiled.table()

    @property
    def eager(self) -> Callable[..., Any]:
        """The model's own ``forward``, or that of its class."""
        return self._own or MethodType(type(self._module).forward, self._module)

    @property
    def __code__(self) -> CodeType:
        """The code of the model's own ``forward``, for which ``torch.export`` asks."""
        code: CodeType = inspect.unwrap(getattr(self.eager, "__func__", self.eager)).__code__
        return code

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The signature of the model's own ``forward``."""
        return inspect.signature(self.eager)

    @cached_property
    def _compiled(self) -> CompiledModel:
        # Made when it is needed: a module that is being loaded from a pickle has no attributes yet.
        from fxlab.deployment.compiled_model import CompiledModel

        return CompiledModel(self._module, self._own, self.eager, self._passes, check=self._check)

    def __deepcopy__(self, memo: dict[int, Any]) -> Forward:
        """Copy it with its module; the copy has no graphs yet, and follows the same switches."""
        module, own = copy.deepcopy((self._module, self._own), memo)
        return Forward(module, own, self._passes, self._check)

    def __getstate__(self) -> tuple[Any, ...]:
        """Pickle no graphs, and the passes that are on now."""
        return self._module, self._own, self._passes.now(), self._check

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Restore the state from a pickle."""
        self._module, self._own, passes, self._check = state
        self._followed = None
        self._passes = Switched(lambda: passes, lambda: passes)
