"""One kind of call as a graph: traced on the arguments of a call, and run on those of others."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.deployment.arguments_written import WrittenArguments, set_number, with_numbers
from fxlab.deployment.calls import Call, NoKindError, is_changeable
from fxlab.deployment.effects import why_not_repeatable
from fxlab.models.graph_module import HOOKS
from fxlab.tracing import TraceReport, TraceWarning, symbolic_trace
from fxlab.tracing.findings import Found
from fxlab.values.nested import Path

NUMBER = "followed_number_{}"
"""The inputs for the integers that a graph follows: each is the size of a tensor without elements."""

_NOT_IN_GRAPH = ("attribute", "state")
"""Findings of a trace that make the model another one than its graph when it is called again."""


def twin_of(model: nn.Module) -> nn.Module:
    """Return a module of a model's own class with its parameters, buffers, submodules and attributes.

    The registries of the first three are the same objects, so that what is moved, loaded or replaced in one
    is so in both. Hooks and the mode of the module itself are its own.
    """
    result: nn.Module = object.__new__(type(model))
    vars(result).update(vars(model))
    for name in HOOKS:
        vars(result)[name] = vars(model)[name].copy()
    return result


def eager_forward(model: nn.Module, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the ``forward`` of a model's class, or the one that it has in its place."""
    return own or MethodType(type(model).forward, model)


class ChangesModelError(NoKindError):
    """The model's own code changes an attribute of the model.

    Attributes
    ----------
    name : str
        The attribute.
    """

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"{name}: {words}")
        self.name = name


class RefusesLateError(NoKindError):
    """A graph may refuse inputs after it has written or drawn something."""


def traced_call(
    model: nn.Module, own: Callable[..., Any] | None, call: Call, followed: tuple[Path, ...]
) -> TracedCall:
    """Trace a call; for sizes of its own if a graph that follows sizes would refuse too late."""
    try:
        return TracedCall(model, own, call, followed)
    except RefusesLateError:
        return TracedCall(model, own, call, followed, dynamic=False)


class TracedCall:
    """A graph for one kind of call.

    Parameters
    ----------
    model
        The module. The ``forward`` of its class is traced.
    own
        A ``forward`` that it has in place of that of its class.
    call
        The arguments to trace it on.
    followed
        The integers among the arguments that the graph is to follow; it holds the others.
    dynamic
        Whether it is to follow sizes.

    Raises
    ------
    NoKindError
        If the graph does not do all that the model does.
    """

    def __init__(
        self,
        model: nn.Module,
        own: Callable[..., Any] | None,
        call: Call,
        followed: tuple[Path, ...],
        *,
        dynamic: bool = True,
    ) -> None:
        self.followed = followed
        self.held = {number for number in call.numbers if number.path not in followed}
        self.written = tuple(name for name, value in call.arguments.items() if is_changeable(value))
        if call.places is not None and (self.written or followed):
            raise NoKindError("an object is given by its place, to a model that takes some arguments so only")
        self.graph_module = self._trace(model, own, call, dynamic)
        self._require_whole()

    @property
    def holds_values(self) -> bool:
        """Whether numbers of parameters or buffers are written into the graph."""
        return any(finding.code == Found.VALUE_OF_STATE.code for finding in self._report.findings)

    @property
    def _report(self) -> TraceReport:
        report: TraceReport = self.graph_module.meta["trace"]
        return report

    def holds(self, call: Call) -> bool:
        """Tell whether the integers of a call are those that the graph holds, or can be followed."""
        return self.held <= set(call.numbers) and all(
            value >= 0 for path, value in call.numbers if path in self.followed
        )

    def inputs(self, call: Call) -> Mapping[str, Any] | tuple[Any, ...]:
        """Return the inputs of the graph for a call."""
        if call.places is not None:
            return call.places
        if not self.followed:
            return call.arguments
        values = dict(call.numbers)
        inputs = with_numbers(call.arguments, ((path, 0) for path in self.followed))
        for index, path in enumerate(self.followed):
            inputs[NUMBER.format(index)] = torch.empty(values[path], 0, dtype=torch.int8)
        return inputs

    def run(self, graph_module: GraphModule, call: Call) -> tuple[Any, list[Path]]:
        """Run a graph module, and let the objects of the call have what the model would write into them.

        Returns
        -------
        tuple
            The output, and where integers have changed.
        """
        inputs = self.inputs(call)
        output = graph_module(**inputs) if isinstance(inputs, Mapping) else graph_module(*inputs)
        if not self.written:
            return output, []
        output, made = output
        writer = WrittenArguments()
        for name in self.written:
            writer.write(call.arguments[name], made[name], (name,))
        return writer.replaced(output), writer.changed_numbers

    def _trace(
        self, model: nn.Module, own: Callable[..., Any] | None, call: Call, dynamic: bool
    ) -> GraphModule:
        twin = twin_of(model)
        for name in HOOKS:  # those of the model itself run around its forward, also if that is a graph
            vars(twin)[name].clear()
        vars(twin)["forward"] = self._wrapped(eager_forward(twin, own))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)  # calls that it refuses have a graph of their own
            return symbolic_trace(twin, self.inputs(call), dynamic=dynamic)

    def _wrapped(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that gives the objects that it may have changed, beside its output."""
        if not self.written and not self.followed:
            return forward

        names = {path: NUMBER.format(index) for index, path in enumerate(self.followed)}

        def call_model(**arguments: Any) -> Any:
            for path, name in names.items():
                set_number(arguments, path, arguments.pop(name).shape[0])
            output = forward(**arguments)
            if not self.written:
                return output
            return output, {name: arguments[name] for name in self.written}

        signature = inspect.signature(forward)
        parameters = list(signature.parameters.values())
        place = len(parameters) - any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names.values()]
        parameters[place:place] = added
        call_model.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call_model

    def _require_whole(self) -> None:
        """Raise :class:`NoKindError` if the model does what the graph does not, or refuses too late."""
        kinds = (*_NOT_IN_GRAPH, *(("gradient",) if torch.is_grad_enabled() else ()))
        missing = next((finding for kind in kinds for finding in self._report.of_kind(kind)), None)
        if missing is not None:
            if missing.kind == "gradient":
                raise NoKindError(f"{missing.what}: {missing.detail}")
            raise ChangesModelError(missing.what, missing.detail)
        if why := why_not_repeatable(self.graph_module):
            raise RefusesLateError(why)
