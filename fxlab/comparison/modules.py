"""Pair the modules of two models for ``compare``, and tell whether they compute the same."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from torch.fx import Node

from fxlab.operators.node_info import module_path
from fxlab.validation.alignment.align import Alignment

_MOST = 0.9
"""The share of the aligned nodes of a module that have to lie in one module of the other model."""


@dataclass(frozen=True)
class Module:
    """A module of the candidate that computes something, and its counterpart in the reference."""

    candidate: str
    reference: str
    """Its path; empty if nothing in the reference stands for it."""
    status: str
    """``agrees``, ``parts here``, ``differs``, or ``no partner``, where no value in it has one."""
    difference: float | None
    """The largest difference of its results, relative to the largest element, where it is known."""


def compared_modules(alignment: Alignment, differences: dict[Node, float]) -> list[Module]:
    """Compare the modules of two models by the values that others read of them, outermost first."""
    inside: dict[str, list[Node]] = defaultdict(list)
    for node in alignment.transformed.values:
        if node.op not in ("placeholder", "get_attr"):
            for path in enclosing(module_path(node)):
                inside[path].append(node)
    parted = {path for node in alignment.parted for path in enclosing(module_path(node))}
    found = []
    for path, nodes in inside.items():
        own = set(nodes)
        given = [node for node in nodes if any(user not in own for user in node.users)]
        known = [differences[node] for node in given if node in differences]
        if all(node in alignment.partners for node in given):
            status = "agrees"
        elif path in parted:
            status = "parts here"
        else:
            status = "differs" if any(node in alignment.partners for node in nodes) or known else "no partner"
        apart = 0.0 if status == "agrees" else max(known, default=None)
        found.append(Module(path, _reference(nodes, alignment), status, apart))
    return found


def enclosing(path: str) -> Iterator[str]:
    """Yield the path of a module and of those around it, outermost first."""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _reference(nodes: list[Node], alignment: Alignment) -> str:
    """Return the innermost module of the reference that computes most of the values of these nodes."""
    paths = [
        module_path(alignment.partners[node])
        for node in nodes
        if node in alignment.partners and alignment.partners[node].op not in ("placeholder", "get_attr")
    ]
    counts = Counter(path for each in paths for path in enclosing(each))
    fitting = [path for path, count in counts.items() if count >= _MOST * len(paths)]
    return max(fitting, key=lambda path: path.count(".") + 1, default="")
