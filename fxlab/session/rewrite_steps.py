"""The rewrites of a pass one by one, each with its nodes before and after, for stepping through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from fxlab.graphs.unfolded import unfolded
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.operators.node_info import attribute_at, function_text
from fxlab.session.history import Candidate
from fxlab.transformations.journal.journal import Record
from fxlab.transformations.journal.node_state import NodeName, NodeState


@dataclass(frozen=True)
class RewriteStep:
    """A rewrite of a pass, or an excluded candidate."""

    candidate: Candidate
    """The nodes of the candidate."""
    before: Mapping[str, str]
    """Names of nodes that were changed or erased, and the line of each."""
    after: Mapping[str, str]
    """Names of nodes that were changed or inserted, and the line of each."""
    modules: tuple[str, ...] = ()
    """Lines on modules that were replaced."""
    is_excluded: bool = False


def rewrite_steps(
    records: list[Record], excluded: tuple[Candidate, ...], below: GraphModule, stage: GraphModule
) -> list[RewriteStep]:
    """Return the rewrites of a pass in the order in which they are made, and excluded candidates.

    ``records``: the journal of the pass. ``excluded``: the candidates that it excludes. ``below``: the stage
    below it. ``stage``: the stage that it makes.
    """
    known = {node.name: node for node in unfolded(below).graph.nodes}
    made = {node.name: node for node in unfolded(stage).graph.nodes}
    # A pass rewrites bodies after the graph that calls them.
    names = (f"{prefix}{node.name}" for prefix, body in graphs_of(below).items() for node in body.graph.nodes)
    position = {name: number for number, name in enumerate(names)}

    def place(candidate: Candidate) -> int:
        return min((position[name] for name in candidate if name in position), default=-1)

    left_out = sorted((each for each in excluded if place(each) >= 0), key=place)
    found = []
    for record in (each for each in records if each.candidate):
        while left_out and place(left_out[0]) < place(record.candidate):
            found.append(_excluded(left_out.pop(0), known))
        found.append(_made(record, known, made, stage))
    return [*found, *(_excluded(each, known) for each in left_out)]


def _excluded(candidate: Candidate, known: Mapping[str, Node]) -> RewriteStep:
    lines = {name: _line_of(known[name]) for name in candidate if name in known}
    return RewriteStep(candidate, lines, {}, is_excluded=True)


def _made(
    record: Record, known: Mapping[str, Node], made: Mapping[str, Node], stage: GraphModule
) -> RewriteStep:
    # A call of a module that was replaced is written as before.
    callers = [name for change in record.modules for name in change.callers]
    before: dict[str, str | None] = {each: _line_of(known[each]) for each in callers if each in known}
    after: dict[str, str | None] = {each: _line_of(made[each]) for each in callers if each in made}
    for change in record.nodes:
        if change.before is not None:
            before.setdefault(change.name, _line(change.before))
        after[change.name] = None if change.after is None else _line(change.after)
    same = {name for name, line in after.items() if before.get(name) == line} - {*callers}
    return RewriteStep(
        record.candidate,
        {name: line for name, line in before.items() if line and name not in same},
        {name: line for name, line in after.items() if line and name not in same},
        tuple(_module_lines(record, stage)),
    )


def _module_lines(record: Record, stage: GraphModule) -> Iterator[str]:
    for change in record.modules:
        for path, module in change.originals.items():
            yield f"- {path}: {_in_short(module)}"
        yield f"+ {change.at}: {_in_short(attribute_at(stage, change.at))}"


def _in_short(module: object) -> str:
    first, *rest = repr(module).splitlines() or [""]
    return f"{first} ... )" if rest else first


def _line_of(node: Node) -> str:
    return _line(NodeState.of(node))


def _line(state: NodeState) -> str:
    """Return a node as Python code; text of a model in it is quoted."""
    if state.op == "placeholder":
        return f"{state.name}: an input"
    if state.op == "get_attr":
        return f"{state.name} = self.{state.target}"
    if state.op == "output":
        return f"return {_text(state.args[0])}"
    given = [_text(each) for each in state.args]
    given += [f"{name}={_text(each)}" for name, each in state.kwargs.items()]
    if state.op == "call_method":
        return f"{state.name} = {given[0]}.{state.target}({', '.join(given[1:])})"
    called = f"self.{state.target}" if state.op == "call_module" else function_text(state.target)
    return f"{state.name} = {called}({', '.join(given)})"


def _text(value: Any) -> str:
    if isinstance(value, NodeName):
        return value.name
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, slice):
        ends = (_text(each) for each in (value.start, value.stop, value.step))
        return f"slice({', '.join(ends)})"
    return repr(value)
