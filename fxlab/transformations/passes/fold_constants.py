"""Constant folding: precompute subgraphs that depend only on constant tensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import map_arg

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.models.running.autocast import autocast_set
from fxlab.operators.node_info import upstream
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.patterns.replacing import run
from fxlab.transformations.rewriting.autocast import casts_to_autocast_dtype
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.linear import as_linear


@dataclass(frozen=True)
class Constant:
    """A call that depends on constant tensors alone, and has a user that depends on others too."""

    node: Node
    inner: tuple[Node, ...]
    """The nodes that it is computed from and that nothing else needs, last first."""
    facts: GraphFacts

    @cached_property
    def value(self) -> Any:
        """Its value outside of autocast; an exception if it raises."""
        with autocast_set():
            return self._computed()

    @property
    def dtype_under_autocast(self) -> torch.dtype | None:
        """The dtype of its result under autocast."""
        with torch.autocast(self.value.device.type, torch.bfloat16, cache_enabled=False):
            return getattr(self._computed(), "dtype", None)

    def _computed(self) -> Any:
        """Return its value for the present attributes of the module, or the exception that it raises."""
        known: dict[Node, Any] = {}
        try:
            with torch.no_grad():
                for node in sorted(upstream(self.node)):
                    if node.op == "get_attr":
                        known[node] = self.facts.attribute(node)
                    else:
                        args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
                        known[node] = run(node.op, node.target, args, kwargs)
        except Exception as error:
            return error
        return known[self.node]


@dataclass(frozen=True)
class FoldConstants(RewritePass[Constant]):
    """Precompute subgraphs that depend only on constant tensors: each result becomes a buffer.

    Constants are buffers and other tensors of the model that the graph never writes, and parameters that are
    not trained (``requires_grad=False``): with others the result would change from step to step. The
    transposed weight of a linear layer stays a part of it, since a transposition takes no time. The buffer
    holds for the values, dtypes and device at the time of application; later changes reach it only if the
    pass is reversed and applied again. The node that reads the buffer is marked.

    Examples
    --------
    >>> import torch
    >>> class Scaled(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(3, 3), requires_grad=False)
    ...
    ...     def forward(self, x):
    ...         return x @ (self.weight.t() * 2)
    >>> fold = FoldConstants()
    >>> folded = fold(torch.fx.symbolic_trace(Scaled()))
    >>> [node.op for node in folded.graph.nodes]
    ['placeholder', 'get_attr', 'call_function', 'output']
    >>> [node.name for node in fold(folded, reverse=True).graph.nodes]
    ['x', 'weight', 't', 'mul', 'matmul', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[Constant]:
        """Yield the last calls that depend on tensors of the model alone."""
        constant = _constant_nodes(facts)
        for node in list(facts.graph_module.graph.nodes):
            if node in constant and node.op != "get_attr" and not constant.issuperset(node.users):
                yield Constant(node, _needed_by_it_alone(node), facts)

    def refuse(self, candidate: Constant, facts: GraphFacts) -> Refusal | None:
        """Refuse trained, written or returned tensors, calls that fail, and results other than tensors."""
        node = candidate.node
        for user in _next(node, 4):
            linear = as_linear(user, facts)
            if linear is not None and node in linear.inner:
                return Reason.TRANSPOSED_WEIGHT(linear=user.name)
        for read in (each for each in upstream(node) if each.op == "get_attr"):
            tensor = facts.attribute(read)
            if not isinstance(tensor, torch.Tensor):
                return Reason.NOT_A_TENSOR(attribute=read.target)
            if tensor.requires_grad:
                return Reason.REQUIRES_GRAD(attribute=read.target)
            if tensor.is_meta or type(tensor) not in (torch.Tensor, nn.Parameter):
                return Reason.NO_DATA(attribute=read.target)
            if facts.writes.is_written(read):
                return Reason.WRITTEN_IN_PLACE(value=read.target)
        if facts.writes.is_written(node):
            return Reason.WRITTEN_IN_PLACE(value="it")
        if facts.writes.is_returned(node):
            return Reason.RETURNED()
        if facts.writes.changes_state:
            return Reason.MODE_CHANGES()
        if isinstance(candidate.value, Exception):
            return Reason.FAILS(error=str(candidate.value) or type(candidate.value).__name__)
        if type(candidate.value) is not torch.Tensor or candidate.value.layout is not torch.strided:
            return Reason.UNUSUAL_RESULT()
        is_other = candidate.dtype_under_autocast != candidate.value.dtype
        if is_other and not all(casts_to_autocast_dtype(user, facts) for user in node.users):
            return Reason.AUTOCAST_DTYPE()
        return None

    def describe(self, candidate: Constant) -> str:
        """Tell how many nodes go."""
        count = len(candidate.inner)
        return f"a buffer{f', computed from {count} nodes that go' if count else ''}"

    def rewrite(self, candidate: Constant, edit: Editor) -> Node:
        """Insert a buffer, read it, and erase the nodes that only the result needed."""
        node = candidate.node
        name = edit.free_path("", f"{node.name}_folded")
        edit.add_buffer(name, candidate.value.detach())
        edit.change(node, op="get_attr", target=name, args=(), kwargs={})
        for inner in candidate.inner:
            edit.erase(inner)
        return node


def _next(node: Node, steps: int) -> Iterator[Node]:
    """Yield the users of a node, and chains of single users of these."""
    for user in node.users:
        yield user
        if steps > 1 and len(user.users) == 1:
            yield from _next(user, steps - 1)


def _constant_nodes(facts: GraphFacts) -> set[Node]:
    """Return the nodes that read attributes, and the calls that depend on such nodes alone."""
    found = set[Node]()
    for node in facts.graph_module.graph.nodes:
        is_call = node.op in ("call_function", "call_method") and bool(node.all_input_nodes)
        depends = is_call and found.issuperset(node.all_input_nodes) and not why_impure(node, facts)
        if node.op == "get_attr" or depends:
            found.add(node)
    return found


def _needed_by_it_alone(node: Node) -> tuple[Node, ...]:
    """Return the nodes that only ``node`` needs, directly or not, each before its inputs."""
    gone = {node}
    inner: list[Node] = []
    pending = list(node.all_input_nodes)
    while pending:
        value = pending.pop()
        if value not in gone and gone.issuperset(value.users):
            gone.add(value)
            inner.append(value)
            pending.extend(value.all_input_nodes)
    return tuple(inner)
