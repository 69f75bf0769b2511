"""The inputs of a model as arguments of its call: by position and name, copied, or taken out of a batch."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import GraphModule

from fxlab.base.checks import type_error
from fxlab.base.torch_private import pytree
from fxlab.values.memory import overlapping_groups
from fxlab.values.nested import flatten_objects, is_object, map_tensors, tensors_inside, unflatten_objects
from fxlab.values.tensors import refuse_fake

Inputs: TypeAlias = torch.Tensor | tuple[Any, ...] | Mapping[str, Any]
"""Inputs of a model: keyword arguments, positional arguments, or one tensor."""


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of inputs as positional and keyword arguments; ``TypeError`` if they are neither."""
    return given_arguments(inputs, copied=True)


def _is_whole(value: Any) -> bool:
    """Tell whether a value is copied as a whole; copying the items of a ``torch.Size`` would give a tuple."""
    return isinstance(value, torch.Size) or is_object(value)


def given_arguments(inputs: Inputs, *, copied: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return inputs, or copies, as positional and keyword arguments; ``TypeError`` if they are neither."""
    if not isinstance(inputs, Mapping | tuple | list | torch.Tensor):
        raise TypeError(
            "inputs: expected a mapping of keyword arguments, a tuple of positional arguments or one tensor, "
            f"got {type(inputs).__name__}"
        )
    given: Any = inputs
    if copied:
        tensors = (tensor for _, tensor in tensors_inside(flatten_objects(inputs)))
        clone = memoize_by_tensor(_cloned, _cloned_together(tensors))
        given = pytree.tree_map(lambda leaf: _copied(leaf, clone), inputs, is_leaf=_is_whole)
    if isinstance(given, Mapping):
        # A whole number in place of a name is the place of a positional one.
        args = tuple(given[place] for place in sorted(key for key in given if isinstance(key, int)))
        return args, {name: value for name, value in given.items() if not isinstance(name, int)}
    return ((given,) if isinstance(given, torch.Tensor) else tuple(given)), {}


def named_arguments(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by their names in a model or function; by their positions if it has none."""
    if isinstance(model, torch.fx.GraphModule):
        _ = model.code  # a graph of Dynamo gets its signature when its code is generated
    try:
        places = inspect.signature(getattr(model, "forward", model)).bind_partial(*args).arguments
    except (TypeError, ValueError):
        places = {str(place): value for place, value in enumerate(args)}
    return {**places, **kwargs}


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return a model's names for a number of positional arguments, ``args.0`` if it has a list."""
    names: dict[int, str] = {}
    for name, value in named_arguments(model, tuple(range(count)), {}).items():
        names |= {value: name} if isinstance(value, int) else {n: f"{name}.{i}" for i, n in enumerate(value)}
    return [names[place] for place in range(count)]


def placeholder_values(graph_module: GraphModule, inputs: Inputs) -> tuple[Any, ...]:
    """Return copies of the values of the placeholders, in their order."""
    return bound_values(graph_module, *call_arguments(inputs))


def bound_values(graph_module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values of the placeholders, in their order."""
    try:
        bound = inspect.signature(graph_module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"it does not take these inputs: {error}") from error
    bound.apply_defaults()
    return (*bound.args, *bound.kwargs.values())


def memoize_by_tensor(
    change: Callable[[Any], Any], known: Iterable[tuple[torch.Tensor, torch.Tensor]] = ()
) -> Callable[[Any], Any]:
    """Return a function that changes each tensor once, so that inputs that are one tensor stay so."""
    made: dict[int, tuple[Any, Any]] = {id(tensor): (tensor, changed) for tensor, changed in known}

    def changed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return change(value)
        if id(value) not in made:
            made[id(value)] = value, change(value)
        return made[id(value)][1]

    return changed


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that has gradients, and a history, if the tensor has."""
    if tensor.requires_grad and tensor.is_leaf:
        return tensor.detach().clone().requires_grad_()
    return tensor.clone()


def _cloned_together(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield overlapping tensors without a history, with copies that overlap in the same way."""
    apart = (tensor for tensor in tensors if tensor.is_leaf)
    for group in overlapping_groups(apart):
        storage = cast(torch.UntypedStorage, group[0].untyped_storage().clone())  # type: ignore[no-untyped-call]
        for tensor in group:
            copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
            yield tensor, copy.requires_grad_(tensor.requires_grad)


def _copied(leaf: Any, clone: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of a tensor, or of an object such as a cache, into which a model may write."""
    if not isinstance(leaf, torch.Tensor | Mapping) and not is_object(leaf):
        return leaf

    def clone_real(_: object, tensor: torch.Tensor) -> torch.Tensor:
        refuse_fake(tensor)
        return clone(tensor)

    return unflatten_objects(map_tensors(clone_real, flatten_objects(leaf)))


def given_inputs(inputs: Any) -> Any:
    """Return inputs, or ``None`` for none; raises the ``TypeError`` for another kind of value."""
    if inputs is None or isinstance(inputs, Mapping | tuple | torch.Tensor):
        return inputs
    advice = "Write a tuple: (a, b)." if isinstance(inputs, list) else ""
    if isinstance(inputs, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        advice = "Take one batch of it; session.evaluate(batches) judges all."
    elif type(inputs).__module__ == "numpy":
        advice = "Write torch.from_numpy(array)."
    elif isinstance(inputs, str):
        advice = "Write session.apply(pass_) for a pass, fxlab.draw(model).save(path) for a picture."
    raise type_error("inputs", "a tensor, a tuple, or a mapping of names to inputs", inputs, advice)


class _Names(NamedTuple):
    all: tuple[str, ...]
    positional: tuple[str, ...]
    required: int
    """The number of positional ones without a default."""
    is_closed: bool
    """Whether it takes only these."""


def names_of_inputs(model: Any) -> _Names | None:
    """Return the names of a module's or function's inputs; ``None`` if it does not tell."""
    if isinstance(model, GraphModule):
        _ = model.code
    try:
        found = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = {each.kind for each in found}
    named = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    positional = [each for each in named if each.kind is not each.KEYWORD_ONLY]
    return _Names(
        tuple(each.name for each in named),
        tuple(each.name for each in positional),
        sum(each.default is each.empty for each in positional),
        kinds.isdisjoint({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}),
    )


def takes_by_name(model: Any, names: Iterable[str]) -> bool:
    """Tell whether a model has inputs of all these names."""
    known = names_of_inputs(model)
    return known is not None and {*names} <= {*known.all}


def takes_one_input(model: Any) -> bool:
    """Tell whether a model takes one input and no others."""
    names = names_of_inputs(model)
    return names is not None and names.is_closed and len(names.all) == 1


def batches_of(data: Any) -> Any:
    """Return a ``DataLoader`` of a map-style data set, whose items are samples; else the same."""
    is_map = isinstance(data, torch.utils.data.Dataset) and not hasattr(data, "__iter__")
    return torch.utils.data.DataLoader(data) if is_map else data


def model_inputs_in_batch(batch: Any, model: Any, *, optional: bool = False) -> Any:
    """Return the inputs of a model in a batch, without labels and other parts that it does not take.

    Parts of a tuple go to the arguments without a default; with ``optional``, to all positional ones.
    """
    names = names_of_inputs(model)
    if batch is None or names is None or not names.is_closed:
        return batch
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name in names.all}
    if isinstance(batch, tuple | list):
        return tuple(batch[: (not optional and names.required) or len(names.positional)])
    return batch
