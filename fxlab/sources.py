"""The forms in which a model is given: a module, a graph, a session, an exported program, a file of one.

Only here the rest of fxlab comes to the tracer, and only for a model that is not a graph yet.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import isroutine, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, Union, cast

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from fxlab.checks import unexpected
from fxlab.first_use import pd
from fxlab.models.graph_module import check_lints
from fxlab.models.running import Inputs, call_arguments, given_arguments, given_inputs, taken_of_batch
from fxlab.models.step_record import step_record
from fxlab.named_models import (
    built,
    configuration,
    has_weights,
    is_named_in_code,
    made_in_code,
    model_class,
    pretrained,
)

if TYPE_CHECKING:
    from fxlab.tracing import CapturedGraph
    from fxlab.transformations import Transformation


@dataclass(frozen=True)
class Source:
    """A module, traced or to be traced, and the inputs that come with it."""

    module: torch.nn.Module
    """The module; or a function, which is traced as one."""
    inputs: Inputs | None = None
    pipeline: Any = None
    """The pipeline of transformers that it is the model of."""

    def given(self, inputs: Any, arguments: Mapping[str, Any]) -> Any:
        """Return inputs as :func:`given_inputs` does; of a pipeline, also those that it makes of a text."""
        if self.pipeline is not None and isinstance(inputs, str):
            made = self.pipeline.preprocess(inputs)
            inputs = taken_of_batch(made if isinstance(made, Mapping) else next(iter(made)), self.module)
        return given_inputs(inputs, arguments, self.module)


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

    def reference_run(self) -> Any:
        """Return the original as stages are judged against it."""

    def compare_outputs(self) -> pd.DataFrame:
        """Measure how far the outputs of the present model are from the original's."""


_MEMBERS = tuple(name for name in vars(SessionLike) if not name.startswith("_"))

ModelLike: TypeAlias = Union[torch.nn.Module, ExportedProgram, "CapturedGraph", Source, str, os.PathLike[str]]
"""A model in any of the forms that :func:`source_of` takes."""
Model: TypeAlias = ModelLike | SessionLike
"""A model in any of its forms: those that :func:`source_of` takes, or a session."""


def source_of(model: Any, name: str = "model") -> Source:
    """Return the module of a ``model`` argument; its form is decided here alone.

    ``model``: a module; a ``torch.fx.GraphModule`` of any kind, which is taken as it is; a
    :class:`fxlab.tracing.CapturedGraph`; a ``torch.export.ExportedProgram``, or the path of one that
    ``torch.export.save`` wrote; a folder or ``config.json`` of transformers, or ``file.py:name``, as on the
    command line; or the result of a tracer of training steps that has a graph ``gm`` and
    ``state_fqns``, the paths of its first inputs. Raises TypeError if it is none of these, or ``torch.jit``
    made it; OSError or ValueError if the file cannot be read, is broken, or could run code when it is loaded.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        record = step_record(model)
        return Source(model, None if record is None else record.inputs)
    if isroutine(model):
        return Source(cast(torch.nn.Module, model))
    if (made := _of_transformers(model) or _of_place(model)) is not None:
        return made
    from fxlab.tracing.from_elsewhere import graph_from_elsewhere

    return Source(*graph_from_elsewhere(model, name))


def _of_transformers(model: Any) -> Source | None:
    """Return the model of a pipeline, or one with random weights of a configuration."""
    transformers = sys.modules.get("transformers")
    if transformers is None or isinstance(model, type):
        return None
    kind = type(model).__mro__
    names = {each.__name__ for each in kind if each.__module__.startswith("transformers.")}
    if "Pipeline" in names:
        return Source(model.model, pipeline=model)
    if not names & {"PreTrainedConfig", "PretrainedConfig"}:
        return None
    return Source(built(model_class(model), model, 0))


def _of_place(model: Any) -> Source | None:
    """Return the model in a folder, of a configuration or in Python code, as the command takes them."""
    if not isinstance(model, str | os.PathLike):
        return None
    path, text = Path(model), os.fspath(model)
    if is_named_in_code(text) and not path.exists():
        with torch.random.fork_rng():
            return source_made(made_in_code(text, 0))
    if not ((path.suffix == ".json" and path.is_file()) or (path / "config.json").is_file()):
        return None
    config = configuration(path)
    cls = model_class(config)
    if not has_weights(path):
        return Source(built(cls, config, 0))
    module, warning = pretrained(cls, text, config)
    if warning:
        warnings.warn(f"{text}: {warning}", stacklevel=2)
    return Source(module)


def source_made(made: Any) -> Source:
    """Return the source of a result of Python code: a model in any form, or a model and its inputs."""
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    found = source_of(model)
    return found if inputs is None else replace(found, inputs=inputs)


def divided(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a trace among arguments, and the others, which are inputs by name."""
    from fxlab.tracing import symbolic_trace

    options = {
        name: value for name, value in arguments.items() if name in signature(symbolic_trace).parameters
    }
    return options, {name: value for name, value in arguments.items() if name not in options}


def trace(
    model: Model, inputs: Inputs | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> GraphModule:
    """Return the graph of a model in any of its forms; one that is not traced yet is traced.

    Parameters
    ----------
    model
        A module or function; a configuration or pipeline of transformers; a folder with a ``config.json``, or
        ``file.py:name``, as on the command line; or the owner of a graph: a graph module, an exported
        program, the path of one (``.pt2``), or a session, of which it is the present one.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor; the text for a pipeline.
        For a model of transformers they are made from its configuration if left out.
    kwargs
        More inputs by name, as ``torch.export.export`` takes them.
    **options
        Those of :func:`fxlab.symbolic_trace`, or inputs by name.

    Returns
    -------
    torch.fx.GraphModule
        Called like the model.

    Examples
    --------
    >>> trace(lambda x: x.sin().cos(), torch.ones(3)).graph.output_node().all_input_nodes
    [cos]
    """
    found = resolved(model, "model")
    if not isinstance(found, Source) or isinstance(found.module, GraphModule):
        _refuse_options(divided(options)[0])
        return module_of(found, "model")  # type: ignore[return-value]  # of a session, or a graph already
    from fxlab.tracing import symbolic_trace

    options, arguments = divided(options)
    arguments |= {} if kwargs is None else {"kwargs": kwargs}
    given = found.given(found.inputs if inputs is None else inputs, arguments)
    return symbolic_trace(found.module, given, **options)


def _refuse_options(options: Iterable[str]) -> None:
    for name in options:
        raise TypeError(f"{name}: a graph is taken as it is. Give the model that it is of to trace that.")


def traced(
    module: torch.nn.Module,
    inputs: Inputs | None,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    for_cpu: bool = False,
) -> tuple[GraphModule, Inputs | None]:
    """Return the graph of a module and its inputs; one that is not traced yet is traced on them.

    ``for_cpu``: weights on the meta device are going to be on the CPU.
    """
    if isinstance(module, GraphModule):
        _refuse_options(options)
        if inputs is not None:
            call_arguments(inputs)
        return module, inputs
    from fxlab.tracing import symbolic_trace
    from fxlab.tracing.bound_inputs import meta_as_cpu

    given = inputs_or_examples(inputs, module)
    with meta_as_cpu() if for_cpu else nullcontext():
        return symbolic_trace(module, given, **options), given


def inputs_or_examples(inputs: Inputs | None, original: torch.nn.Module) -> Inputs:
    """Return inputs that are some, or make them from the configuration of a module."""
    if inputs is None:
        if isroutine(original):
            raise TypeError(
                f"inputs: expected what the function {original.__name__} is called with, got None."
            )
        from fxlab.tracing import example_inputs

        return cast(Inputs, example_inputs(original))
    inputs = given_inputs(inputs, {}, original)
    call_arguments(inputs)
    return inputs


def module_of_function(function: Any) -> torch.nn.Module:
    """Return a module that calls a function, and holds the modules that it reads."""
    from fxlab.tracing.model_code.attributes import module_of

    return module_of(function)


def is_session(value: Any) -> TypeGuard[SessionLike]:
    """Tell whether a value is a session, and not a class."""
    # Not asked of the object itself: reading a stage may build it.
    known = {*dir(type(value)), *getattr(value, "__dict__", ())}
    return not isinstance(value, type) and known.issuperset(_MEMBERS)


def is_model(value: Any) -> bool:
    """Tell whether a value is meant as a model, not as inputs of one."""
    kinds = torch.nn.Module, ExportedProgram, Source, str, os.PathLike
    return isinstance(value, kinds) or isroutine(value) or is_session(value)


def checked_session(value: Any) -> SessionLike:
    """Return a session, or raise the ``TypeError`` that asks for one."""
    if not is_session(value):
        raise unexpected("session", "an fxlab.Session", value, "Make one: fxlab.Session(model, inputs).")
    return value


def session_of_passes(model: Any, inputs: Any, passes: Any, *, on: bool = False) -> SessionLike:
    """Return a session as it is, or make one of a model and passes, which may be switched on."""
    if is_session(model):
        return model
    # A room above, found when somebody asks for it.
    session: Any = import_module("fxlab.session").Session(model, inputs, passes=passes)
    if on:
        session.apply([*session.passes])
    return cast(SessionLike, session)


def compared_models(
    original: Model, transformed: Model | Transformation | None, inputs: Any
) -> tuple[torch.nn.Module, torch.nn.Module, Any]:
    """Return the two modules of a comparison, and the inputs to compare on.

    A session stands for its present graph module; alone, it is compared with its own original. A pass in the
    place of the second stands for the first with it.
    """
    if transformed is None and is_session(original):
        given = original.inputs if inputs is None else inputs
        return original.original, original.graph_module, given
    if transformed is None:
        raise TypeError(
            "transformed: expected a model, graph module or session to compare original with, got None. "
            "Only a session is compared with its own original."
        )
    from fxlab.transformations.registry import is_pass, passes_meant  # a pass costs a picture nothing

    if is_pass(original) and not is_pass(transformed):
        original, transformed = transformed, original  # type: ignore[assignment]
    offered: Any = original.passes if is_session(original) else None
    if not is_model(transformed) and passes_meant(inputs, offered):  # (model, inputs, pass)
        transformed, inputs = inputs, transformed
    if passes := passes_meant(transformed, offered):
        known = resolved(original, "original")
        given = inputs_of(known, inputs)
        session = session_of_passes(module_of(known, "original"), given, passes, on=True)
        return session.original, session.graph_module, session.inputs if given is None else given
    before, after = resolved(original, "original"), resolved(transformed, "transformed")
    given = inputs_of(after, inputs_of(before, inputs))
    return module_of(before, "original"), module_of(after, "transformed"), given


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


def compared_graphs(
    original: Model, transformed: Model | None, inputs: Inputs | None
) -> tuple[GraphModule, GraphModule]:
    """Return the two graph modules of a comparison that runs nothing."""
    before, after, known = compared_models(original, transformed, inputs)
    if inputs is not None:
        given_arguments(inputs)
    return graph_of(before, "original", known), graph_of(after, "transformed", known)


def inputs_of(model: Any, inputs: Any) -> Any:
    """Return the inputs that are given, or else those of a session or source."""
    return model.inputs if inputs is None and (isinstance(model, Source) or is_session(model)) else inputs
