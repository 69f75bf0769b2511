"""Given sizes of one, as batches of one image and texts of one token, for which a trace takes other sizes.

A size of one is broadcast, squeezed and left out of strides, so torch asks whether a symbol is one, which
fixes it. A graph of a larger batch is mostly right for one too: whether it is, the comparison shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeVar

from fxlab.tracing.bound_inputs import Argument, Size
from fxlab.tracing.recording.opaque_calls import CannotBeWholeError
from fxlab.tracing.recording.run import TraceStrategy
from fxlab.tracing.shapes.fake_inputs import StandInError
from fxlab.tracing.torch_private import GuardOnDataDependentSymNode
from fxlab.values.nested import tensors_inside

_Trace = TypeVar("_Trace")


class SizesOfOne:
    """Traces a model on sizes that stand in for given ones, where torch would fix these."""

    def __init__(self, arguments: tuple[Argument, ...]) -> None:
        shapes = {(a.name, path): tensor.shape for a in arguments for path, tensor in tensors_inside(a.value)}
        self._vectors = {place for place, shape in shapes.items() if len(shape) == 1}
        self._taken = {size for shape in shapes.values() for size in shape}
        self._found: Collection[Size] | None = None

    def trace(self, rung: TraceStrategy, trace: Callable[[TraceStrategy], _Trace]) -> _Trace:
        """Trace on a rung; on other sizes in place of ones, if it gives the model's bits for these as well.

        ``trace``: traces on it, and raises if the recording does not hold for the inputs.
        """
        if not rung.dynamic or 1 not in self._taken or self._found == ():
            return trace(rung)
        if self._found is None:
            try:
                return trace(replace(rung, keeps_ones=False))
            except StandInError as error:
                sizes: Collection[Size] = error.sizes
        else:
            sizes = self._found
        while stand_ins := self._stand_ins(sizes):
            try:
                result = trace(replace(rung, stand_ins=stand_ins))
            except StandInError as error:
                sizes = stand_ins.keys() - error.sizes
            except (GuardOnDataDependentSymNode, CannotBeWholeError):
                raise  # other sizes would raise it, too
            except Exception:  # the model's own code runs here, and may raise anything
                sizes = self._fewer(stand_ins)
            else:
                self._found = stand_ins
                return result
        result = trace(rung)
        self._found = ()
        return result

    def _stand_ins(self, sizes: Collection[Size]) -> Mapping[Size, int]:
        """Return a number for each size, one for each dimension, which no other size of the inputs is."""
        free = (number for number in count(2) if number not in self._taken)
        numbers = dict(zip(sorted({dim for *_, dim in sizes}), free, strict=False))
        return {size: numbers[size[-1]] for size in sizes}

    def _fewer(self, sizes: Collection[Size]) -> Collection[Size]:
        """Return the first dimensions, which are batches; without those of vectors, if these are all."""
        first = {size for size in sizes if size[-1] == 0}
        batches = {size for size in first if size[:2] not in self._vectors}
        return next((fewer for fewer in (first, batches) if len(fewer) < len(sizes)), ())
