"""Calls of operators as nodes, and those that torch's own tests make."""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from fxlab.operators import operator_of

SAMPLES = 3
"""Of each operator, out of torch's own tests."""


@dataclass(frozen=True)
class Run:
    """A call of one of torch's operators, and what it did."""

    function: Any
    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    written: set[Node]
    drew: bool

    @property
    def name(self):
        return operator_of(self.node).name


def call(target, *args, **kwargs):
    """Return a node that calls a function or, by a text, a method, and the placeholders that it is given."""
    graph = Graph()
    given = {}

    def placeholder(value):
        if not isinstance(value, torch.Tensor):
            return value
        return given.setdefault(id(value), graph.placeholder(f"input_{len(given)}"))

    args, kwargs = pytree.tree_map(placeholder, (args, kwargs))
    create = graph.call_method if isinstance(target, str) else graph.call_function
    return create(target, args, kwargs), given


def torchs_own_calls():
    """Yield functions and arguments out of the samples that torch tests its operators with."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        is_named = hasattr(info.op, "__name__")
        if not is_named or operator_of(call(info.op)[0]) is None or not info.dtypes:
            continue  # a function of torch's tests around it, or one of other devices
        dtype = torch.float32 if torch.float32 in info.dtypes else min(info.dtypes, key=str)
        try:
            samples = list(itertools.islice(info.sample_inputs("cpu", dtype), SAMPLES))
        except Exception:  # some make samples for one device alone
            continue
        for sample in samples:
            yield info.op, (sample.input, *sample.args), sample.kwargs
