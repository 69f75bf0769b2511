"""Activation checkpointing: the backward pass computes activations again."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from fxlab.base.checks import type_error
from fxlab.base.reasons import Reason, Refusal
from fxlab.operators.node_info import is_backward, module_stack, upstream
from fxlab.transformations.analysis.aliasing_and_writes import may_return_view
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

_CALLS = ("call_function", "call_method")


@dataclass(frozen=True)
class Recomputed:
    """Values of the forward pass that the backward pass computes again."""

    nodes: tuple[Node, ...]
    """Those of the module's forward pass."""
    again: tuple[Node, ...]
    """The nodes to compute again, in the order of the graph."""
    readers: tuple[Node, ...]
    """The nodes of the backward pass that read them."""
    path: str
    """The module, as in ``nn_module_stack``: with ``@1`` for a second call."""


@dataclass(frozen=True)
class ActivationCheckpointing(RewritePass[Recomputed]):
    """Compute activations of modules again in the backward pass, in place of keeping them.

    Values of a module's forward pass that its backward pass reads are computed a second time from the
    module's inputs, right before they are read. So the activations inside of the module need not be kept, and
    the same operators give the same bits. Random numbers, such as masks of dropouts, are kept. It works on
    graphs that hold both passes, such as those of :func:`fxlab.trace_step`; :func:`fxlab.memory` tells how
    much memory it saves. Apply it after eliminating common subexpressions, which would undo it.

    Parameters
    ----------
    modules
        Paths of modules, or patterns such as ``"model.layers.*"``. Of nested ones the outer counts.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> block = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8))
    >>> model = nn.Sequential(nn.Linear(8, 8), block, nn.Linear(8, 8))
    >>> step = fxlab.trace_step(model, torch.ones(500, 8), loss=lambda out: out.square().mean())
    >>> session = fxlab.Session(step, passes=[fxlab.ActivationCheckpointing("1")])
    >>> before = fxlab.memory(session).table["activations"].max()
    >>> _ = session.apply("activation-checkpointing")
    >>> bool(fxlab.memory(session).table["activations"].max() < before / 2)
    True
    >>> print(session.verdict().status)
    same bits
    """

    modules: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the patterns."""
        given = (self.modules,) if isinstance(self.modules, str) else self.modules
        if not isinstance(given, tuple) or not all(isinstance(pattern, str) for pattern in given):
            raise type_error("modules", "a path or pattern, or a tuple of these", self.modules)

    def match(self, facts: GraphFacts) -> Iterator[Recomputed]:
        """Yield the calls of the chosen modules."""
        patterns = (self.modules,) if isinstance(self.modules, str) else self.modules
        inside: dict[str, list[Node]] = {}
        for node in facts.graph_module.graph.nodes:
            is_forward = node.op in _CALLS and not is_backward(node)
            if is_forward and (path := _asked_for(node, patterns)) is not None:
                inside.setdefault(path, []).append(node)
        for path, nodes in inside.items():
            yield _recomputed(path, tuple(nodes), facts)

    def refuse(self, candidate: Recomputed, facts: GraphFacts) -> Refusal | None:
        """Refuse modules of which nothing is kept, and those that read values written in place."""
        if not candidate.readers:
            return Reason.NOTHING_KEPT()
        read = (value for node in candidate.again for value in (node, *node.all_input_nodes))
        written = next((value for value in read if facts.writes.is_written(value)), None)
        return None if written is None else Reason.WRITTEN_IN_PLACE(value=written.name)

    def describe(self, candidate: Recomputed) -> str:
        """Tell how many nodes are computed again."""
        return f"{len(candidate.again)} nodes are computed again in the backward pass"

    def rewrite(self, candidate: Recomputed, edit: Editor) -> tuple[Node, ...]:
        """Insert copies of the nodes, each right before its first use; the backward pass reads them."""
        again, readers = candidate.again, candidate.readers
        copies: dict[Node, Node] = {}
        first: dict[Node, Node] = {reader: reader for reader in readers}
        for node in reversed(again):
            first[node] = min(first[user] for user in node.users if user in first)

        def copied(value: Any) -> Any:
            return map_arg(value, lambda node: copies.get(node, node))

        for node in again:
            meta = {**node.meta, "autograd_backward": True, "recomputed": candidate.path}
            # It says that the node belongs to the forward pass.
            meta.pop("partitioner_tag", None)
            copies[node] = edit.insert_before(
                first[node], node.op, node.target, copied(node.args), copied(node.kwargs), meta=meta
            )
        for reader in readers:
            edit.change(reader, args=copied(reader.args), kwargs=copied(reader.kwargs))
        return tuple(copies.values())


def _recomputed(path: str, nodes: tuple[Node, ...], facts: GraphFacts) -> Recomputed:
    """Return what the backward pass of a module's call would compute again: all that it reads of it."""

    def is_own(user: Node) -> bool:
        return is_backward(user) and path in module_stack(user)

    # Values that the backward pass has anyway, or that have no memory of their own.
    inside, there = set(nodes), set[Node]()
    for node in nodes:
        is_view = may_return_view(node, facts.graph_module)
        is_free = is_view and all(n not in inside or n in there for n in node.all_input_nodes)
        is_kept = any(u.op == "output" or (is_backward(u) and not is_own(u)) for u in node.users)
        if is_free or is_kept or why_impure(node, facts) is not None:
            there.add(node)
    read = [node for node in nodes if any(map(is_own, node.users))]
    needed = upstream(*read, within=lambda node: node in inside and node not in there)
    again = tuple(node for node in nodes if node in needed)
    readers = tuple(sorted({user for node in again for user in node.users if is_own(user)}))
    return Recomputed(nodes, again, readers, path)


def _asked_for(node: Node, patterns: Collection[str]) -> str | None:
    """Return the outermost chosen call around a node."""
    for path in module_stack(node):
        if path and any(fnmatchcase(str(path).partition("@")[0], pattern) for pattern in patterns):
            return str(path)
    return None
