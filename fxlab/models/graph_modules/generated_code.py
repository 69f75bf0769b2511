"""The Python that torch generates from a graph, and the nodes that each line stands for.

Only torch knows the node of a line, and keeps it in private attributes of the result of
``Graph.python_code``. They are read here and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from fxlab.models.graph_modules.bodies import all_bodies
from fxlab.models.graph_modules.safe_code import protect


@dataclass(frozen=True)
class GeneratedCode:
    """The ``forward`` of a graph module in lines, and those of its bodies, below a line with the path."""

    lines: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    """Names of the nodes of each line: the computed node, or all inputs in the line that names them."""
    is_linked: bool
    """Whether torch has told the nodes of lines."""


def generated_code(graph_module: GraphModule) -> GeneratedCode:
    """Return the Python of the present graph and of its bodies, with the usual names of nodes.

    ``graph_module.code`` is that of its last ``recompile``.
    """
    found = _code_of_graph(graph_module, "")
    lines, nodes, is_linked = list(found.lines), list(found.nodes), found.is_linked
    for prefix, body in all_bodies(graph_module).items():
        code = _code_of_graph(body, prefix)
        lines += ["", f"# {prefix.removesuffix('/')}", *code.lines]
        nodes += [(), (), *code.nodes]
        is_linked = is_linked and code.is_linked
    return GeneratedCode(tuple(lines), tuple(nodes), is_linked)


def _code_of_graph(graph_module: GraphModule, prefix: str) -> GeneratedCode:
    graph = graph_module.graph
    codegen = graph._codegen
    try:
        written = protect(graph).python_code("self")
    finally:
        # protect() exchanged it, and the user's graph must stay the same.
        graph._codegen = codegen
    lines = written.src.split("\n")
    nodes = _nodes_of_lines(written, len(lines), list(graph.nodes))
    filled = [number for number, line in enumerate(lines) if line.strip()]
    span = slice(filled[0], filled[-1] + 1) if filled else slice(0, 0)
    shown = tuple(lines[span])
    if nodes is None:
        return GeneratedCode(shown, ((),) * len(shown), is_linked=False)
    named = tuple(tuple(f"{prefix}{name}" for name in names) for names in nodes[span])
    return GeneratedCode(shown, named, is_linked=True)


def _nodes_of_lines(written: Any, count: int, nodes: Sequence[Any]) -> list[tuple[str, ...]] | None:
    """Return the names of the nodes of each line; ``None`` if torch does not tell, or is wrong."""
    numbers, first = getattr(written, "_lineno_map", None), getattr(written, "_prologue_start", 0)
    # Numbers count from the line that defines the function; the last one must be the last line.
    if not numbers or first < 1 or first + max(numbers) != count:
        return None
    found: list[tuple[str, ...]] = [()] * count
    inputs = tuple(node.name for node in nodes if node.op == "placeholder")
    found[first - 1 : first - 1 + min(numbers)] = [inputs] * min(numbers)
    for number, node in numbers.items():
        if node is not None and not 0 <= node < len(nodes):
            return None
        found[first - 1 + number] = () if node is None else (nodes[node].name,)
    return found
