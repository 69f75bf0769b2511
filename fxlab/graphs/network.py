"""All nodes of a graph in files that networkx and others read."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from torch.fx import GraphModule

from fxlab.graphs.nodes import nodes

SUFFIXES = (".graphml", ".json")
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may hold."""


def network_file(graph_module: GraphModule, suffix: str) -> bytes:
    """Return a graph as GraphML, or as JSON that ``networkx.node_link_graph(..., edges="edges")`` reads.

    Nodes have the columns of :func:`fxlab.nodes` as text. An edge leads from a node to one that reads it.
    """
    table = nodes(graph_module)
    facts = table.drop(columns=["inputs", "users"])
    attributes: dict[str, dict[str, Any]] = {
        str(name): {str(column): "" if value is None else str(value) for column, value in row.items()}
        for name, row in facts.to_dict("index").items()
    }
    edges = [(read, name) for name, inputs in table["inputs"].items() for read in inputs]
    if suffix == ".json":
        written = {
            "directed": True,
            "multigraph": False,
            "graph": {},
            "nodes": [{"id": name, **facts} for name, facts in attributes.items()],
            "edges": [{"source": read, "target": name} for read, name in edges],
        }
        return json.dumps(written, indent=1).encode()
    from networkx import DiGraph, write_graphml

    network = DiGraph()
    for name, known in attributes.items():
        network.add_node(_plain(name), **{column: _plain(text) for column, text in known.items()})
    network.add_edges_from((_plain(read), _plain(str(name))) for read, name in edges)
    file = io.BytesIO()
    write_graphml(network, file)
    return file.getvalue()


def _plain(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
