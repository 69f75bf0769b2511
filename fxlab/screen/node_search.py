"""Looking for nodes and groups by anything that is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx

from fxlab.drawing import Hierarchy
from fxlab.drawing.describe import result_text
from fxlab.screen.node_facts import class_name_of, module_path_of, target_text
from fxlab.screen.wire import clip

MOST_RESULTS = 60


@dataclass(frozen=True)
class NodeSearch:
    """Finds the nodes and groups whose words contain every word that is asked for.

    The words of a node are its name, op, target, module path and class, shape and dtype, and ``changed`` if a
    pass changed it.
    """

    graph_module: fx.GraphModule
    hierarchy: Hierarchy

    def find(self, query: str) -> dict[str, Any]:
        """Return the best results and the number of all.

        Names that start with the query come first, then names that contain it, then everything else.
        """
        words = query.lower().split()
        if not words:
            return {"results": [], "total": 0}
        found = [
            (_rank(name.lower(), words), position, result)
            for position, (name, text, result) in enumerate(self._index)
            if all(word in text for word in words)
        ]
        found.sort(key=lambda item: item[:2])
        return {"results": [result for *_, result in found[:MOST_RESULTS]], "total": len(found)}

    @cached_property
    def _index(self) -> list[tuple[str, str, dict[str, Any]]]:
        groups = [
            (group.path, f"{group.path} {group.class_name} group".lower(), _group_result(group))
            for group in self.hierarchy.groups.values()
            if group.path
        ]
        return [*groups, *(_node_entry(node) for node in self.graph_module.graph.nodes)]


def _rank(name: str, words: list[str]) -> tuple[int, int]:
    if name == " ".join(words):
        return (0, 0)
    if name.startswith(words[0]):
        return (1, len(name))
    return (2, len(name)) if all(word in name for word in words) else (3, 0)


def _group_result(group: Any) -> dict[str, Any]:
    return {
        "kind": "group",
        "name": group.path,
        "text": clip(" · ".join(filter(None, (group.class_name, f"{group.nodes} nodes"))), 200),
    }


def _node_entry(node: fx.Node) -> tuple[str, str, dict[str, Any]]:
    target, result = clip(target_text(node), 200), clip(result_text(node), 200)
    path = module_path_of(node)
    changed = "changed" if node.meta.get("transformations") else ""
    text = f"{node.name} {node.op} {target} {path} {class_name_of(node)} {result} {changed}"
    text += f" {str(getattr(node.meta.get('val'), 'dtype', '')).removeprefix('torch.')}"
    where = path if path != target else ""
    shown = " · ".join(filter(None, (target if target != node.name else node.op, result, where)))
    return node.name, text.lower(), {"kind": "node", "name": node.name, "text": clip(shown, 300)}
