"""Prepare two models of any form for ``compare``: graphs that run on inputs of their own."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from inspect import isroutine
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.checks import describe
from fxlab.comparison.weights import Weight
from fxlab.front_desk.sources import inputs_or_examples, source_of, traced
from fxlab.models.graph_modules.graph_module import check_lints
from fxlab.models.running.arguments import Inputs, argument_names, given_arguments, given_inputs
from fxlab.models.state.tensor_state import CALLS_A_MODULE
from fxlab.operators.node_info import dtype_name
from fxlab.validation.arguments import check_runs, check_runs_by_node, compiled_call
from fxlab.validation.verdicts.gradients import shared_parameters, trained_parameters
from fxlab.values.nested import map_tensors, tensors_inside
from fxlab.values.tensors import tensors_by_path


class NoSuchOutputError(ValueError):
    """A model has no output of a name that was given."""


@dataclass(frozen=True)
class ComparedModel:
    """A model that is compared: its graph, its inputs, and the module that has its weights."""

    graph: GraphModule
    inputs: Inputs
    holder: nn.Module
    notes: tuple[str, ...] = ()
    prefix: str = ""
    """The beginning of the names that the graph has for tensors of the holder."""
    is_compiled: bool = False
    """Whether it runs compiled code, so that the graph is a single call of it."""


def given_models(
    reference: Any, candidate: Any, inputs: Any, candidate_inputs: Any
) -> tuple[ComparedModel, ComparedModel, tuple[str, ...]]:
    """Return both models, traced if they are not, and the names of inputs that the candidate does not take.

    The candidate gets the inputs of the reference by name, or else in their order, in the dtype of its own
    weights if theirs are all of another; then the reference gets them rounded alike.
    """
    (first, its), (second, others_own) = _source(reference, "reference"), _source(candidate, "candidate")
    known = next((each for each in (given_inputs(inputs), its, others_own) if each is not None), None)
    known = inputs_or_examples(known, first)
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    others = given_inputs(candidate_inputs)
    if others is None:
        others, left = _for_candidate(second, known)
        ours, theirs = _float_dtype(first), _float_dtype(second)
        given = {tensor.dtype for _, tensor in tensors_inside(others)}
        if ours in given and theirs is not None and ours != theirs:
            others = map_tensors(lambda _, t: t.to(theirs) if t.dtype == ours else t, others)
            known = map_tensors(lambda _, t: t.to(theirs).to(ours) if t.dtype == ours else t, known)
            notes = (f"inputs are cast to {dtype_name(theirs)}, the dtype of the candidate's weights",)
    given_arguments(others)
    ours_given = _given(first, known, "reference")
    return replace(ours_given, notes=(*notes, *ours_given.notes)), _given(second, others, "candidate"), left


def _float_dtype(model: Any) -> torch.dtype | None:
    """Return the dtype that all floating-point weights of a model have; ``None`` if there is no such one."""
    tensors = () if isroutine(model) else (*model.parameters(), *model.buffers())
    found = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return found.pop() if len(found) == 1 else None


def _source(model: Any, name: str) -> tuple[Any, Any]:
    """Return a module or function, and the inputs that come with it."""
    found = source_of(model, name)
    return found.module, found.inputs


def _given(model: Any, inputs: Inputs, name: str) -> ComparedModel:
    is_function = isroutine(model)
    if not is_function:
        check_runs(model, name)
    if (graph := compiled_call(model, inputs)) is not None:
        return _compiled(graph, inputs, name, is_function)
    graph, _ = traced(model, inputs)
    check_lints(graph, name)
    check_runs_by_node(graph, name)
    return ComparedModel(graph, inputs, nn.Module() if is_function else model)


def _compiled(graph: GraphModule, inputs: Inputs, name: str, is_function: bool) -> ComparedModel:
    """Return a model that runs compiled code."""
    words = (
        f"the {name} runs code that torch.compile has compiled: it is called, and nothing in it compared; "
        "fxlab.compiler.compile_session(model, inputs) looks inside"
    )
    called = graph.get_submodule("model") if graph.meta.get(CALLS_A_MODULE) else graph
    inner = getattr(called, "_orig_mod", called)
    if is_function:
        return ComparedModel(graph, inputs, nn.Module(), (words,), is_compiled=True)
    prefix = "" if called is graph else "model." if inner is called else "model._orig_mod."
    return ComparedModel(graph, inputs, inner, (words,), prefix, is_compiled=True)


def trained_alike(
    reference: ComparedModel, candidate: ComparedModel, weights: Collection[Weight]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the trained parameters of both by name, and the names that gradients have in the answer."""
    ours, theirs = (trained_parameters(each.graph) for each in (reference, candidate))
    pairs = shared_parameters(reference.graph, candidate.graph)
    pairs |= {
        f"{candidate.prefix}{weight.candidate}": f"{reference.prefix}{weight.reference[0]}"
        for weight in weights
        if weight.is_whole
    }
    alike = {name: other for name, other in pairs.items() if name in theirs and other in ours}
    return {name: name for name in ours}, alike


def _for_candidate(candidate: Any, inputs: Inputs) -> tuple[Inputs, tuple[str, ...]]:
    """Return inputs of the reference in the names of the candidate, and those that it does not take."""
    if not isinstance(inputs, Mapping):
        return inputs, ()
    forward = candidate.forward if isinstance(candidate, nn.Module) else candidate
    if isinstance(candidate, GraphModule):
        _ = candidate.code
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return inputs, ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    rest = [name for name in inputs if name not in names]
    free = [name for name in names if name not in inputs]
    renamed = dict(zip(rest, free, strict=False))
    left = tuple(name for name in rest if name not in renamed)
    if len(left) == len(inputs):
        raise ValueError(
            f"candidate_inputs: {describe(candidate)} takes none of {', '.join(inputs)}. Give what it is "
            "called with: candidate_inputs={...}."
        )
    return {renamed.get(name, name): value for name, value in inputs.items() if name not in left}, left


def paired_inputs(reference: ComparedModel, candidate: ComparedModel) -> dict[str, str]:
    """Return inputs of the candidate that were given as the reference's, with the names of those.

    By name if both were given names, and others in their order.
    """
    ours, theirs = map(_named_inputs, (reference, candidate))
    are_named = isinstance(reference.inputs, Mapping) and isinstance(candidate.inputs, Mapping)
    pairs = {name: name for name in theirs if are_named and name in ours}
    rest = ([name for name in each if name not in pairs] for each in (theirs, ours))
    pairs |= dict(zip(*rest, strict=False))
    return {name: other for name, other in pairs.items() if _form(theirs[name]) == _form(ours[other])}


def _named_inputs(given: ComparedModel) -> dict[str, Any]:
    args, kwargs = given_arguments(given.inputs)
    return dict(zip(argument_names(given.graph, len(args)), args, strict=True)) | kwargs


def _form(value: Any) -> object:
    """Return the class of a value, and the paths, dtypes and shapes of the tensors in it."""
    tensors = tensors_by_path(value).items()
    return type(value), {path: (t.dtype, () if t.is_nested else t.shape) for path, t in tensors}


def checked_outputs(outputs: Any, ours: Collection[str], theirs: Collection[str]) -> dict[str, str] | None:
    """Return the pairs of outputs that were asked for, as paths that the two models have."""
    if outputs is None:
        return None
    if not isinstance(outputs, Mapping) or not outputs:
        raise TypeError(
            "outputs: expected a mapping of outputs of the reference to those of the candidate, such as "
            f"{{'logits': 0}}, got {describe(outputs)}."
        )
    return {
        _path(key, ours, "reference"): _path(value, theirs, "candidate") for key, value in outputs.items()
    }


def _path(asked: Any, known: Collection[str], name: str) -> str:
    if str(asked) in known:
        return str(asked)
    if isinstance(asked, int) and 0 <= asked < len(known):
        return [*known][asked]
    raise NoSuchOutputError(f"outputs: the {name} has no output {asked!r}. It has {', '.join(known)}.")
