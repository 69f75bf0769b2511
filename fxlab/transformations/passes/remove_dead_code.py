"""Dead code: remove nodes whose results are unused."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch.fx import Node

from fxlab.base.reasons import Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import is_called_for_effect, is_pure_in_evaluation, why_impure
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass


@dataclass(frozen=True)
class RemoveDeadCode(RewritePass[Node]):
    """Remove nodes whose results are unused and that are known to have no side effects.

    Nodes that write in place, draw random numbers, check a condition or call unknown code stay, and so do
    their inputs. A dead node that would have raised, such as a view to a shape that does not fit, raises no
    more. The modules stay where they are, with their parameters. Nothing is marked, because the changed nodes
    are gone; :meth:`~fxlab.Transformation.explain` lists them beforehand.

    Examples
    --------
    >>> import torch
    >>> class Unused(torch.nn.Module):
    ...     def forward(self, x):
    ...         x.relu().sum()
    ...         return x + 1
    >>> remove = RemoveDeadCode()
    >>> removed = remove(torch.fx.symbolic_trace(Unused()))
    >>> [node.name for node in removed.graph.nodes]
    ['x', 'add', 'output']
    >>> [node.name for node in remove(removed, reverse=True).graph.nodes]
    ['x', 'relu', 'sum_1', 'add', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[Node]:
        """Yield the nodes that nothing reads, last first, and those that only such nodes read.

        Guards and assertions have no result to read, and are no candidates.
        """
        dead: set[Node] = set()
        for node in reversed(list(facts.graph_module.graph.nodes)):
            if node.op in ("placeholder", "output") or not dead.issuperset(node.users):
                continue
            if is_called_for_effect(node):
                continue
            if not self.why_not(node, facts):
                dead.add(node)
            yield node

    def refuse(self, candidate: Node, facts: GraphFacts) -> Refusal | None:
        """Refuse nodes that may have side effects."""
        return why_impure(candidate, facts)

    def behaves_by_mode(self, candidate: Node, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the call of a dropout or a batch norm."""
        return (candidate,) if is_pure_in_evaluation(candidate, facts) else ()

    def describe(self, candidate: Node) -> str:
        """Say that it would be removed."""
        return "removed; nothing uses it"

    def rewrite(self, candidate: Node, edit: Editor) -> tuple[Node, ...]:
        """Erase the node."""
        edit.erase(candidate)
        return ()
