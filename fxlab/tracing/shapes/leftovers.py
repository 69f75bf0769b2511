"""Find fake tensors that a finished run has left in a model or around it, so that they are put back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FrameType
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.interrupts import RestoringStack
from fxlab.models.state.settings import put_settings_back, settings_now
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.report import TraceError
from fxlab.tracing.torch_private import FakeTensor, FakeTensorMode
from fxlab.values.containers import is_a

_MOST_SEARCHED = 50
"""Holders whose own holders are looked for, each among all objects, when words for one are asked."""


@contextmanager
def put_back_after(around: Surroundings, mode: FakeTensorMode | None = None) -> Iterator[list[str]]:
    """Put the Python around a model, and settings of torch, back after a run, without a mode's fake tensors.

    Gives the changes that the run has made there, once the block has ended.
    """

    def is_of_run(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return isinstance(value, FakeTensor) and value.fake_mode is mode
        return mode is not None and value.node.shape_env is mode.shape_env

    changed: list[str] = []
    settings = settings_now()
    with RestoringStack() as restoring:
        restoring.callback(lambda: changed.extend(put_settings_back(settings)))
        restoring.callback(lambda: changed.extend(around.put_back(is_of_run)))
        yield changed


class TensorKeptError(TraceError):
    """A tensor of a run is held by something from which it cannot be taken away."""

    code = "tensor-kept"

    def __init__(self, holder: str, tensors: list[weakref.ref[torch.Tensor]]) -> None:
        super().__init__(
            f"The model keeps a tensor that it has computed outside of its modules, in a {holder}. It could "
            "not be taken away from there, and is a fake one: empty what holds it, and name the module that "
            "puts it there in leaf_modules."
        )
        self.tensors = tensors

    @property
    def is_over(self) -> bool:
        """Whether these tensors have no holder any more."""
        return _holder(self.tensors) is None


def still_there(references: list[weakref.ref[torch.Tensor]]) -> list[weakref.ref[torch.Tensor]]:
    """Return those fake tensors of a run that has ended which something still holds."""
    alive = [reference() for reference in references]
    tensors = [tensor for tensor in alive if isinstance(tensor, FakeTensor)]
    if tensors:
        for attributes in map(vars, tensors):
            # One with its own result as an attribute holds itself, through autograd's objects in C++.
            held = [name for name, value in attributes.items() if isinstance(value, FakeTensor)]
            for name in held:
                del attributes[name]
        del alive, tensors, attributes
        gc.collect()  # looks among the objects of the run alone, as those before are put aside
    return [reference for reference in references if isinstance(reference(), FakeTensor)]


def require_gone(left: list[weakref.ref[torch.Tensor]]) -> None:
    """Raise :class:`TensorKeptError` if a tensor of a run that has ended still has a holder."""
    if left and (holder := _holder(left)) is not None:
        raise TensorKeptError(holder, left)


def _holder(references: list[weakref.ref[torch.Tensor]]) -> str | None:
    tensors = [alive for alive in (reference() for reference in references) if alive is not None]
    for tensor in tensors:  # a generator, or a variable that is assigned in one, would be found to hold it
        if (holder := _holder_of(tensor, tensors)) is not None:
            return holder
    return None


def _holder_of(tensor: torch.Tensor, left: list[torch.Tensor]) -> str | None:
    """Return words for the object that a tensor can be reached from.

    Frames will end, and the run's own objects go with it; nodes of graphs hold fake tensors on purpose.
    """
    ahead: list[Any] = [tensor]
    ours: list[Any] = [left, ahead]  # the containers of this search itself
    known, seen = {id(left), id(ahead), id(ours)}, {id(tensor)}
    for value in ahead:
        found = gc.get_referrers(value)
        ours.append(found)
        known.add(id(found))
        holders = [holder for holder in found if id(holder) not in known]
        ours.append(holders)
        known.add(id(holders))
        if not holders and value is not tensor:  # something in C does
            return type(value).__name__
        for holder in holders:
            is_own = type(holder).__module__.startswith("fxlab.tracing.") or is_a(holder, Node)
            if id(holder) in seen or is_own or is_a(holder, FrameType):
                continue
            if not is_a(holder, dict, list, tuple, set, CellType):
                return f"{type(holder).__module__}.{type(holder).__qualname__}"
            seen.add(id(holder))
            ahead.append(holder)
        if len(ahead) > _MOST_SEARCHED:
            return type(ahead[-1]).__name__
    return None
