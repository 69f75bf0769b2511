"""Tensors whose numbers are read, or computed, for each operation, and not kept."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fxlab.base.torch_private import modes_disabled, pytree

_lock = threading.Lock()
_depth = 0


class Source(ABC):
    """The source of a lazy tensor's numbers."""

    @abstractmethod
    def read(self) -> torch.Tensor:
        """Return them; nothing is kept of it."""

    @abstractmethod
    def text(self) -> str:
        """Return a text that identifies the numbers, the same in every process."""

    def origins(self) -> Iterator[Source]:
        """Yield the sources that these numbers are computed from, or this one."""
        yield self


@contextmanager
def deferred() -> Iterator[None]:
    """Return lazy tensors from operations on lazy tensors; they are computed at each use.

    For passes that merge weights, and libraries that rename and convert weights of files. An operation is
    computed at once if its result is no tensor, has a shape that depends on data, or draws random numbers.
    """
    global _depth
    with _lock:
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1


class LazyTensor(torch.Tensor):
    """A tensor without memory: each operation reads its numbers, and they are dropped with the result.

    It claims to lie on the CPU, and any code that computes with tensors takes it. Views of it are lazy as
    well. A write into it is kept in memory from then on. ``source``: where the numbers come from. ``like``: a
    tensor of its shape, strides and dtype, such as one on the meta device.
    """

    _source: Source
    _whole: LazyTensor | None
    """The tensor of which it is a view."""

    @staticmethod
    def __new__(
        cls,
        source: Source,
        like: torch.Tensor,
        *,
        requires_grad: bool = False,
        whole: LazyTensor | None = None,
    ) -> LazyTensor:
        """Make one."""
        made: LazyTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            like.shape,
            like.stride(),
            dtype=like.dtype,
            device=torch.device("cpu"),
            requires_grad=requires_grad,
        )
        made._source, made._whole = source, whole
        return made

    # Results are plain tensors, not of this class.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Read the arguments of an operation and run it, or note it."""
        kwargs = kwargs or {}
        written = _written(func, args, kwargs)
        if written:
            return _write(func, args, kwargs, written)
        viewed = _viewed(func, args)
        if viewed is not None or (_depth and _can_wait(func)):
            made = _noted(func, args, kwargs, viewed)
            if made is not None:
                return made
        return func(*_all_read(args), **_all_read(kwargs))

    def read(self) -> torch.Tensor:
        """Return the numbers in a plain tensor, which must not be written.

        Modes that are on do not change them: a float64 run widens them later.
        """
        with torch.no_grad(), modes_disabled():
            return self._source.read()

    @property
    def place(self) -> tuple[object, ...]:
        """A key that is equal for tensors with the same numbers and the same view of them."""
        if self._whole is None:
            return (self._source,)
        assert isinstance(self._source, _Computed)
        inside = self._whole.place
        return inside if self._source.name in _ITSELF else (*inside, self._source.text(first=1))

    def text(self) -> str:
        """Return a text that identifies its numbers, the same in every process."""
        return self._source.text()

    def snapshot(self) -> Source:
        """Return the present source of its numbers; later writes do not count."""
        if self._whole is None:
            return self._source
        assert isinstance(self._source, _Computed)
        return self._source.of_snapshots()

    def hold(self) -> None:
        """Keep the numbers in memory from now on, as they are about to be written."""
        owner: LazyTensor = self
        while owner._whole is not None:
            owner = owner._whole
        # A copy for each write: results that were computed before keep the numbers of then.
        owner._source = _Held(owner.read().clone())

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyTensor:
        """Return an independent copy with the same numbers."""
        source = self.snapshot()
        copied = _Held(source.tensor.clone()) if isinstance(source, _Held) else source
        is_parameter = isinstance(self, torch.nn.Parameter)
        made = memo[id(self)] = _rebuilt(copied, self._like(), self.requires_grad, is_parameter)
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the source of the numbers, and no numbers."""
        is_parameter = isinstance(self, torch.nn.Parameter)
        return _rebuilt, (self.snapshot(), self._like(), self.requires_grad, is_parameter)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        """Describe it without reading it."""
        return f"LazyTensor({tuple(self.shape)}, {self.dtype}, {self.text()})"

    def _like(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="meta")


def is_lazy(tensor: object) -> bool:
    """Tell whether a tensor is lazy; a parameter may be."""
    return type(tensor) is LazyTensor


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor itself, or the numbers of a lazy one; for code that looks at it more than once."""
    return tensor.read() if isinstance(tensor, LazyTensor) else tensor


def as_parameter(tensor: LazyTensor, *, requires_grad: bool) -> torch.nn.Parameter:
    """Return a lazy parameter of the same numbers."""
    made: Any = _rebuilt(tensor.snapshot(), tensor._like(), requires_grad, is_parameter=True)
    parameter: torch.nn.Parameter = made
    return parameter


@dataclass(frozen=True, eq=False)
class _Held(Source):
    """Written numbers, in memory."""

    tensor: torch.Tensor

    def read(self) -> torch.Tensor:
        return self.tensor

    def text(self) -> str:
        data = self.tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return f"held:{hashlib.blake2b(data, digest_size=16).hexdigest()}"


@dataclass(frozen=True, eq=False)
class _Computed(Source):
    """An operation that is computed whenever its result is used."""

    name: str
    """The overload, such as ``aten.cat.default``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    """The index among several results."""

    def read(self) -> torch.Tensor:
        packet, operator, overload = self.name.split(".")
        function = getattr(getattr(getattr(torch.ops, packet), operator), overload)
        result = function(*_all_read(self.args), **_all_read(self.kwargs))
        found: torch.Tensor = result if self.index is None else result[self.index]
        return found

    def text(self, first: int = 0) -> str:
        """Return the words for it; from the second argument on they are those for a view of the first."""
        leaves = pytree.tree_leaves((self.args[first:], self.kwargs))
        return f"{self.name}({', '.join(map(_leaf_text, leaves))})[{self.index}]"

    def origins(self) -> Iterator[Source]:
        for leaf in pytree.tree_leaves((self.args, self.kwargs)):
            if isinstance(leaf, (LazyTensor, Source)):
                yield from (leaf.snapshot() if isinstance(leaf, LazyTensor) else leaf).origins()

    def of_snapshots(self) -> _Computed:
        """Return the same operation on snapshots of its tensors."""
        args, kwargs = pytree.tree_map_only(LazyTensor, LazyTensor.snapshot, (self.args, self.kwargs))
        return _Computed(self.name, args, kwargs, self.index)


_ITSELF = ("aten.detach.default", "aten.alias.default")
"""Views that change nothing."""


def _rebuilt(source: Source, like: torch.Tensor, requires_grad: bool, is_parameter: bool) -> LazyTensor:
    made = LazyTensor(source, like, requires_grad=requires_grad)
    if is_parameter:
        made._is_param = True
    return made


def _all_read(value: Any) -> Any:
    """Return a nested value with lazy tensors and sources read."""
    return pytree.tree_map_only((LazyTensor, Source), lambda leaf: leaf.read(), value)


def _leaf_text(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor) and not is_lazy(leaf):
        return f"{leaf.dtype}{leaf.tolist()}"
    return leaf.text() if hasattr(leaf, "text") else repr(leaf)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[LazyTensor]:
    """Return the lazy tensors that an operation writes into."""
    parameters = func._schema.arguments
    given = zip(parameters, args, strict=False)
    named = ((parameter, kwargs[parameter.name]) for parameter in parameters if parameter.name in kwargs)
    values = [
        value
        for parameter, value in (*given, *named)
        if parameter.alias_info is not None and parameter.alias_info.is_write
    ]
    return [leaf for leaf in pytree.tree_leaves(values) if is_lazy(leaf)]


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[LazyTensor]) -> Any:
    if torch.Tag.inplace_view in func.tags:
        raise NotImplementedError(
            f"{func}: a weight that is read from a file cannot be given another shape in place. "
            "Compute a new tensor."
        )
    for tensor in written:
        tensor.hold()
    real = {id(tensor): tensor.read() for tensor in written}
    args, kwargs = pytree.tree_map_only(
        LazyTensor, lambda tensor: real.get(id(tensor), tensor), (args, kwargs)
    )
    lazy = {id(real[id(tensor)]): tensor for tensor in written}
    result = func(*_all_read(args), **_all_read(kwargs))
    return pytree.tree_map_only(torch.Tensor, lambda tensor: lazy.get(id(tensor), tensor), result)


def _viewed(func: Any, args: tuple[Any, ...]) -> LazyTensor | None:
    """Return the lazy tensor of which an operation returns views."""
    returns = func._schema.returns
    if not args or not is_lazy(args[0]) or not returns or any(each.alias_info is None for each in returns):
        return None
    base: LazyTensor = args[0]
    return base


def _can_wait(func: Any) -> bool:
    returns = func._schema.returns
    are_tensors = all("Tensor" in str(each.type) for each in returns)
    return bool(returns) and are_tensors and torch.Tag.nondeterministic_seeded not in func.tags


def _noted(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], viewed: LazyTensor | None
) -> LazyTensor | tuple[LazyTensor, ...] | list[LazyTensor] | None:
    """Return lazy results of an operation; ``None`` if their shapes are not known beforehand."""
    shapes: dict[int, torch.Tensor] = {}

    def on_meta(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            like = leaf._like() if isinstance(leaf, LazyTensor) else leaf.to("meta")
            return shapes.setdefault(id(leaf), like)
        return torch.device("meta") if leaf == torch.device("cpu") else leaf

    device = kwargs.get("device")
    if device is not None and torch.device(device) != torch.device("cpu"):
        return None
    meta_args, meta_kwargs = pytree.tree_map(on_meta, (args, kwargs))
    try:
        result = func(*meta_args, **meta_kwargs)
    except (NotImplementedError, RuntimeError):
        return None  # computed at once, which raises the error if there is one
    kept: Any = args, kwargs
    # A view keeps its base itself, so that later writes into the base show in it.
    if viewed is None:
        kept = pytree.tree_map_only(torch.Tensor, _kept, kept)
    several = isinstance(result, list | tuple)
    # A clone has the same source: there is no memory to copy.
    if func is torch.ops.aten.clone.default and result.stride() == args[0].stride():
        return LazyTensor(args[0].snapshot(), result)
    made = [
        LazyTensor(_Computed(str(func), kept[0], kept[1], place if several else None), tensor, whole=viewed)
        for place, tensor in enumerate(result if several else (result,))
    ]
    return type(result)(made) if several else made[0]


def _kept(tensor: torch.Tensor) -> Any:
    """Return the copy of an argument that a waiting operation keeps: nobody else can write it."""
    return tensor.snapshot() if isinstance(tensor, LazyTensor) else tensor.detach().clone()
