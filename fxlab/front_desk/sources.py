"""The forms in which public functions take a model: a module, a function, a graph, a program, a session.

Only here the rest of fxlab comes to the tracer, and only for a model that is not a graph yet.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, Union, cast

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from fxlab.base.checks import path_text, type_error
from fxlab.models.graph_modules.graph_module import check_lints
from fxlab.models.running.arguments import Inputs, call_arguments, given_inputs
from fxlab.models.running.running import note_inputs
from fxlab.models.running.step_record import step_record

if TYPE_CHECKING:
    from fxlab.tracing.dynamo.capture import CapturedGraph
    from fxlab.tracing.dynamo.graph_break import GraphBreak as GraphBreak
    from fxlab.tracing.model_code.given_model import Choice as Choice
    from fxlab.tracing.report import TraceError
    from fxlab.tracing.unchecked_trace import UncheckedTrace
    from fxlab.transformations import Transformation

Model: TypeAlias = Union[torch.nn.Module, ExportedProgram, Callable[..., Any], "CapturedGraph", "TraceError"]
"""A module (a graph module is one), a function, an exported program, a captured graph, or the error of a
model that itself raises, which has the graph up to there."""


@dataclass(frozen=True)
class Source:
    """A module, traced or to be traced, and the inputs that come with it."""

    module: torch.nn.Module
    """The module; or a function, which is traced as one."""
    inputs: Inputs | None = None


class SessionLike(Protocol):
    """The part of :class:`fxlab.Session` that comparisons use."""

    @property
    def original(self) -> GraphModule:
        """The model without any pass."""

    @property
    def graph_module(self) -> GraphModule:
        """The model with all passes that are on."""

    @property
    def inputs(self) -> Inputs | None:
        """The inputs of the model, if there are any."""

    @property
    def passes(self) -> tuple[Transformation, ...]:
        """The passes on offer, in the order in which they apply."""

    @property
    def applied(self) -> tuple[Transformation, ...]:
        """The passes that are on, in the order in which they were applied."""

    @property
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each of these passes."""

    def verdict(self) -> Any:
        """Judge the present model against the original."""

    @property
    def _internals(self) -> Any:
        """The results that the session keeps."""


_MEMBERS = tuple(name for name in vars(SessionLike) if not name.startswith("_"))


def source_of(model: Any, name: str = "model") -> Source:
    """Return the module of a ``model`` argument; its form is decided here alone.

    ``model``: a module; a ``torch.fx.GraphModule`` of any kind, which is taken as it is; a function; a
    ``torch.export.ExportedProgram``; or a captured graph. TypeError for others, also of ``torch.jit``.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        record = step_record(model)
        return Source(model, None if record is None else record.inputs)
    if isroutine(model):
        return Source(cast(torch.nn.Module, model))
    if is_session(model):
        raise type_error(name, "a model", model, "Write session.graph_module, or session.original.")
    from fxlab.tracing.exported.from_exported import graph_from_elsewhere

    return Source(*graph_from_elsewhere(model, name))


def load_model(place: str | os.PathLike[str]) -> torch.nn.Module | ExportedProgram:
    """Return the model that a text names; the one place where a text is read as a model.

    Parameters
    ----------
    place
        A file of ``torch.export.save`` (``.pt2``); a folder of transformers with a ``config.json``, or that
        file, whose weights are loaded if they are beside it, and else random; or ``file.py:name`` or
        ``package.module:name``, a model in Python code or a function there that returns one.

    Returns
    -------
    torch.nn.Module or torch.export.ExportedProgram
        The model.

    Raises
    ------
    TypeError
        If ``place`` is no path, or the code there makes no model.
    OSError, ValueError
        If it names no model, or the file is broken or could run code when it is loaded.

    Examples
    --------
    >>> load_model("torch.nn:ReLU")
    ReLU()
    """
    from fxlab.front_desk import named_models

    path_text(place, "place")
    text, path = os.fspath(place), Path(place)
    if named_models.is_named_in_code(text) and not path.exists():
        with torch.random.fork_rng():
            made: torch.nn.Module = source_made(named_models.made_in_code(text, 0)).module
            return made
    if path.suffix == ".pt2":
        from fxlab.tracing.exported.saved_program import load_program

        program: ExportedProgram = load_program(path)
        return program
    if not ((path.suffix == ".json" and path.is_file()) or (path / "config.json").is_file()):
        raise ValueError(
            f"place: expected a .pt2 file, a folder with a config.json, or file.py:name, got {text!r}."
        )
    config = named_models.configuration(path)
    cls = named_models.model_class(config)
    module: torch.nn.Module
    if not named_models.has_weights(path):
        module = named_models.built(cls, config, 0)
        return module
    module, warning = named_models.pretrained(cls, text, config)
    if warning:
        warnings.warn(f"{text}: {warning}", stacklevel=2)
    return module


def source_made(made: Any) -> Source:
    """Return the source of a result of Python code: a model in any form, or a model and its inputs."""
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    found = source_of(model)
    return found if inputs is None else replace(found, inputs=inputs)


def traced(
    module: torch.nn.Module,
    inputs: Inputs | None,
    *,
    dynamic: bool = True,
    leaf_modules: Iterable[Choice] = (),
) -> tuple[GraphModule, Inputs | None]:
    """Return the graph of a module and its inputs; one that is not traced yet is traced on them."""
    if isinstance(module, GraphModule):
        for name, is_given in (("dynamic", dynamic is not True), ("leaf_modules", bool(leaf_modules))):
            if is_given:
                raise TypeError(
                    f"{name}: a graph is taken as it is. Give the model that it is of to trace that."
                )
        if (given := given_inputs(inputs)) is not None:
            note_inputs(module, *call_arguments(given))
        return module, given
    from fxlab.tracing.symbolic_trace import traced_with_inputs

    given = inputs_or_examples(inputs, module) if inputs is not None or isroutine(module) else None
    return traced_with_inputs(module, given, dynamic=dynamic, leaves=leaf_modules)


def recorded(module: torch.nn.Module, inputs: Inputs | None) -> UncheckedTrace:
    """Return the trace of a module, to be looked at before it is compared with the module."""
    from fxlab.tracing.unchecked_trace import UncheckedTrace

    return UncheckedTrace(module, None if inputs is None else inputs_or_examples(inputs, module))


def inputs_or_examples(inputs: Inputs | None, original: torch.nn.Module) -> Inputs:
    """Return inputs that are some, or make them from the configuration of a module."""
    if inputs is None:
        if isroutine(original):
            raise TypeError(
                f"inputs: expected what the function {original.__name__} is called with, got None."
            )
        from fxlab.tracing.inputs.example_inputs import example_inputs

        return cast(Inputs, example_inputs(original))
    call_arguments(given := given_inputs(inputs))
    return cast(Inputs, given)


def module_of_function(function: Any) -> torch.nn.Module:
    """Return a module that calls a function, and holds the modules that it reads."""
    from fxlab.tracing.model_code.given_model import module_of

    return module_of(function)


def is_session(value: Any) -> TypeGuard[SessionLike]:
    """Tell whether a value is a session, and not a class."""
    # Not asked of the object itself: reading a stage may build it.
    known = {*dir(type(value)), *getattr(value, "__dict__", ())}
    return not isinstance(value, type) and known.issuperset(_MEMBERS)


def checked_session(value: Any) -> SessionLike:
    """Return a session, or raise the ``TypeError`` that asks for one."""
    if not is_session(value):
        raise no_session(value)
    return value


def no_session(value: Any) -> TypeError:
    """Return the error that asks for a session, which some results hold."""
    advice = "Make one: fxlab.Session(model, inputs)."
    if isinstance(getattr(value, "sessions", None), Mapping):
        advice = "Give one of its sessions; fxlab.report(record.sessions, path) takes all of them."
    elif is_session(getattr(value, "session", None)):  # a comparison, an inspector
        advice = "Give its session: it is the attribute session."
    return type_error("session", "an fxlab.Session", value, advice)


def compared_models(
    original: Model, transformed: Model, inputs: Any
) -> tuple[torch.nn.Module, torch.nn.Module, Any]:
    """Return the two modules of a comparison, and the inputs to compare on."""
    before, after = source_of(original, "reference"), source_of(transformed, "candidate")
    given = inputs_of(after, inputs_of(before, given_inputs(inputs)))
    return module_of(before, "reference"), module_of(after, "candidate"), given


def resolved(model: Any, name: str) -> SessionLike | Source:
    """Return a session as it is, and the source of any other model; a file is read here, once."""
    return model if is_session(model) else source_of(model, name)


def module_of(model: Any, name: str) -> torch.nn.Module:
    """Return a module, of a session its present one, or raise the ``TypeError`` that names the argument."""
    found = resolved(model, name)
    module = found.module if isinstance(found, Source) else found.graph_module
    if isinstance(module, GraphModule):
        check_lints(module, name)
    return module


def graph_of(model: Any, name: str, inputs: Inputs | None = None) -> GraphModule:
    """Return the graph module of a model; one that is not traced yet is traced on the inputs."""
    module = module_of(model, name)
    return module if isinstance(module, GraphModule) else traced(module, inputs)[0]


def compared_graphs(original: Model, transformed: Model) -> tuple[GraphModule, GraphModule]:
    """Return the two graph modules of a comparison that runs nothing."""
    before, after, known = compared_models(original, transformed, None)
    return graph_of(before, "reference", known), graph_of(after, "candidate", known)


def inputs_of(model: Any, inputs: Any) -> Any:
    """Return the inputs that are given, or else those of a session or source."""
    return model.inputs if inputs is None and (isinstance(model, Source) or is_session(model)) else inputs
