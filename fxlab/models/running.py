"""Running a model for a comparison: same inputs, same random numbers, nothing left behind."""

import inspect
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import torch
from torch.fx import GraphModule, Node

from fxlab.checks import described
from fxlab.interrupts import RestoringStack
from fxlab.models.ranks import before_run
from fxlab.models.settings import requires_gradients
from fxlab.torch_private import pytree
from fxlab.values.memory import overlapping_groups
from fxlab.values.nested import is_object, map_tensors, parted, put_together, tensors_inside
from fxlab.values.tensors import refuse_fake

_DERIVATIVES = (torch.autograd.grad, torch.autograd.backward, "backward", "requires_grad_")

Inputs: TypeAlias = Mapping[str, Any] | tuple[Any, ...] | list[Any] | torch.Tensor
"""What a model is called with: keyword arguments, positional arguments, or one tensor."""

T = TypeVar("T")


_NEEDS_GRADIENTS = re.compile(r"requires?[ _]grad")
"""In what torch raises where gradients are off."""


@contextmanager
def generators_kept(*, after_errors_alone: bool = False) -> Iterator[None]:
    """Put the generators of random numbers back: torch's, Python's and NumPy's.

    Those of torch are the one of the CPU and those of the accelerators, if anything has used them. Every run
    of a model is in such a block, so this is where ranks wait for each other.

    Parameters
    ----------
    after_errors_alone
        Whether numbers that were drawn count as drawn, unless the block raises.
    """
    before_run()
    numpy_random = sys.modules.get("numpy.random")
    numbers, drawn = random.getstate(), numpy_random and numpy_random.get_state()
    states = _torch_states()

    def put_back() -> None:
        for device, state in states.items():
            if device is None:
                torch.set_rng_state(state)
            else:
                torch.get_device_module(device).set_rng_state(state, device)
        random.setstate(numbers)
        if numpy_random is not None:
            numpy_random.set_state(drawn)

    try:
        yield
    except BaseException:
        put_back()
        raise
    if not after_errors_alone:
        put_back()


def seed_generators(seed: int) -> None:
    """Seed the generators that :func:`generators_kept` keeps.

    ``torch.manual_seed`` is not used: it also notes who called it, which takes longer than many a node.
    """
    torch.default_generator.manual_seed(seed)
    for device in accelerators_in_use():
        module = torch.get_device_module(device)
        if generators := getattr(module, "default_generators", ()):
            generators[device.index or 0].manual_seed(seed)
        else:
            with module.device(device) if hasattr(module, "device") else nullcontext():
                module.manual_seed(seed)
    random.seed(seed)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(seed)


def torch_generators_now() -> tuple[bytes, ...]:
    """Return the state of torch's generators: two are equal if nothing was drawn in between."""
    return tuple(state.numpy().tobytes() for state in _torch_states().values())


class Generators(NamedTuple):
    """The states of the generators that :func:`generators_kept` keeps."""

    torch: tuple[bytes, ...]
    python: object
    numpy: object
    """``None`` as long as nothing has imported it."""

    @classmethod
    def now(cls) -> "Generators":
        """Return the present ones."""
        numpy_random = sys.modules.get("numpy.random")
        state = None if numpy_random is None else numpy_random.get_state(legacy=False)
        numbers = None if state is None else pickle.dumps(state)
        return cls(torch_generators_now(), random.getstate(), numbers)

    def are(self, other: "Generators") -> bool:
        """Tell whether two are the same, as far as both are known."""
        known = self.numpy is None or other.numpy is None or self.numpy == other.numpy
        return known and (self.torch, self.python) == (other.torch, other.python)


def _torch_states() -> dict[torch.device | None, torch.Tensor]:
    """Return the states of torch's generators by device; ``None`` stands for the CPU."""
    states: dict[torch.device | None, torch.Tensor] = {None: torch.get_rng_state()}
    for device in accelerators_in_use():
        states[device] = torch.get_device_module(device).get_rng_state(device)
    return states


def accelerators_in_use() -> list[torch.device]:
    """Return all devices of the accelerator (CUDA, MPS, XPU, ...), or none as long as nothing has used it."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return []
    module = torch.get_device_module(accelerator)
    if not getattr(module, "is_initialized", lambda: True)() or not module.is_available():
        return []
    return [torch.device(accelerator.type, index) for index in range(module.device_count())]


def run(model: Callable[..., Any], inputs: Inputs, *, seed: int = 0, gradients: bool | None = None) -> Any:
    """Call a model on copies of its inputs with a fixed seed, and without gradients unless it needs them.

    Parameters
    ----------
    model
        The module, or what calls it, in the mode (training or not) that it is in.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple or list) or one tensor. Tensors are
        cloned, so that a model that writes into its inputs does not change the next run.
    seed
        For dropout and the like; the generators of the caller are left as they were.
    gradients
        Whether to run with gradients, if that is known.

    Returns
    -------
    Any
        The output of the model.

    Raises
    ------
    TypeError
        If ``inputs`` is none of these.
    """

    def once(setting: AbstractContextManager[Any]) -> Any:
        args, kwargs = call_arguments(inputs)
        with RestoringStack(setting, generators_kept()):
            seed_generators(seed)
            return detached(model(*args, **kwargs))

    if gradients is not None:
        return once(torch.enable_grad() if gradients else torch.no_grad())
    return with_gradients_if_needed(model, once)


def with_gradients_if_needed(
    model: Any, call: Callable[[AbstractContextManager[Any]], T], beside: Any = None
) -> T:
    """Call something that runs a model without gradients, and anew with them if it turns out to need them.

    Parameters
    ----------
    model
        The model.
    call
        Runs it in a context.
    beside
        What it is compared with, which may need gradients: Python may compute something else with them.
    """
    try:
        return call(gradients_for(model, beside))
    except RuntimeError as error:
        if not _NEEDS_GRADIENTS.search(str(error)):
            raise
    # It takes derivatives of what it computes itself, as a force field does, or keeps them.
    return call(torch.enable_grad())


def gradients_for(*models: Any) -> AbstractContextManager[Any]:
    """Return a context without gradients, or with them if one of the models that are compared needs them."""
    return torch.enable_grad() if any(map(needs_gradients, models)) else torch.no_grad()


def needs_gradients(model: Any) -> bool:
    """Tell whether a model is a graph that takes derivatives, or refuses to run without gradients."""
    nodes = model.graph.nodes if isinstance(model, GraphModule) else ()
    return any(takes_derivatives(node) or requires_gradients(node) for node in nodes)


def takes_derivatives(node: Node) -> bool:
    """Tell whether a node needs what it reads to have a history."""
    return node.target in _DERIVATIVES


def detached(value: Any) -> Any:
    """Return a nested value whose tensors have no history."""
    return pytree.tree_map(_without_history, value, is_leaf=is_object)


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of inputs as positional and keyword arguments; ``TypeError`` if they are neither."""
    return given_arguments(inputs, copied=True)


def given_arguments(inputs: Inputs, *, copied: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return inputs, or copies, as positional and keyword arguments; ``TypeError`` if they are neither."""
    if not isinstance(inputs, Mapping | tuple | list | torch.Tensor):
        raise TypeError(
            "inputs: expected a mapping of keyword arguments, a tuple of positional arguments or one tensor, "
            f"got {type(inputs).__name__}"
        )
    given: Any = inputs
    if copied:
        tensors = (tensor for _, tensor in tensors_inside(parted(inputs)))
        clone = once_each(_cloned, _cloned_together(tensors))
        given = pytree.tree_map(lambda leaf: _copied(leaf, clone), inputs, is_leaf=is_object)
    if isinstance(given, Mapping):
        return (), dict(given)
    return ((given,) if isinstance(given, torch.Tensor) else tuple(given)), {}


def named_arguments(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments by the names that the model has for them, or by their places where it has none."""
    if isinstance(model, torch.fx.GraphModule):
        _ = model.code  # Dynamo's are compiled when they are needed, and have a signature from then on
    try:
        places = inspect.signature(model.forward).bind_partial(*args).arguments
    except (TypeError, ValueError):
        places = {str(place): value for place, value in enumerate(args)}
    return {**places, **kwargs}


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return the names that a model has for so many positional arguments, ``args.0`` where it has a list."""
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


def _without_history(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    return (
        put_together(map_tensors(lambda _, tensor: tensor.detach(), parted(leaf)))
        if is_object(leaf)
        else leaf
    )


def once_each(
    change: Callable[[Any], Any], known: Iterable[tuple[torch.Tensor, torch.Tensor]] = ()
) -> Callable[[Any], Any]:
    """Return what changes each tensor once, so that two inputs that are one tensor stay so.

    Parameters
    ----------
    change
        Changes a tensor, or anything else.
    known
        Tensors that were changed already, and what they have become.
    """
    made: dict[int, tuple[Any, Any]] = {id(tensor): (tensor, changed) for tensor, changed in known}

    def changed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return change(value)
        if id(value) not in made:
            made[id(value)] = value, change(value)
        return made[id(value)][1]

    return changed


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that has gradients, and a history, where the tensor has."""
    if tensor.requires_grad and tensor.is_leaf:
        return tensor.detach().clone().requires_grad_()
    return tensor.clone()


def _cloned_together(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the tensors that overlap others, and copies that overlap as they do; those with a history not."""
    apart = (tensor for tensor in tensors if tensor.is_leaf)
    for group in overlapping_groups(apart):
        storage = cast(torch.UntypedStorage, group[0].untyped_storage().clone())  # type: ignore[no-untyped-call]
        for tensor in group:
            copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
            yield tensor, copy.requires_grad_(tensor.requires_grad)


def _copied(leaf: Any, clone: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of a tensor, or of an object such as a cache, which a model may write into."""
    if not isinstance(leaf, torch.Tensor) and not is_object(leaf):
        return leaf

    def clone_real(_: object, tensor: torch.Tensor) -> torch.Tensor:
        refuse_fake(tensor)
        return clone(tensor)

    return put_together(map_tensors(clone_real, parted(leaf)))


def given_inputs(inputs: Any, arguments: Mapping[str, Any]) -> Any:
    """Return inputs with arrays of NumPy as tensors; ``arguments`` are those that were given by keyword.

    Raises
    ------
    TypeError
        If there are both.
    """
    if arguments and inputs is not None:
        raise TypeError(
            f"inputs: got {described(inputs)} beside the keyword arguments {', '.join(arguments)}. Give one "
            "mapping of all."
        )
    numpy = sys.modules.get("numpy")
    given = dict(arguments) if arguments else inputs
    if numpy is None or given is None:
        return given
    if isinstance(given, numpy.ndarray):
        return torch.from_numpy(given)
    is_array = [isinstance(each, numpy.ndarray) for each in _items(given)]
    if not any(is_array):
        return given
    if isinstance(given, Mapping):
        return {name: _tensor_of(value, numpy) for name, value in given.items()}
    return tuple(_tensor_of(value, numpy) for value in given)


def check_inputs_named(graph_module: GraphModule, arguments: Iterable[str]) -> None:
    """Raise the ``TypeError`` for a keyword argument that is no input of a graph: a misspelt option."""
    names = [str(node.target).lstrip("*") for node in graph_module.graph.find_nodes(op="placeholder")]
    if unknown := sorted({*arguments} - {*names}):
        raise TypeError(
            f"{unknown[0]}: expected an option, or an input of the graph ({', '.join(names) or 'none'})."
        )


def _items(given: Any) -> Iterable[Any]:
    return given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple | list) else ()


def _tensor_of(value: Any, numpy: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, numpy.ndarray) else value
