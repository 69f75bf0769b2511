"""Runs a model for a comparison: on the same inputs and random numbers, with nothing left behind."""

import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import (
    FakeTensorMode,
    allow_saved_hooks,
    are_saved_hooks_allowed,
    leave_transforms,
    outside_transforms,
    pytree,
    transforms_depth,
)
from fxlab.models.graph_modules.graph_module import INPUTS
from fxlab.models.running.arguments import Inputs, bound_values, call_arguments
from fxlab.models.state.model_state import state_kept
from fxlab.models.state.settings import requires_gradients
from fxlab.values.nested import flatten_objects, is_object, map_tensors, unflatten_objects

_DERIVATIVES = (torch.autograd.grad, torch.autograd.backward, "backward", "requires_grad_")

T = TypeVar("T")


_NEEDS_GRADIENTS = re.compile(r"requires?[ _]grad")
"""Matches torch's errors about gradients that are off."""


@contextmanager
def generators_kept(*, after_errors_alone: bool = False) -> Iterator[None]:
    """Restore the generators of random numbers: torch's, Python's and NumPy's.

    Torch's are that of the CPU and those of accelerators in use. Every run of a model is in such a block, so
    threads and ranks wait here. ``after_errors_alone``: whether to restore only if the block raises, which
    also ends the transforms of ``torch.func`` that it has entered, with their settings of autograd: Dynamo's
    graphs enter and leave them by nodes.
    """
    with PROCESS_LOCK:
        if dist.is_available() and dist.is_initialized():
            from fxlab.models.parallel.ranks import before_run

            before_run()
        depth, has_gradients = transforms_depth(), torch.is_grad_enabled()
        has_hooks = are_saved_hooks_allowed()
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
            leave_transforms(depth)
            torch.set_grad_enabled(has_gradients)
            if has_hooks:
                allow_saved_hooks()
            put_back()
            raise
        if not after_errors_alone:
            put_back()


def seed_generators(seed: int) -> None:
    """Seed the kept generators; ``torch.manual_seed`` also formats the caller's stack, which is slow."""
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
    with outside_transforms():
        return tuple([state.numpy().tobytes() for state in _torch_states().values()])


class Generators(NamedTuple):
    """The states of the generators that :func:`generators_kept` keeps."""

    torch: tuple[bytes, ...]
    python: object
    numpy: object
    """``None`` until something has imported it."""

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
    with outside_transforms():
        states: dict[torch.device | None, torch.Tensor] = {None: torch.default_generator.get_state()}
        for device in accelerators_in_use():
            states[device] = torch.get_device_module(device).get_rng_state(device)
    return states


def accelerators_in_use() -> list[torch.device]:
    """Return all devices of the accelerator (CUDA, MPS, XPU, ...); none until something has used it."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return []
    module = torch.get_device_module(accelerator)
    if not getattr(module, "is_initialized", lambda: True)() or not module.is_available():
        return []
    return [torch.device(accelerator.type, index) for index in range(module.device_count())]


def run(model: Callable[..., Any], inputs: Inputs, *, seed: int = 0, gradients: bool | None = None) -> Any:
    """Call a model on copies of its inputs with a fixed seed, and without gradients unless it needs them.

    ``model``: the module, or a function that calls it; it runs in its present mode. ``inputs``: keyword
    arguments (a mapping), positional arguments (a tuple or list) or one tensor. Tensors are cloned, so that a
    model that writes into its inputs does not change the next run. ``seed``: for dropout and the like; the
    caller's generators are restored. ``gradients``: whether to run with gradients, if that is known. Raises
    TypeError if ``inputs`` is none of these. Returns the output of the model.
    """

    def once(setting: AbstractContextManager[Any]) -> Any:
        args, kwargs = call_arguments(inputs)
        with RestoringStack(setting, generators_kept()):
            seed_generators(seed)
            return detached(call_model(model, args, kwargs))

    if gradients is not None:
        return once(torch.enable_grad() if gradients else torch.no_grad())
    return with_gradients_if_needed(model, once)


def call_model(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a model; of a graph that raises, torch writes no traceback to standard error."""
    cls = type(model)
    # Torch puts a method into the class of each graph module that writes it and calls the one of its base.
    if isinstance(model, GraphModule) and "__call__" in vars(cls):
        return super(cls, model).__call__(*args, **kwargs)  # type: ignore[misc]
    return model(*args, **kwargs)


def with_gradients_if_needed(
    model: Any, call: Callable[[AbstractContextManager[Any]], T], beside: Any = None
) -> T:
    """Call a function that runs a model without gradients, and again with them if the model needs them.

    ``call``: runs it in a context. ``beside``: the model it is compared with, which may need gradients:
    Python may compute something else with them.
    """
    try:
        return call(gradients_for(model, beside))
    except RuntimeError as error:
        if not asks_for_gradients(error):
            raise
    # It takes derivatives of its own results, as a force field does, or keeps them.
    return call(torch.enable_grad())


def asks_for_gradients(error: Exception) -> bool:
    """Tell whether an error is one of torch about gradients that are off."""
    return _NEEDS_GRADIENTS.search(str(error)) is not None


def gradients_for(*models: Any) -> AbstractContextManager[Any]:
    """Return a context without gradients, or with them if one of the compared models needs them."""
    return torch.enable_grad() if any(map(needs_gradients, models)) else torch.no_grad()


def needs_gradients(model: Any) -> bool:
    """Tell whether a model is a graph that takes derivatives, or refuses to run without gradients."""
    nodes = model.graph.nodes if isinstance(model, GraphModule) else ()
    return any(takes_derivatives(node) or requires_gradients(node) for node in nodes)


def takes_derivatives(node: Node) -> bool:
    """Tell whether a node needs inputs with a history of gradients."""
    return node.target in _DERIVATIVES


def detached(value: Any) -> Any:
    """Return a nested value whose tensors have no history."""

    def without_history(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach()
        return unflatten_objects(map_tensors(lambda _, tensor: tensor.detach(), flatten_objects(leaf)))

    return pytree.tree_map(without_history, value, is_leaf=is_object)


def note_inputs(graph_module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the shapes of inputs of a graph, unless they do not fit, as those of other code than its own."""

    def like(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return partial(torch.empty, tensor.shape, dtype=tensor.dtype, device=tensor.device)

    with suppress(ValueError):
        values = bound_values(graph_module, args, kwargs)
        INPUTS[graph_module] = pytree.tree_map_only(torch.Tensor, like, values), {}


def value_on_inputs(graph_module: GraphModule, node: Node) -> Any:
    """Return the fake value of a node on the inputs that were noted; ``None`` if it is not known."""
    if graph_module not in INPUTS:
        return None
    arguments, values = INPUTS[graph_module]
    if node.name not in values:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        interpreter = Interpreter(graph_module)
        with mode, torch.no_grad(), state_kept(graph_module):
            interpreter.args_iter = iter(pytree.tree_map_only(partial, lambda made: made(), arguments))
            for each in graph_module.graph.nodes:
                interpreter.env[each] = values[each.name] = _value(interpreter, each)
    return values[node.name]


def _value(interpreter: Interpreter, node: Node) -> Any:
    if node.op == "output" or any(interpreter.env[value] is None for value in node.all_input_nodes):
        return None
    try:
        return interpreter.run_node(node)
    except Exception:  # its shape depends on data, or it raises
        return None
