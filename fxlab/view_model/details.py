"""Details that a page asks for: of a node, a group or the model, which take the model itself to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor, fx, nn

from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.units import with_unit
from fxlab.base.words import counted
from fxlab.drawing import Group, Hierarchy
from fxlab.graphs.unfolded import is_in_body, unfolded
from fxlab.models.parallel.collectives import collectives_of, is_wait
from fxlab.models.parallel.placements import known_placement
from fxlab.operators import node_info
from fxlab.transformations.marks import marks_of
from fxlab.validation.cost.traced_flops import TracedFlops
from fxlab.view_model import protocol
from fxlab.view_model.wire import clip

MOST_LINKS = 100
MOST_TOKENS = 300


class Describer:
    """Describes those parts of the nodes and groups of a graph that a page does not know by itself.

    ``hierarchy``: the groups of the graph. ``explained``: signature of a pass, or the name of one that is not
    on offer -> its explanation of its candidates. ``rewrites_of``: returns the rewrites to exclude or include
    again at a node, as ``rewrites_of_node`` does. ``gone``: names of nodes that are shown and no longer
    there: a group is described without. ``flops``: as ``known`` of :class:`TracedFlops`, for common calls.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        explained: Mapping[str, pd.DataFrame | str],
        rewrites_of: Callable[[fx.Node], list[protocol.Rewrite]] = lambda _: [],
        gone: Container[str] = (),
        flops: dict[Any, float | None] | None = None,
    ) -> None:
        self._hierarchy, self._explained, self._rewrites_of = hierarchy, explained, rewrites_of
        self._gone = gone
        self._flops = TracedFlops(hierarchy.modules, flops)

    def node(self, node: fx.Node) -> protocol.Extra:
        """Describe a node: its arguments, its tensors, and the words of passes about it."""
        return {
            "fields": _filled(
                _field("Value", "" if node.type is None else str(node.type)),
                _field("FLOPs", _flop_words(self._flops, [node])),
                _field("Placement", known_placement(node)),
                *([self._exchanges[node]] if node in self._exchanges else []),
            ),
            "arguments": _arguments(node),
            "parameters": _parameters(node),
            "candidates": self._candidates.get(node.name, []),
            "rewrites": self._rewrites_of(node),
        }

    def group(self, group: Group) -> protocol.Extra:
        """Describe a group: its contents, and their costs."""
        shown = [leaf.node for leaf in self._hierarchy.leaves[group.start : group.stop]]
        nodes = [node for node in shown if node.name not in self._gone]
        parameters = group.parameters
        if len(nodes) < len(shown):
            held = {
                id(p): p for node in nodes for p in node_info.parameters_of(node, self._hierarchy.modules)
            }
            parameters = sum(p.numel() for p in held.values())
        return {
            "fields": _filled(
                _field("Blocks", f"{group.members} identical" if group.kind == "repeat" else ""),
                _field("Parameters", f"{parameters:,}"),
                _field("FLOPs", _flop_words(self._flops, nodes)),
            ),
            "contents": _contents(nodes, self._hierarchy.modules),
        }

    @cached_property
    def _exchanges(self) -> dict[fx.Node, protocol.Field]:
        """The words on each collective, by the node that starts it and those that wait for it."""
        graphs = {leaf.node.graph for leaf in self._hierarchy.leaves}
        found = {}
        for one in (one for graph in graphs for one in collectives_of(graph)):
            count = len(one.meanwhile)
            meanwhile = f"{counted(count, 'node') if count else 'nothing'} computed meanwhile"
            for node in filter(is_wait, one.waits):
                found[node] = _field("Waits for", f"{one.start.name}, {one.words}; {meanwhile}")
            until = f"; until {one.waits[0].name}, {meanwhile}" if one.waits else ""
            found[one.start] = _field("Collective", f"{one.words}{until}")
        return found

    @cached_property
    def _candidates(self) -> dict[str, list[protocol.Candidate]]:
        """The candidates and reasons of each pass, by the names of nodes."""
        found: dict[str, list[protocol.Candidate]] = {}
        for signature, frame in self._explained.items():
            if not isinstance(frame, pd.DataFrame):
                continue
            for name, matched, reason in zip(frame.index, frame["matched"], frame["reason"], strict=True):
                row: protocol.Candidate = {
                    "signature": signature,
                    "matched": bool(matched),
                    "reason": clip(str(reason), 400),
                }
                found.setdefault(str(name), []).append(row)
        return found


def model_details(gm: fx.GraphModule, name: str, applied: Iterable[str]) -> protocol.ModelDetails:
    """Describe the model as a whole; shown while nothing is selected."""
    graph = unfolded(gm)
    nodes = list(graph.graph.nodes)
    changed = len(marks_of(graph))
    parameters = {id(p): p for p in gm.parameters()}.values()
    # Those of a training step are inputs.
    given = sum(node_info.elements_of_parameter(node) for node in nodes if node.op == "placeholder")
    fields = [
        _field("Nodes", f"{len(nodes):,}"),
        _field("Parameters", f"{given + sum(p.numel() for p in parameters):,}"),
        _field("Weights", with_unit(sum(p.numel() * p.element_size() for p in parameters), "B")),
        _field("Passes on", ", ".join(applied) or "none"),
        _field("Changed nodes", f"{changed:,}" if changed else ""),
    ]
    return {
        "title": clip(name, 200),
        "fields": _filled(*fields),
        "inputs": [node.name for node in nodes if node.op == "placeholder" and not is_in_body(node)][
            :MOST_LINKS
        ],
        "contents": _contents(nodes, node_info.modules_by_path(graph)),
        "trace": _trace_lines(gm),
    }


def _flop_words(flops: TracedFlops, nodes: Sequence[fx.Node]) -> str:
    """Write the operations of nodes together; "" if there are none, or no shapes to tell them from."""
    number, is_unknown = flops.of(nodes), any(map(flops.is_unknown, nodes))
    words = f"{number:,}" if number else ""
    return f"at least {words}" if words and is_unknown else "unknown" if is_unknown else words


def _field(label: str, value: str) -> protocol.Field:
    return {"label": label, "value": clip(value, 1_000), "code": False}


def _filled(*fields: protocol.Field) -> list[protocol.Field]:
    return [field for field in fields if field["value"]]


def _arguments(node: fx.Node) -> list[protocol.NodeArgument]:
    """Return each argument as a label and tokens: texts, and names of nodes that can be followed."""
    named = [(str(i), value) for i, value in enumerate(node.args)] + list(node.kwargs.items())
    described: list[protocol.NodeArgument] = []
    for label, value in named[:50]:
        tokens = list(islice(_tokens(value), MOST_TOKENS + 1))
        if len(tokens) > MOST_TOKENS:
            tokens[-1] = {"text": "…"}
        described.append({"label": clip(label, 80), "tokens": tokens})
    return described


def _tokens(value: object) -> Iterator[protocol.Token]:
    if isinstance(value, fx.Node):
        yield {"node": value.name}
    elif isinstance(value, list | tuple):
        yield {"text": "[" if isinstance(value, list) else "("}
        for i, item in enumerate(value):
            if i:
                yield {"text": ", "}
            yield from _tokens(item)
        yield {"text": "]" if isinstance(value, list) else ")"}
    elif isinstance(value, dict):
        yield {"text": "{"}
        for i, (key, item) in enumerate(value.items()):
            yield {"text": f"{', ' if i else ''}{clip(repr(key), 80)}: "}
            yield from _tokens(item)
        yield {"text": "}"}
    elif isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        for i, item in enumerate(parts if value.step is not None else parts[:2]):
            if i:
                yield {"text": ":"}
            if item is not None:
                yield from _tokens(item)
    else:
        text = "…" if value is Ellipsis else repr(value) if not isinstance(value, Tensor) else "tensor"
        yield {"text": clip(text, 200)}


def _parameters(node: fx.Node) -> list[protocol.HeldTensor]:
    root = node.graph.owning_module
    if root is None or node.op not in ("call_module", "get_attr"):
        return []
    if node.op == "get_attr":
        value = node_info.attribute_at(root, str(node.target), None)
        return [_parameter(str(node.target), value)] if isinstance(value, Tensor) else []
    module = node_info.attribute_at(root, str(node.target), None)
    if not isinstance(module, nn.Module):
        return []
    found = [*module.named_parameters(), *module.named_buffers()]
    return [_parameter(name, value) for name, value in found[:50]]


def _parameter(name: str, value: Tensor) -> protocol.HeldTensor:
    kind = "parameter" if isinstance(value, nn.Parameter) else "buffer"
    return {
        "name": clip(name, 200),
        "shape": f"({', '.join(map(str, value.shape))})",
        "dtype": str(value.dtype),
        "elements": value.numel(),
        "kind": kind if kind == "buffer" or value.requires_grad else "frozen parameter",
    }


def _contents(nodes: Sequence[fx.Node], modules: Mapping[str, nn.Module]) -> list[protocol.Content]:
    """Count the calls of nodes, most frequent first."""
    counts = Counter(
        type(modules[str(node.target)]).__name__
        if node.op == "call_module" and str(node.target) in modules
        else node_info.target_text(node)
        for node in nodes
        if node.op.startswith("call")
    )
    return [{"name": clip(name, 120), "count": count} for name, count in counts.most_common(12)]


def _trace_lines(gm: fx.GraphModule) -> list[str]:
    report = gm.meta.get("trace")
    return [] if report is None else [clip(line, 300) for line in str(report).splitlines()[:30]]
