"""The passes of a stack on one graph: applied one after the other, and checked on the arguments of a call."""

import threading
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.graphs.node_difference import is_same_graph
from fxlab.models.graph_module import changed_copy
from fxlab.models.running import Inputs
from fxlab.transformations import Transformation
from fxlab.validation import Reference, Status
from fxlab.values.tensors import same_bits

_GOOD = (Status.SAME_BITS, Status.WITHIN_ROUNDING)


@dataclass(frozen=True)
class TransformedGraph:
    """A graph with passes applied."""

    module: GraphModule | None
    passes: tuple[str, ...]
    """The names of the passes that have changed it."""
    verdict: str
    """The result of its comparison with the untransformed graph."""
    notes: tuple[str, ...]
    """Why passes were left off."""
    nodes: int
    makes_tensors: bool
    """Whether it holds tensors that the passes have computed."""


class SharedTensors:
    """Tensors that passes have made; bit-identical ones of several graphs are shared."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a graph is transformed."""
        self._known: dict[tuple[str, str], list[weakref.ref[torch.Tensor]]] = {}

    def share(self, module: GraphModule, own: Collection[int]) -> bool:
        """Replace tensors by known equal ones, except those of some ``id``; tell whether there are any."""
        found = False
        for path, holder, name, tensor in list(_held(module)):
            if id(tensor) in own:
                continue
            found = True
            known = [other for known in self._known.get((path, name), ()) if (other := known()) is not None]
            same = next((other for other in known if _is_same(other, tensor)), None)
            if same is None:
                known.append(tensor)
            else:
                holder[name] = same
            self._known[path, name] = [*map(weakref.ref, known)]
        return found


def transformed(
    traced: GraphModule,
    passes: tuple[Transformation, ...],
    inputs: Inputs,
    shared: SharedTensors,
    *,
    trains: bool,
    check: bool,
) -> TransformedGraph:
    """Apply passes to a graph, lowest first, and compare the result with it on inputs.

    A pass that raises is left off, with a note. So are passes that compute new parameters if gradients are
    wanted, as an optimizer knows the parameters of the model alone. ``check``: whether to use the
    untransformed graph unless the two are equal up to rounding.
    """
    own = {id(tensor) for _, _, _, tensor in _held(traced)}
    module, names, notes = traced, [], []
    for pass_ in passes:
        try:
            stage = changed_copy(module, pass_, writes_tensors=not pass_.copies_on_write)
        except Exception as error:  # a foreign pass may raise anything
            notes.append(f"{pass_.name} raised {type(error).__name__}: {str(error)[:200]}")
            continue
        if trains and any(id(tensor) not in own for _, _, _, tensor in _held(stage)):
            notes.append(
                f"{pass_.name} computes new weights, which an optimizer would not train; "
                "under torch.no_grad() it is applied"
            )
            continue
        # Marks are the pass's word: one may write weights, or change nodes, and mark none.
        if pass_.get_transformed_nodes(stage) or not is_same_graph(module, stage):
            names.append(pass_.name)
            module = stage
    makes_tensors = shared.share(module, own)
    nodes = len(module.graph.nodes)
    if module is traced or not check:
        return TransformedGraph(module, tuple(names), "", tuple(notes), nodes, makes_tensors)
    status, reason = _judged(traced, module, inputs, trains)
    if status not in _GOOD:
        notes.append(f"{', '.join(names)} not used: {reason}")
        return TransformedGraph(traced, (), "", tuple(notes), len(traced.graph.nodes), False)
    return TransformedGraph(module, tuple(names), status, tuple(notes), nodes, makes_tensors)


def _judged(traced: GraphModule, module: GraphModule, inputs: Inputs, gradients: bool) -> tuple[str, str]:
    try:
        verdict = Reference(traced, inputs, gradients=gradients).verdict(module)
    except ValueError as error:  # nothing can be compared: the model draws random numbers, say
        return "", str(error)
    return str(verdict.status), f"{verdict.status}: {verdict.reason}"


def _held(module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str, torch.Tensor]]:
    for path, child in module.named_modules():
        for holder in (child._parameters, child._buffers, vars(child)):
            for name, value in holder.items():
                if isinstance(value, torch.Tensor):
                    yield path, holder, name, value


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return type(a) is type(b) and a.requires_grad == b.requires_grad and same_bits(a.detach(), b.detach())
