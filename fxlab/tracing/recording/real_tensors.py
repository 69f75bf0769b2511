"""Tensors with data for the rungs of a trace that need some; the part of a result that shapes tell."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fxlab.operators.python_functions import ADDRESSES
from fxlab.tracing.model_code.caches import Unused
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.model_code.unseen_work import OneThread
from fxlab.tracing.recording.torch_calls import is_part_of_sparse, name_of
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber
from fxlab.tracing.torch_private import TorchDispatchMode
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import is_plain

_BY_CLASS = ("__reduce_ex__", "__deepcopy__", "__repr__", "__format__")
"""Methods with which a tensor behaves in another way if its class is a subclass."""


class Unknown:
    """Stands for a value that shapes do not tell."""


class RealTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tensors with data that notice other threads and hidden calls, while a model runs on them.

    ``fakes``: makes fake tensors of the same shapes. ``one_thread``: is told of each call with one of these
    tensors. ``cuts_history``: whether a call that torch does not show has cut a tensor off from its history.
    """

    supports_higher_order_operators = True

    def __init__(self, fakes: FakeInputs, one_thread: OneThread) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fakes = fakes
        self._one_thread = one_thread
        self._watched: list[weakref.ref[torch.Tensor]] = []
        self.cuts_history = False
        called = classmethod(lambda cls, *call: self._called(*call))
        self.tensor_class: Any = type("Tensor", (torch.Tensor,), {"__torch_function__": called})

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for reference in self._watched:
            if (tensor := reference()) is not None:
                # In place, as the model and the graph may hold these very objects.
                tensor.__class__ = torch.Tensor

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._fakes.shape_env.require_shown(func)
        if func is torch.ops.aten.detach.default and self._fakes.shape_env.is_asked_by_model:
            # A scripted function that is optimized cuts its inputs off, and has a backward of its own.
            with torch._C.DisableTorchFunction():  # the model does not ask for it
                self.cuts_history |= args[0].requires_grad
        return func(*args, **(kwargs or {}))

    def watch(self, value: Any) -> Any:
        """Make the tensors inside a value detect other threads until the run ends; return the value."""
        for _, tensor in tensors_inside(value):
            if type(tensor) is torch.Tensor:
                tensor.__class__ = self.tensor_class
                self._watched.append(weakref.ref(tensor))
        return value

    def twin_of(self, model: nn.Module) -> Twin:
        """Return a twin of a model whose tensors, in the memory of the model's, notice other threads."""

        def watched(tensor: torch.Tensor) -> torch.Tensor:
            if not is_plain(tensor):
                return tensor
            alias: torch.Tensor = torch.Tensor._make_subclass(self.tensor_class, tensor, tensor.requires_grad)
            # `isinstance(alias, nn.Parameter)` goes by this attribute, and models ask it of their weights.
            alias._is_param = isinstance(tensor, nn.Parameter)
            self._watched.append(weakref.ref(alias))
            return alias

        return Twin(model, watched, Unused)

    def by_shapes(self, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call as far as the shapes of its arguments tell: fakes and numbers."""
        if name_of(func) in ADDRESSES or is_part_of_sparse(name_of(func), args):
            return Unknown()
        fake_args, fake_kwargs = self._fakes.as_fake((tuple(args), dict(kwargs)))
        try:
            with self._fakes.mode:
                return func(*fake_args, **fake_kwargs)
        except Exception:  # the operator has no fake kernel, or needs data
            return Unknown()

    def _called(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._one_thread.notice()
        with torch._C.DisableTorchFunctionSubclass():
            if name_of(func) not in _BY_CLASS:
                return func(*args, **(kwargs or {}))
            tensor = args[0]
            tensor.__class__ = torch.Tensor
            try:
                return func(*args, **(kwargs or {}))
            finally:
                tensor.__class__ = self.tensor_class


def is_told_by_shapes(value: Any, by_shapes: Any) -> bool:
    """Tell whether :meth:`RealTensors.by_shapes` gave the same number, or the same shape of a tensor."""
    if isinstance(value, torch.Tensor):
        return isinstance(by_shapes, torch.Tensor) and is_told_by_shapes(value.shape, by_shapes.shape)
    if isinstance(value, Mapping):
        is_alike = isinstance(by_shapes, Mapping) and value.keys() == by_shapes.keys()
        return is_alike and all(is_told_by_shapes(value[key], by_shapes[key]) for key in value)
    if isinstance(value, list | tuple):
        is_alike = isinstance(by_shapes, list | tuple) and len(value) == len(by_shapes)
        return is_alike and all(map(is_told_by_shapes, value, by_shapes))
    if isinstance(by_shapes, SymbolicNumber):
        return False
    return type(value) is type(by_shapes) and bool(value == by_shapes)
