"""Digests of arguments: equal for what is equal, other for what is not."""

from __future__ import annotations

import enum
import functools
import threading

import numpy as np
import pytest
import torch

from fxlab.transformations.signature import digest


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: float) -> float:
        return x * self.factor


def scaled(factor: float) -> object:
    def by(x: float) -> float:
        return x * factor

    return by


def unassigned() -> object:
    def reads() -> int:
        return later

    if False:
        later = 1
    return reads


class Nameless:
    """Pickled by a name alone."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


PAIRS = {
    "enum": lambda odd: Colour.RED if odd else Colour.BLUE,
    "bound method": lambda odd: Scale(2.0 if odd else 3.0).apply,
    "method of a builtin": lambda odd: [1, 2 if odd else 3].append,
    "closure": lambda odd: scaled(2.0 if odd else 3.0),
    "partial": lambda odd: functools.partial(max, 1 if odd else 2),
    "dtype": lambda odd: torch.float16 if odd else torch.bfloat16,
    "tensor": lambda odd: torch.tensor([1.0, 2.0 if odd else 3.0]),
    "sparse tensor": lambda odd: torch.tensor([[0.0, 2.0 if odd else 3.0]]).to_sparse(),
    "bits of a zero": lambda odd: torch.tensor([0.0 if odd else -0.0]),
    "conjugated tensor": lambda odd: torch.tensor([1 + (2j if odd else 3j)]).conj(),
    "tensor on meta": lambda odd: torch.empty(2 if odd else 3, device="meta"),
    "array": lambda odd: np.array([1, 2 if odd else 3]),
    "array of objects": lambda odd: np.array([{"a": 1 if odd else 2}], dtype=object),
    "module": lambda odd: torch.nn.Dropout(0.1 if odd else 0.2),
    "slice": lambda odd: slice(0, 3 if odd else 4),
    "union": lambda odd: int | (str if odd else float),
    "pickled by name": lambda odd: Nameless("one" if odd else "two"),
    "state without attributes": lambda odd: range(3 if odd else 4),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_arguments_have_equal_digests_and_others_have_others(name: str) -> None:
    make = PAIRS[name]
    assert digest(make(True)) == digest(make(True))
    assert digest(make(True)) != digest(make(False))


@pytest.mark.parametrize(
    "value", [threading.Lock(), unassigned()], ids=["unpicklable", "unassigned variable"]
)
def test_what_cannot_be_looked_into_is_told_by_its_type(value: object) -> None:
    assert digest(value) == digest(value)
    assert digest(value) != digest(None)
