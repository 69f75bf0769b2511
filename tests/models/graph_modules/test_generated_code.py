"""Each line of generated code is tied to the node that torch has written it for."""

from __future__ import annotations

import ast
import copy

import pytest
import torch
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, code_diff, from_exported
from fxlab.models.graph_modules import generated_code as adapter
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.generated_code import generated_code


class Branches(nn.Module):
    """Has a node whose name Python would not take, a call of each kind, and a result that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x, scale=2.0):
        torch._assert(True, "a text\nof two lines # COUNTER: 0")
        y = self.linear(x * scale) + self.shift
        y.unsqueeze_(0)
        return {"y": torch.relu(y), "x": [x, scale]}


def assigned(line: str) -> set[str]:
    """Return the names to which a line assigns anything but None."""
    found = set()
    for statement in ast.parse(line.strip()).body:
        if isinstance(statement, ast.Assign) and not (
            isinstance(statement.value, ast.Constant) and statement.value.value is None
        ):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def check(graph_module: fx.GraphModule) -> None:
    code = generated_code(graph_module)
    assert code.is_linked
    assert "\n".join(code.lines) == graph_module.code.strip("\n").rstrip()
    for line, nodes in zip(code.lines, code.nodes, strict=True):
        if line.lstrip().startswith(("def ", "return")) or "tree_flatten" in line:
            continue
        assert assigned(line) == set(nodes)
    told = [name for nodes in code.nodes for name in nodes]
    assert set(told) == {node.name for node in graph_module.graph.nodes}
    outputs = [line for line, nodes in zip(code.lines, code.nodes, strict=True) if "output" in nodes]
    assert outputs[0].lstrip().startswith("return")


def test_each_line_has_its_node_and_each_node_its_line():
    check(fx.symbolic_trace(Branches()))


def test_inputs_are_tied_to_the_line_that_names_them():
    code = generated_code(fx.symbolic_trace(Branches()))
    assert code.lines[0].startswith("def forward(self, x, scale")
    assert code.nodes[0] == ("x", "scale")


def test_a_node_whose_name_is_taken_in_the_code_keeps_its_line():
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.relu, (x,))
    node._rename("torch_1")
    graph.output(graph.call_function(torch.sigmoid, (node,)))
    check(fx.GraphModule(nn.Module(), graph))


class _Written:
    """What torch gives, with other private attributes."""

    def __init__(self, **changes) -> None:
        self.src = "\n\n\ndef forward(self, x):\n    y = x\n    return y"
        self.__dict__ |= changes


@pytest.mark.parametrize(
    "written",
    [
        _Written(),
        _Written(_lineno_map=None, _prologue_start=4),
        _Written(_lineno_map={1: 1, 2: 2}),
        _Written(_lineno_map={1: 1, 2: 2, 3: 2}, _prologue_start=4),
        _Written(_lineno_map={1: 1, 2: 7}, _prologue_start=4),
    ],
    ids=["nothing", "no map", "no start", "too many lines", "no such node"],
)
def test_where_torch_does_not_tell_or_tells_no_truth_lines_lead_nowhere(written, monkeypatch):
    traced = fx.symbolic_trace(nn.ReLU())
    monkeypatch.setattr(traced.graph, "python_code", lambda *_: written, raising=False)
    code = generated_code(traced)
    assert not code.is_linked
    assert code.lines == ("def forward(self, x):", "    y = x", "    return y")
    assert code.nodes == ((), (), ())


def test_a_graph_that_was_not_compiled_since_is_written_as_it_is():
    traced = fx.symbolic_trace(lambda x: torch.relu(x))
    traced.graph.find_nodes(op="call_function", target=torch.relu)[0].target = torch.sigmoid
    assert any("sigmoid" in line for line in adapter.generated_code(traced).lines)


class Nested(nn.Module):
    def forward(self, x):
        def inner(x):
            return torch.cond(x.max() > 1, lambda x: x.sin(), lambda x: x / 3, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))


def test_the_code_of_bodies_follows_with_their_names():
    graph = from_exported(torch.export.export(Nested(), (torch.ones(3),)))
    code = generated_code(graph)
    headings = [line for line in code.lines if line.startswith("#")]
    inner = ["# true_graph_0/true_graph_0", "# true_graph_0/false_graph_0"]
    assert headings == ["# true_graph_0", *inner, "# false_graph_0"]
    told = [name for nodes in code.nodes for name in nodes]
    everything = {
        f"{prefix}{node.name}" for prefix, gm in graphs_of(graph).items() for node in gm.graph.nodes
    }
    assert set(told) == everything
    (place,) = [n for n, nodes in enumerate(code.nodes) if nodes == ("true_graph_0/false_graph_0/div",)]
    assert code.lines[place].strip().startswith("div = torch.ops.aten.div.Tensor(x, 3)")
    assert code.is_linked


def test_differences_in_bodies_are_differences_of_the_code():
    graph = from_exported(torch.export.export(Nested(), (torch.ones(3),)))
    changed = ChangeTrueDivToMulByInverse()(copy.deepcopy(graph))
    table = code_diff(graph, changed).table
    (row,) = table[table["change"] != "same"].itertuples()
    assert (row.change, row.nodes) == ("changed", ("true_graph_0/false_graph_0/div",))
    assert "# true_graph_0/false_graph_0" not in str(code_diff(graph, graph))
