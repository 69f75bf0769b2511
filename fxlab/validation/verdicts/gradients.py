"""Gradients of a graph by inputs and parameters, as it is and in float64, for verdicts and ``compare``."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, Unpack

import torch
from torch.fx import GraphModule, Node

from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import pytree
from fxlab.models.running.arguments import (
    Inputs,
    bound_values,
    call_arguments,
    memoize_by_tensor,
    named_arguments,
)
from fxlab.models.running.running import call_model, generators_kept, seed_generators
from fxlab.models.state.model_state import state_kept, state_kept_in_call
from fxlab.models.state.tensor_state import named_tensors, place_of, plain_name
from fxlab.validation.outputs.computed_tensors import GRADIENT
from fxlab.validation.verdicts.draws import Draw, given_draws
from fxlab.validation.verdicts.float64_run import Float64Interpreter, Settings, wide_arguments
from fxlab.validation.verdicts.own_run import OwnRun
from fxlab.values.nested import Path, tensors_inside
from fxlab.values.tensors import is_floating, real_numbers, same_bits, tensors_by_path, to_float64

K = TypeVar("K")


class Gradients(NamedTuple):
    """The gradients of a graph as it is."""

    found: dict[str, torch.Tensor]
    """By ``gradient of x`` and ``gradient of layer.weight``."""
    flow_from: frozenset[str]
    """The outputs that gradients flow from, by path."""


def gradients_of(
    module: GraphModule, inputs: Inputs, parameters: Mapping[str, str], drawn: Sequence[Draw] | None = None
) -> Gradients:
    """Return the gradients of inputs and parameters where they have any.

    They are the gradients of the sum of all outputs, each element times a fixed random number.

    ``module``: the graph to run; it is left as it is. ``inputs``: as for :func:`fxlab.verdict`. Every
    floating-point tensor counts as one that a gradient is asked of. ``parameters``: names of parameters, and
    their names in the result. ``drawn``: the random numbers that its operators receive. Left out, they draw
    some. Returns the gradients, and the outputs that they flow from.
    """
    args, kwargs = _leaves(call_arguments(inputs))
    named = dict(module.named_parameters(remove_duplicate=False))
    leaves: dict[str, torch.Tensor] = {label: named[name] for name, label in parameters.items()}
    leaves |= tensors_by_path(named_arguments(module, args, kwargs))
    with RestoringStack(torch.enable_grad(), generators_kept(), state_kept_in_call(module)):
        seed_generators(0)
        args, kwargs = _not_leaves((args, kwargs))
        with given_draws(drawn), warnings.catch_warnings():
            # Dynamo asks each input for its gradient.
            warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor that is not a leaf")
            outputs = tensors_by_path(call_model(module, args, kwargs))
        flow_from = frozenset(path for path, output in outputs.items() if output.requires_grad)
        return Gradients(_named(_gradients(outputs, leaves)), flow_from)


def gradients_in_float64(
    module: GraphModule,
    inputs: Inputs,
    parameters: Mapping[str, str],
    *,
    own: OwnRun | None = None,
    **settings: Unpack[Settings],
) -> dict[str, torch.Tensor]:
    """Return the same where every floating-point number is one of float64.

    The parameters that are asked about are held in float64 at once, all of them.
    """
    wide = wide_arguments(inputs, settings.get("move") if settings.get("everywhere") else None)
    args, kwargs = _leaves(wide)
    own = own or OwnRun(module, inputs)
    interpreter = Float64Interpreter(module, own_dtypes=own.dtypes, **settings)
    drawn = bool(settings.get("drawn"))
    with _run_on_leaves(module, interpreter, args, kwargs, parameters) as (returned, leaves):
        return _named(_gradients(returned, leaves, drawn=drawn))


@contextmanager
def _run_on_leaves(
    module: GraphModule,
    interpreter: Float64Interpreter,
    args: Any,
    kwargs: Any,
    parameters: Mapping[str, str],
) -> Iterator[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]]:
    """Run a graph, and give its outputs and the tensors that they may be differentiated by."""
    kept = interpreter.keep(parameters)
    leaves = {label: kept[name].requires_grad_() for name, label in parameters.items()}
    leaves |= tensors_by_path(named_arguments(module, args, kwargs))
    with RestoringStack(torch.enable_grad(), generators_kept(), state_kept(module, watch=False)):
        args, kwargs = _not_leaves((args, kwargs))
        seed_generators(0)
        yield tensors_by_path(interpreter.run(*bound_values(module, args, kwargs))), leaves


class ValueGradients(NamedTuple):
    """The gradients of everything that a graph computes, in float64."""

    values: dict[Node, dict[Path, torch.Tensor]]
    """Of the tensors that nodes compute and no node writes into, where they have one."""
    leaves: dict[str, torch.Tensor]
    """Of inputs by name, and of parameters by path."""


def value_gradients_in_float64(module: GraphModule, inputs: Inputs, outputs: Sequence[str]) -> ValueGradients:
    """Return the gradients of all values of a graph.

    ``outputs``: paths of the outputs of which the gradients are; the same random number stands at the same
    place of this list for two graphs.
    """
    args, kwargs = _leaves(wide_arguments(inputs, None))
    kept: dict[Node, dict[Path, tuple[torch.Tensor, int]]] = {}

    def note(node: Node, result: Any) -> None:
        found = {path: (t, t._version) for path, t in tensors_inside(result) if t.requires_grad}
        if found and node.op != "output":
            kept[node] = found

    interpreter = Float64Interpreter(module, own_dtypes=OwnRun(module, inputs).dtypes, visit=note)
    trained = {name: name for name in trained_parameters(module)}
    with _run_on_leaves(module, interpreter, args, kwargs, trained) as (returned, leaves):
        asked: dict[Node | str, dict[Path, torch.Tensor]] = {
            node: {path: t for path, (t, version) in found.items() if t._version == version}
            for node, found in kept.items()
        }
        asked |= {name: {(): leaf} for name, leaf in leaves.items()}
        flat = {(of, path): tensor for of, found in asked.items() for path, tensor in found.items()}
        gradients = _gradients({path: returned[path] for path in outputs}, flat)
    values: dict[Node, dict[Path, torch.Tensor]] = {}
    for (of, path), gradient in gradients.items():
        if isinstance(of, Node):
            values.setdefault(of, {})[path] = gradient
    return ValueGradients(values, {of: g for (of, _), g in gradients.items() if isinstance(of, str)})


def shared_parameters(original: GraphModule, transformed: GraphModule) -> dict[str, str]:
    """Match trained parameters by identity: the same memory, or the same name and the same values.

    Returns a mapping: name in the transformed module -> name in the original.
    """
    ours, theirs = trained_parameters(original), trained_parameters(transformed)
    by_place = {place_of(parameter): name for name, parameter in ours.items()}
    by_name = {plain_name(original, name): name for name in ours}
    found = {}
    for name, parameter in theirs.items():
        other = by_place.get(place_of(parameter))
        named = by_name.get(plain_name(transformed, name))
        if other is None and named is not None and same_bits(ours[named].detach(), parameter.detach()):
            other = named
        if other is not None:
            found[name] = other
    return found


def parameters_apart(original: GraphModule, transformed: GraphModule) -> tuple[str, ...]:
    """Return the trained parameters that only one of the two has: their gradients have no counterpart."""
    shared = shared_parameters(original, transformed)
    ours = [name for name in trained_parameters(original) if name not in shared.values()]
    return (
        *ours,
        *(name for name in trained_parameters(transformed) if name not in shared and name not in ours),
    )


def trained_in_one(first: GraphModule, second: GraphModule) -> dict[str, str]:
    """Return the parameters that one module trains, and another holds and does not train.

    Returns a mapping: name in the first module -> name in the second, by memory, name or values.
    """
    trained = trained_parameters(first)
    elsewhere = shared_parameters(second, first)
    held = {name: tensor for name, tensor in named_tensors(second) if not tensor.requires_grad}
    by_place = {place_of(tensor): name for name, tensor in held.items()}
    by_name = {plain_name(second, name): name for name in held}
    found = {}
    for name, parameter in trained.items():
        if name in elsewhere:
            continue
        same = (other for other, tensor in held.items() if _same_values(parameter, tensor))
        named = by_name.get(plain_name(first, name))
        other = by_place.get(place_of(parameter)) or named or next(same, None)
        if other is not None:
            found[name] = other
    return found


def _same_values(parameter: torch.Tensor, tensor: torch.Tensor) -> bool:
    alike = parameter.shape == tensor.shape and parameter.dtype == tensor.dtype
    return alike and same_bits(parameter.detach(), tensor.detach())


def trained_parameters(module: GraphModule) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that gradients are asked of, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _leaves(value: Any) -> Any:
    """Return copies of tensors of which a gradient may be asked."""
    one = memoize_by_tensor(lambda tensor: tensor.detach().clone().requires_grad_(is_floating(tensor)))
    return pytree.tree_map_only(torch.Tensor, one, value)


def _not_leaves(value: Any) -> Any:
    """Return copies that a graph may write into."""
    return pytree.tree_map_only(torch.Tensor, memoize_by_tensor(torch.clone), value)


def _named(gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {GRADIENT + name: gradient for name, gradient in gradients.items()}


def _gradients(
    outputs: Mapping[str, torch.Tensor], leaves: Mapping[K, torch.Tensor], *, drawn: bool = False
) -> dict[K, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sums = []
    for output in outputs.values():
        real = real_numbers(output)
        weights = torch.randn(real.shape, generator=generator, device="cpu")
        if output.requires_grad:
            # Rounded once, so that both dtypes have the same numbers.
            wide = to_float64(real)
            sums.append((wide * weights.to(torch.bfloat16).to(wide)).sum())
    asked = {name: tensor for name, tensor in leaves.items() if tensor.requires_grad}
    if not sums or not asked:
        return {}
    # A checkpoint that runs again in the backward pass would draw other numbers than before.
    with given_draws(() if drawn else None):
        found = torch.autograd.grad(sum(sums[1:], sums[0]), list(asked.values()), allow_unused=True)
    return {
        name: gradient.detach() for name, gradient in zip(asked, found, strict=True) if gradient is not None
    }
