"""Keep the state of a model while a trace or a comparison runs it, and restore it afterwards."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from types import BuiltinMethodType, CellType, FunctionType, MethodType, MethodWrapperType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import FakeTensor, is_of_transform, modes_disabled
from fxlab.models.hooks import is_compiled
from fxlab.models.state.python_read import REGISTRIES
from fxlab.models.state.settings import function_modes_hidden
from fxlab.operators import Operator, is_in_place, operator_for, written_values
from fxlab.operators.python_functions import MEMORY
from fxlab.values import containers
from fxlab.values.tensors import is_plain, same_bits, storage_of, tensor_leaves, version_of


@contextmanager
def state_kept(
    model: nn.Module,
    *,
    values: bool = True,
    watch: bool = True,
    parameters: Iterable[torch.Tensor] = (),
    others: Iterable[torch.Tensor] = (),
) -> Iterator[ModelState]:
    """Restore the present state of a model at the end of the block, in which no other thread runs one.

    The state is every attribute of each module, with the lists, dictionaries and objects in it; the data of
    tensors; and random number generators. Buffers are copied at once. A parameter is copied only when a call
    of torch is about to write into it, so that a large model is not copied for a run.

    ``model``: the module whose tree is kept. ``values``: whether to restore the data of tensors as well, for
    runs that compute on real tensors. ``watch``: whether to watch for calls that write into parameters; costs
    some microseconds for each call. ``parameters``: parameters or others that are known to be written, which
    are copied at once. ``others``: tensors outside of the model that it may write. The context gives a
    :class:`ModelState`, which tells before the end what the run has written.
    """
    with PROCESS_LOCK:
        state = ModelState(model, values=values, parameters=parameters, others=others)
        with state.put_back_after(watch=watch):
            yield state


def state_kept_in_call(model: nn.Module) -> AbstractContextManager[ModelState]:
    """Return the same for a call of a model as it is.

    Dynamo would trace the mode that watches, and call other code: parameters are copied at once.
    """
    runs_compiled = is_compiled(model)
    return state_kept(model, watch=not runs_compiled, parameters=model.parameters() if runs_compiled else ())


@dataclass(frozen=True)
class SavedTensor:
    """A tensor's earlier contents, memory and shape."""

    tensor: torch.Tensor
    alias: torch.Tensor
    """The same memory, even after ``.data`` is given other memory."""
    values: torch.Tensor
    version: int
    has_history: bool
    """Whether gradients flow through it, as through a buffer written while they were recorded."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> SavedTensor:
        """Copy a tensor."""
        with torch.no_grad(), modes_disabled():
            values = tensor.detach().clone()
            return cls(tensor, tensor.detach(), values, version_of(tensor), tensor.grad_fn is not None)

    @property
    def is_moved(self) -> bool:
        """Whether the tensor has other memory, or another shape, than before."""
        return _geometry(self.tensor) != _geometry(self.alias)

    def is_now(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor has the former bits of this one."""
        if not is_plain(tensor) or not is_plain(self.tensor):
            return tensor is self.tensor and version_of(tensor) == self.version
        return same_bits(tensor.detach(), self.values)

    def put_back(self) -> None:
        """Restore the tensor's memory and numbers, if they changed."""
        if self.is_moved:
            self.tensor.data = self.alias
        # Batch norm writes without counting a new version.
        if not self.is_now(self.tensor):
            self.alias.copy_(self.values)
        # A run with gradients leaves history in buffers that it wrote, and the next run would fail on it.
        if self.tensor.grad_fn is not None and not self.has_history and not self.tensor._is_view():
            self.tensor.detach_()
        # Sessions watch versions, and would build their stages again.
        if version_of(self.tensor) != self.version:
            torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))


class ModelState:
    """The state of a model when this was made; see :func:`state_kept`."""

    def __init__(
        self,
        model: nn.Module,
        *,
        values: bool = True,
        parameters: Iterable[torch.Tensor] = (),
        others: Iterable[torch.Tensor] = (),
    ) -> None:
        self._model = model
        self._values = values
        self._namespaces: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._slots: list[tuple[Any, Any, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._generators: list[Callable[[], object]] = []
        self._memory: list[tuple[Any, bytes]] = []
        self._saved: dict[int, SavedTensor] = {}
        self._watched: dict[object, list[torch.Tensor]] = {}
        self._gradients: list[tuple[torch.Tensor, bool, torch.Tensor | None]] = []
        self._names: dict[str, torch.Tensor] = {}
        self._versions: dict[str, int] = {}
        self._seen: set[int] = set()
        at_once = {id(parameter) for parameter in parameters}
        for path, module in model.named_modules():
            self._keep_module(path, module, at_once)
        for tensor in others:
            if has_values(tensor) and id(tensor) not in self._seen and id(tensor) not in self._saved:
                self._keep_tensor(tensor, id(tensor) in at_once)

    @contextmanager
    def put_back_after(self, *, watch: bool = True) -> Iterator[ModelState]:
        """Restore the model when the block ends; may be used for several blocks, one after the other."""
        # Modules of torch leave out fast paths under a mode; hidden, they compute as without it.
        watching = (_ParameterWrites(self), function_modes_hidden()) if self._values and watch else ()
        with RestoringStack() as restoring:
            restoring.callback(self.put_back)
            with RestoringStack(*watching):
                yield self

    def save(self, memory: object) -> None:
        """Copy the parameters in some memory before they are written."""
        for parameter in self._watched.pop(memory, ()):
            self._saved[id(parameter)] = SavedTensor.of(parameter)

    def save_gradients(self) -> None:
        """Copy the gradients before a backward pass adds to them."""
        for _, _, gradient in self._gradients:
            if gradient is not None:
                self.save(memory_of(gradient))

    @property
    def copied_parameters(self) -> list[torch.Tensor]:
        """The parameters that a call was about to write."""
        tensors = (saved.tensor for saved in self._saved.values())
        return [tensor for tensor in tensors if isinstance(tensor, nn.Parameter)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the present tensors by their names."""
        now = ((name, value_at(self._model, name)) for name in self._names)
        return {name: value for name, value in now if isinstance(value, torch.Tensor)}

    def written(self, *, replaced: bool = True) -> dict[str, torch.Tensor]:
        """Return copies of the tensors that have changed, by name.

        ``replaced``: whether attributes that hold another tensor now are among them; buffers always are.
        """
        found = {}
        for name, tensor in self._names.items():
            now = value_at(self._model, name) if (saved := self._saved.get(id(tensor))) else None
            if not isinstance(now, torch.Tensor) or saved is None or saved.is_now(now):
                continue
            is_alike = (now.shape, now.dtype) == (tensor.shape, tensor.dtype)
            if replaced or now is tensor or (is_alike and name in dict(self._model.named_buffers())):
                found[name] = now.detach().clone()
        return found

    def apart(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors, with copies of those whose memory will be restored."""
        # The mode that watches for writes would take these questions about memory for writes.
        with torch._C.DisableTorchFunction():
            kept = {memory_of(saved.tensor) for saved in self._saved.values()}
            shared = {path for path, tensor in tensors.items() if memory_of(tensor) in kept}
        return {path: tensor.clone() if path in shared else tensor for path, tensor in tensors.items()}

    def put_back(self) -> None:
        """Restore everything that has changed."""
        for namespace, before in self._namespaces:
            if [*namespace] != [*before] or any(namespace[key] is not before[key] for key in namespace):
                namespace.clear()
                namespace.update(before)
        for slot, owner, value in self._slots:
            slot.__set__(owner, value)
        for cell, value in self._cells:
            cell.cell_contents = value
        for container, before in self._containers:
            containers.put_back(container, before)
        self.put_memory_back()
        for put_generator_back in self._generators:
            put_generator_back()
        with torch.no_grad():
            for saved in self._saved.values():
                saved.put_back()
        for tensor, requires_grad, gradient in self._gradients:
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            if tensor.is_leaf and tensor.grad is not gradient:
                tensor.grad = gradient
        self._warn_of_lost_values()

    def put_memory_back(self) -> None:
        """Restore the memory that is not a tensor's, such as NumPy arrays."""
        for value, memory in self._memory:
            if containers.memory_in(value) != memory:
                containers.put_memory_back(value, memory)

    def _warn_of_lost_values(self) -> None:
        lost = [
            name
            for name, version in self._versions.items()
            if id(self._names[name]) not in self._saved and version_of(self._names[name]) != version
        ]
        if lost:
            warnings.warn(
                f"The run has written the parameter {lost[0]!r} where that could not be foreseen, such as in "
                "compiled or scripted code; its former values are lost.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _keep_module(self, path: str, module: nn.Module, at_once: set[int]) -> None:
        prefix = f"{path}." if path else ""
        self._seen.add(id(module))
        self._keep_namespace(vars(module))
        self._keep_slots(path, module)
        for name, value in vars(module).items():
            if name in REGISTRIES or name == "meta":
                self._keep_container(value)
            else:
                self._keep(f"{prefix}{name}", value)
        for name, buffer in module._buffers.items():
            self._keep(f"{prefix}{name}", buffer)
        for name, parameter in module._parameters.items():
            if parameter is None or not self._values:
                continue
            self._names[f"{prefix}{name}"] = parameter
            if id(parameter) in self._seen or not has_values(parameter):
                continue
            self._versions[f"{prefix}{name}"] = version_of(parameter)
            self._keep_tensor(parameter, id(parameter) in at_once)

    def _keep_tensor(self, tensor: torch.Tensor, at_once: bool) -> None:
        self._seen.add(id(tensor))
        if at_once:
            self._saved[id(tensor)] = SavedTensor.of(tensor)
        else:
            self._watched.setdefault(memory_of(tensor), []).append(tensor)
        if tensor.is_leaf:
            self._gradients.append((tensor, tensor.requires_grad, tensor.grad))
            if tensor.grad is not None:
                self._keep_tensor(tensor.grad, at_once)

    def _keep_namespace(self, namespace: dict[str, Any]) -> None:
        self._namespaces.append((namespace, dict(namespace)))

    def _keep_slots(self, name: str, value: Any) -> None:
        for slot, item in containers.slots_of(value):
            self._slots.append((slot, value, item))
            self._keep(f"{name}.{slot.__name__}", item)

    def _keep_container(self, value: Any) -> None:
        if (before := containers.contents(value)) is not None:
            self._containers.append((value, before))

    def _keep(self, name: str, value: Any) -> None:
        """Keep an attribute and its contents."""
        if containers.is_a(value, torch.Tensor):
            if self._values and has_values(value):
                self._names[name] = value
                if id(value) not in self._saved:
                    self._saved[id(value)] = SavedTensor.of(value)
            return
        if value is None or containers.is_a(value, str, int, float, complex, bytes, nn.Module, type):
            return
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if (memory := containers.memory_in(value)) is not None:
            self._memory.append((value, memory))
        elif (generator := _state_of_generator(value)) is not None:
            state, set_state = generator
            self._generators.append(functools.partial(set_state, state))
        elif (items := containers.held_items(value)) is not None:
            self._keep_container(value)
            for key, item in items if containers.is_a(value, dict) else enumerate(items):
                self._keep(f"{name}.{key}", item)
        elif containers.is_a(value, functools.partial):
            for part in (*value.args, *value.keywords.values()):
                self._keep_container(part)
            self._keep(name, value.func)
        elif containers.is_a(value, *METHODS):
            self._keep(name, value.__self__)
        elif containers.is_a(value, FunctionType):
            for cell, item in containers.cells_of(value).values():
                self._cells.append((cell, item))
                self._keep_container(item)
        elif containers.holds_attributes(value):
            self._keep_slots(name, value)
            own = containers.namespace_of(value)
            self._keep_namespace(own)
            for attribute, item in own.items():
                self._keep(f"{name}.{attribute}", item)


METHODS: tuple[type[Any], ...] = (MethodType, BuiltinMethodType, MethodWrapperType)
_ITERATORS: tuple[type[Any], ...] = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter("")))


def memory_of(tensor: torch.Tensor) -> object:
    """Return a key that is equal for tensors in the same memory."""
    try:
        return storage_of(tensor)
    except (NotImplementedError, RuntimeError):  # sparse tensors have none of their own
        return id(tensor)


class _ParameterWrites(TorchFunctionMode):
    """Saves parameters before a call of torch writes into them."""

    def __init__(self, state: ModelState) -> None:
        super().__init__()
        self._state = state
        self._kinds: dict[Any, Operator | str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not torch.compiler.is_compiling():
            kind = self._kinds.get(func)
            if kind is None:
                kind = self._kinds.setdefault(func, _kind_of(func))
            if kind == "backward":
                self._state.save_gradients()
            elif isinstance(kind, Operator):
                if kind.may_write or "out" in kwargs:
                    self._save(written_values(kind, args, kwargs))
            elif kind == "writes" or (
                # An `out` or a flag such as `inplace` or `training` is given.
                kind == "may write"
                and (kwargs.get("out") is not None or any(v is True for v in (*args, *kwargs.values())))
            ):
                self._save(args, kwargs)
        return func(*args, **kwargs)

    def _save(self, *values: Any) -> None:
        for tensor in tensor_leaves(values):
            self._state.save(memory_of(tensor))


def _kind_of(function: Any) -> Operator | str:
    """Return the operator of a function, or else ``writes``, ``may write``, ``reads`` or ``backward``."""
    name = str(getattr(function, "__name__", ""))
    if name == "backward":
        return name
    if name in ("__get__", "requires_grad_"):
        return "reads"
    holder = getattr(function, "__objclass__", torch.Tensor)
    origin = getattr(function, "__module__", None) or holder.__module__
    if name in MEMORY or name == "__set__" or str(origin).partition(".")[0] != "torch":
        return "writes"
    operator = operator_for(function)
    if operator is not None and operator.overloads:
        return operator
    return "writes" if is_in_place(name) else "may write"


def has_values(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has numbers of its own: not on the meta device, fake, lazy or of a transform."""
    if tensor.is_meta or isinstance(tensor, FakeTensor) or nn.parameter.is_lazy(tensor):
        return False
    return not is_of_transform(tensor)


def _geometry(tensor: torch.Tensor) -> tuple[object, ...]:
    if tensor.layout is not torch.strided:
        return (tensor.shape,)
    return memory_of(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def value_at(model: nn.Module, name: str) -> Any:
    """Return the value at a name such as ``layers.0.cache.keys``, ``None`` if there is none."""
    value: Any = model
    for part in name.split("."):
        if containers.is_a(value, dict):
            value = dict.get(value, part)
        elif (items := containers.held_items(value)) is not None:
            value = dict(zip(map(str, count()), items, strict=False)).get(part)
        else:
            value = getattr(value, part, None)
    return value


def is_generator(value: Any) -> bool:
    """Tell whether a value gives new numbers each time, from a state of its own, as iterators do too."""
    cls: Any = type(value)
    return _may_generate(cls) and _state_of_generator(value) is not None


def is_used_up(value: Any) -> bool:
    """Tell whether reading from a value uses it up, and nothing can copy it or put it back.

    That is a generator, an iterator that is written in C, such as ``itertools.count()``, and a file.
    """
    cls: Any = type(value)
    if not _is_iterator(cls) or containers.is_a(value, *_ITERATORS):
        return False
    if containers.holds_attributes(value) and (
        cls.__dictoffset__ or any(True for _ in containers.slots_of(value))
    ):
        return False  # it is copied as other objects are
    if not containers.is_a(value, io.IOBase):
        return True
    try:
        return value.readable()
    except Exception:  # it is closed, or of a class of the model's own
        return False


@functools.lru_cache(maxsize=1024)
def _may_generate(cls: Any) -> bool:
    numpy_random = sys.modules.get("numpy.random")
    of_numpy: Any = (numpy_random.RandomState, numpy_random.Generator) if numpy_random else ()
    return issubclass(cls, (torch.Generator, random.Random, *_ITERATORS, *of_numpy))


@functools.lru_cache(maxsize=1024)
def _is_iterator(cls: Any) -> bool:
    return any("__next__" in type.__getattribute__(base, "__dict__") for base in cls.__mro__)


def copy_of_generator(value: Any) -> Any:
    """Return a generator that continues like another one, and does not change it."""
    # An iterator shares the list that it goes through.
    return copy.copy(value) if containers.is_a(value, *_ITERATORS) else copy.deepcopy(value)


def generator_state(value: Any) -> bytes:
    """Return the state of a random number generator for comparison."""
    state, _ = _state_of_generator(value) or (None, None)
    # A pickled tensor holds the address of its storage.
    return state.numpy().tobytes() if containers.is_a(state, torch.Tensor) else pickle.dumps(state)


def python_generators() -> dict[str, bytes]:
    """Return the states of the default generators of Python and NumPy."""
    numpy_random = sys.modules.get("numpy.random")
    states = {"random": random.getstate(), "numpy.random": numpy_random and numpy_random.get_state()}
    return {name: pickle.dumps(state) for name, state in states.items()}


def _state_of_generator(value: Any) -> tuple[Any, Callable[[Any], object]] | None:
    """Return the state of a random number generator and its setter; ``None`` for other values."""
    if containers.is_a(value, torch.Generator):
        return value.get_state(), value.set_state
    if containers.is_a(value, random.Random):
        return value.getstate(), value.setstate
    if containers.is_a(value, *_ITERATORS) and len(state := value.__reduce__()) == 3:
        return state[2], value.__setstate__  # an exhausted one has none
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and containers.is_a(value, numpy_random.RandomState):
        return value.get_state(), value.set_state
    if numpy_random is not None and containers.is_a(value, numpy_random.Generator):
        return value.bit_generator.state, functools.partial(setattr, value.bit_generator, "state")
    return None
