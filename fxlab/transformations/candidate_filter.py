"""Limits a pass to some of its candidates, as sessions do that exclude one.

A limit is an argument of a pass like any other, so a limited pass has its own signature, and marks, reversal
and composition need not know about limits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.words import all_listed


@dataclass(frozen=True)
class Limit:
    """The candidates that a pass rewrites, each by the name of any of its nodes."""

    excluded: frozenset[str] = frozenset()
    """The candidates that are not rewritten."""
    only: frozenset[str] | None = None
    """The candidates that are rewritten, if they are not excluded; ``None`` for all."""
    missing_ok: bool = field(default=False, compare=False)
    """Whether a name may belong to no candidate."""

    def why_not(self, names: Iterable[str]) -> Refusal | None:
        """Return why a candidate with nodes of these names is excluded; ``None`` if it is not."""
        is_excluded = not self.excluded.isdisjoint(names)
        is_chosen = self.only is None or not self.only.isdisjoint(names)
        return Reason.EXCLUDED() if is_excluded or not is_chosen else None

    def check(self, pass_name: str, candidates: Iterable[str]) -> None:
        """Refuse names of nodes that are no candidates."""
        known = dict.fromkeys(candidates)
        unknown = sorted((self.excluded | (self.only or frozenset())) - known.keys())
        if unknown:
            raise ValueError(
                f"{pass_name} has no candidate {', '.join(map(repr, unknown))} in this graph module. "
                f"Its candidates are: {all_listed(known)}."
            )


def node_names(nodes: Iterable[Node | str]) -> frozenset[str]:
    """Return the names of nodes, given as nodes or names."""
    names: set[str] = set()
    for node in nodes:
        if not isinstance(node, Node | str):
            raise TypeError(f"Expected nodes or their names, got {type(node).__name__}.")
        names.add(node.name if isinstance(node, Node) else node)
    return frozenset(names)


def not_limitable(transformation: object, name: str) -> TypeError:
    """Return the error for a transformation that does not tell its candidates apart."""
    return TypeError(
        f"{name} cannot be limited to some of its candidates, because a {type(transformation).__name__} "
        "does not tell them apart: only a fxlab.transformations.RewritePass does. Limit the parts of a "
        "composition before they are composed."
    )
