"""A run that was recorded: its operations in order, and a fingerprint of each value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph

from fxlab.base.first_use import pd
from fxlab.base.units import listed
from fxlab.validation.alignment.fingerprint import Fingerprint
from fxlab.values.nested import Path

INPUT, WEIGHT, UNSEEN, COMPILED, OPERATOR = "input", "weight", "unseen", "compiled", "operator"
_NO_NAME = re.compile(r"\W+", re.ASCII)
KINDS = INPUT, WEIGHT, UNSEEN, COMPILED, OPERATOR
"""Kinds of steps: values that are given, held, made by code that no mode of torch sees, and computed."""


@dataclass
class Value:
    """A tensor of a run."""

    path: Path
    """The path in the result of the step; empty for a result that is one tensor."""
    shape: tuple[int, ...]
    dtype: str
    fingerprint: Fingerprint | None
    """``None`` for memory that holds no values yet, and for layouts that have none."""
    moved: float | None = None
    """How far rounding each result again has moved it, relative to the largest element."""


@dataclass
class Step:
    """An operation of a run, or a tensor that it was given."""

    kind: str
    target: str
    """The operator, such as ``aten.addmm.default``; the name of an input or weight; the class of a module."""
    args: list[Any] = field(default_factory=list)
    """Plain values; a tensor is ``{"step": number}``, and anything else ``{"text": ...}``."""
    call: int = -1
    """The module call, as its place in :attr:`RecordedRun.calls`."""
    line: int = -1
    """The source lines, as their place in :attr:`RecordedRun.lines`."""
    is_backward: bool = False
    values: list[Value] = field(default_factory=list)


@dataclass(repr=False)
class RecordedRun:
    """A run of a model as :func:`fxlab.runs.record_run` has recorded it: fingerprints, and no values.

    ``str()`` describes the contents; :attr:`table` has a row for each value.
    """

    model: str
    """The class of the model, or the name of the function."""
    versions: dict[str, str] = field(init=False, default_factory=dict)
    """Of fxlab, torch and Python, and the devices."""
    settings: dict[str, str] = field(init=False, default_factory=dict)
    """The numeric settings of torch, and ``training``."""
    notes: list[str] = field(init=False, default_factory=list)
    """The parts that could not be seen or measured."""
    error: str = field(init=False, default="")
    """The error of the run; empty if it has returned."""
    steps: list[Step] = field(init=False, default_factory=list)
    calls: list[tuple[str, str, int]] = field(init=False, default_factory=list)
    """Module calls in order: path, class, and the place of the call around it, or -1."""
    lines: list[str] = field(init=False, default_factory=list)
    outputs: dict[str, tuple[int, Fingerprint]] = field(init=False, default_factory=dict)
    """Path of an output -> the step that computed it, and its fingerprint."""

    @property
    def dtypes(self) -> list[str]:
        """The floating-point dtypes in which it computes."""
        found = (v.dtype for step in self.steps if step.kind == OPERATOR for v in step.values)
        return [*dict.fromkeys(dtype for dtype in found if dtype.startswith(("float", "bfloat", "complex")))]

    @property
    def names(self) -> list[str]:
        """A name for each step, as the nodes of a graph have them."""
        graph = Graph()
        bases = (
            step.target.split(".")[1]
            if step.kind == OPERATOR and "." in step.target
            else step.target.rpartition(".")[2]
            if step.kind == COMPILED
            else step.target
            for step in self.steps
        )
        names = (_NO_NAME.sub("_", base) for base in bases)
        return [graph.create_node("placeholder", name, name=name).name for name in names]

    @property
    def is_measured(self) -> bool:
        """Whether it was measured how far rounding moves the values."""
        return any(value.moved is not None for step in self.steps for value in step.values)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each value, in the order of the run, with its place in the model and statistics."""
        rows = []
        for name, step in zip(self.names, self.steps, strict=True):
            line = self.lines[step.line].strip().splitlines() if step.line >= 0 else []
            for value in step.values:
                found = value.fingerprint
                rows.append(
                    {
                        "node": name,
                        "operator": step.target,
                        "module": self.calls[step.call][0] if step.call >= 0 else "",
                        "shape": value.shape,
                        "dtype": value.dtype,
                        **({} if found is None else found.statistics),
                        "nan": None if found is None else found.special[0],
                        "infinite": None if found is None else sum(found.special[1:]),
                        "moved": value.moved,
                        "line": line[-1].strip() if line else "",
                    }
                )
        columns = ["node", "operator", "module", "shape", "dtype", "min", "max", "mean", "rms"]
        columns += ["nan", "infinite", "moved", "line"]
        return pd.DataFrame(rows, columns=columns).set_index("node")

    def __str__(self) -> str:
        values = sum(len(step.values) for step in self.steps)
        made = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        words = f"{values} values of {self.model} in {len(self.calls)} module calls ({made})"
        ended = [f"The run raised {self.error}"] if self.error else []
        return ". ".join([words, *ended, *self.notes]) + "."

    def __repr__(self) -> str:
        return f"RecordedRun({self.model}: {listed([*self.outputs]) or self.error or 'no outputs'})"
