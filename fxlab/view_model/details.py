"""The panel beside the graph: details of a node, a group or the whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from torch import Tensor, fx, nn

from fxlab.drawing import Group, Hierarchy
from fxlab.node_info import (
    attribute_at,
    class_name,
    excerpt,
    frames_of,
    module_path,
    target_text,
    value_rows,
)
from fxlab.transformations.marks import marks
from fxlab.units import with_unit
from fxlab.validation.cost.traced_flops import TracedFlops
from fxlab.view_model.wire import clip

MOST_LINKS = 100
MOST_TOKENS = 300

Field = dict[str, Any]


def node_details(
    node: fx.Node,
    hierarchy: Hierarchy,
    box: str | None,
    explained: Mapping[str, pd.DataFrame | str],
    rewrites: Sequence[Mapping[str, Any]] = (),
    flops: TracedFlops | None = None,
) -> dict[str, Any]:
    """Describe a node: what it calls, on what, what comes out, where it is written and who changed it.

    ``rewrites`` has what can be taken back or applied again here, as ``rewrites_of_node`` returns it.
    """
    frames = [source_frame(frame) for frame in frames_of(node)]
    return node_description(node, hierarchy, box, explained, rewrites, flops) | {"frames": frames}


def node_description(
    node: fx.Node,
    hierarchy: Hierarchy,
    box: str | None,
    explained: Mapping[str, pd.DataFrame | str],
    rewrites: Sequence[Mapping[str, Any]] = (),
    flops: TracedFlops | None = None,
) -> dict[str, Any]:
    """Describe a node without its source, which many nodes share; ``flops`` is of the same graph."""
    path = hierarchy.leaves[hierarchy.position_of[node.name]].path
    module = module_path(node)
    fields = [
        _field("Op", node.op, code=True),
        _field("Target", target_text(node), code=True),
        _field("Module", "" if node.op == "call_module" and module == node.target else module, code=True),
        _field("Class", class_name(node), code=True),
        *(_field("Value", kind) for kind in [str(node.type)] if node.type is not None),
        _field("FLOPs", _flop_words(_flops(hierarchy, flops), [node])),
    ]
    return {
        "kind": "node",
        "box": box,
        "title": clip(node.name, 400),
        "name": node.name,
        "subtitle": node.op,
        "crumbs": _crumbs(hierarchy, path),
        "fields": [field for field in fields if field["value"]],
        "values": [{"shape": clip(shape, 200), "dtype": dtype} for shape, dtype in value_rows(node)],
        "arguments": _arguments(node),
        "inputs": _links(node.all_input_nodes),
        "users": _links(node.users),
        "parameters": _parameters(node),
        "marks": sorted(marks(node)),
        "candidates": _candidates(node.name, explained),
        "rewrites": list(rewrites),
    }


def source_frame(frame: dict[str, Any]) -> dict[str, Any]:
    """Return a frame of :func:`frames_of` with the lines of source around it."""
    return frame | {"excerpt": excerpt(frame["file"], frame["line"])}


def group_details(
    group: Group,
    hierarchy: Hierarchy,
    box: str | None,
    marks: Mapping[str, Sequence[str]],
    flops: TracedFlops | None = None,
) -> dict[str, Any]:
    """Describe a group: what it is, what it holds, what flows in and out."""
    leaves = hierarchy.leaves[group.start : group.stop]
    names = {name for leaf in leaves for name in leaf.names}
    read = [n for leaf in leaves for n in leaf.node.all_input_nodes if n.name not in names]
    made = [leaf.node for leaf in leaves if any(user.name not in names for user in leaf.node.users)]
    changed = [name for name in names if marks.get(name)]
    parents = hierarchy.parents.get(group.path, "")
    fields = [
        _field("Path", group.path, code=True),
        _field("Class", group.class_name, code=True),
        _field("Blocks", f"{group.members} identical" if group.kind == "repeat" else ""),
        _field("Nodes", f"{group.nodes:,}"),
        _field("Parameters", f"{group.parameters:,}"),
        _field("FLOPs", _flop_words(_flops(hierarchy, flops), [leaf.node for leaf in leaves])),
        _field("Changed nodes", f"{len(changed):,}" if changed else ""),
    ]
    return {
        "kind": "group",
        "box": box,
        "title": clip(group.label or group.path, 400),
        "path": group.path,
        "subtitle": group.class_name or "group",
        "crumbs": _crumbs(hierarchy, parents),
        "fields": [field for field in fields if field["value"]],
        "inputs": _links(dict.fromkeys(read)),
        "users": _links(made),
        "contents": _contents([leaf.node for leaf in leaves], hierarchy.modules),
        "marks": sorted({mark for name in changed for mark in marks[name]}),
    }


def model_details(
    gm: fx.GraphModule, hierarchy: Hierarchy, name: str, applied: Iterable[str]
) -> dict[str, Any]:
    """Describe the model as a whole; shown while nothing is selected."""
    nodes = list(gm.graph.nodes)
    changed = sum(1 for node in nodes if marks(node))
    parameters = {id(p): p for p in gm.parameters()}.values()
    fields = [
        _field("Nodes", f"{len(nodes):,}"),
        _field("Parameters", f"{sum(p.numel() for p in parameters):,}"),
        _field("Weights", with_unit(sum(p.numel() * p.element_size() for p in parameters), "B")),
        _field("Passes on", ", ".join(applied) or "none"),
        _field("Changed nodes", f"{changed:,}" if changed else ""),
    ]
    return {
        "kind": "model",
        "box": None,
        "title": clip(name, 200),
        "subtitle": "traced model",
        "crumbs": [],
        "fields": [field for field in fields if field["value"]],
        "inputs": _links(node for node in nodes if node.op == "placeholder"),
        "users": [],
        "contents": _contents(nodes, hierarchy.modules),
        "marks": [],
        "trace": _trace_lines(gm),
    }


def _flops(hierarchy: Hierarchy, known: TracedFlops | None) -> TracedFlops:
    return TracedFlops(hierarchy.modules) if known is None else known


def _flop_words(flops: TracedFlops, nodes: Sequence[fx.Node]) -> str:
    """Write the operations of nodes together; "" if there are none, or no shapes to tell them from."""
    words, is_unknown = _count(flops.of(nodes)), any(map(flops.is_unknown, nodes))
    return f"at least {words}" if words and is_unknown else "unknown" if is_unknown else words


def _count(number: int | None) -> str:
    return f"{number:,}" if number else ""


def _field(label: str, value: str, *, code: bool = False) -> Field:
    return {"label": label, "value": clip(value, 1_000), "code": code}


def _crumbs(hierarchy: Hierarchy, path: str) -> list[dict[str, str]]:
    chain = []
    while path:
        chain.append({"label": clip(hierarchy.groups[path].label or path, 80), "path": path})
        path = hierarchy.parents[path]
    return chain[::-1]


def _links(nodes: Iterable[fx.Node]) -> list[dict[str, str]]:
    links = []
    for node in nodes:
        values = value_rows(node)
        links.append({"name": node.name, "text": clip(values[0][0], 120) if len(values) == 1 else ""})
        if len(links) == MOST_LINKS:
            break
    return links


def _arguments(node: fx.Node) -> list[dict[str, Any]]:
    """Return each argument as a label and tokens: texts, and names of nodes that can be followed."""
    named = [(str(i), value) for i, value in enumerate(node.args)] + list(node.kwargs.items())
    described = []
    for label, value in named[:50]:
        tokens: list[dict[str, str]] = []
        _tokens(value, tokens)
        described.append({"label": clip(label, 80), "tokens": tokens})
    return described


def _tokens(value: object, tokens: list[dict[str, str]]) -> None:
    if len(tokens) >= MOST_TOKENS:
        if tokens[-1] != {"text": "…"}:
            tokens.append({"text": "…"})
    elif isinstance(value, fx.Node):
        tokens.append({"node": value.name})
    elif isinstance(value, list | tuple):
        tokens.append({"text": "[" if isinstance(value, list) else "("})
        for i, item in enumerate(value):
            if i:
                tokens.append({"text": ", "})
            _tokens(item, tokens)
        tokens.append({"text": "]" if isinstance(value, list) else ")"})
    elif isinstance(value, dict):
        tokens.append({"text": "{"})
        for i, (key, item) in enumerate(value.items()):
            tokens.append({"text": f"{', ' if i else ''}{clip(repr(key), 80)}: "})
            _tokens(item, tokens)
        tokens.append({"text": "}"})
    elif isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        shown = parts if value.step is not None else parts[:2]
        for i, item in enumerate(shown):
            if i:
                tokens.append({"text": ":"})
            if item is not None:
                _tokens(item, tokens)
    else:
        text = "…" if value is Ellipsis else repr(value) if not isinstance(value, Tensor) else "tensor"
        tokens.append({"text": clip(text, 200)})


def _parameters(node: fx.Node) -> list[dict[str, Any]]:
    root = node.graph.owning_module
    if root is None or node.op not in ("call_module", "get_attr"):
        return []
    if node.op == "get_attr":
        value = attribute_at(root, str(node.target), None)
        return [_parameter(str(node.target), value)] if isinstance(value, Tensor) else []
    module = attribute_at(root, str(node.target), None)
    if not isinstance(module, nn.Module):
        return []
    found = [*module.named_parameters(), *module.named_buffers()]
    return [_parameter(name, value) for name, value in found[:50]]


def _parameter(name: str, value: Tensor) -> dict[str, Any]:
    kind = "parameter" if isinstance(value, nn.Parameter) else "buffer"
    return {
        "name": clip(name, 200),
        "shape": f"({', '.join(map(str, value.shape))})",
        "dtype": str(value.dtype),
        "elements": value.numel(),
        "kind": kind if kind == "buffer" or value.requires_grad else "frozen parameter",
    }


def _candidates(name: str, explained: Mapping[str, pd.DataFrame | str]) -> list[dict[str, Any]]:
    """Return what each pass says of a node."""
    found: list[dict[str, Any]] = []
    for signature, frame in explained.items():
        if not isinstance(frame, pd.DataFrame) or not len(frame):
            continue
        found.extend(
            {"signature": signature, "matched": bool(row.matched), "reason": clip(str(row.reason), 400)}
            for row in frame[frame.index == name].itertuples()
        )
    return found


def _contents(nodes: Sequence[fx.Node], modules: Mapping[str, nn.Module]) -> list[dict[str, Any]]:
    """Count what nodes call, most frequent first."""
    counts = Counter(
        type(modules[str(node.target)]).__name__
        if node.op == "call_module" and str(node.target) in modules
        else target_text(node)
        for node in nodes
        if node.op.startswith("call")
    )
    return [{"name": clip(name, 120), "count": count} for name, count in counts.most_common(12)]


def _trace_lines(gm: fx.GraphModule) -> list[str]:
    report = gm.meta.get("trace") if isinstance(getattr(gm, "meta", None), dict) else None
    return [] if report is None else [clip(line, 300) for line in str(report).splitlines()[:30]]
