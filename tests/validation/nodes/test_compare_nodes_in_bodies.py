"""compare_nodes and first_divergence in the bodies of higher-order operators."""

import copy

import pytest
import torch
from torch import fx, nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

import fxlab
from fxlab import Session, compare_nodes, first_divergence
from fxlab.models.graph_modules.bodies import all_bodies
from fxlab.validation.nodes.body_runs import BodyRuns

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own of what it captures


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) / 3, lambda x: x / 3, (x,))


class Nested(nn.Module):
    def forward(self, x):
        def inner(x):
            return torch.cond(x.max() > 5, lambda x: x.sin(), lambda x: x / 3, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))


class Loop(nn.Module):
    def forward(self, x):
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y / 3 + i), (torch.tensor(0), x))


class Scan(nn.Module):
    def forward(self, x):
        return scan(lambda carry, row: (carry + row, carry / 3 * row), torch.zeros(3), x, dim=0)


class Map(nn.Module):
    def forward(self, x):
        return map_(lambda row, y: row / 3 + y, x, x[0].clone())


class Checkpoint(nn.Module):
    def forward(self, x):
        return checkpoint(lambda x: x.exp() / 3, x, use_reentrant=False)


CASES = {
    "cond": (Cond(), (40, 3), "true_graph_0/div", "cond_true_0/truediv"),
    "nested": (Nested(), (120,), "true_graph_0/false_graph_0/div", "cond_true_1/cond_false_0/truediv"),
    "loop": (Loop(), (120,), "while_loop_body_graph_0/div", "body_fn_0/truediv"),
    "scan": (Scan(), (40, 3), "scan_combine_graph_0/div", "scan_combine_fn_0/truediv"),
    "map": (Map(), (4, 30), "body_graph_0/div", "map_body_0/truediv"),
    "checkpoint": (Checkpoint(), (120,), None, "wrap_body_0/truediv"),
}
INVERSE = fxlab.ChangeTrueDivToMulByInverse()


def sources(name):
    model, shape, exported, captured = CASES[name]
    x = torch.rand(shape)
    if exported is not None:
        yield torch.export.export(copy.deepcopy(model), (x,)), exported
    torch._dynamo.reset()
    capture = fxlab.Capture()
    torch.compile(copy.deepcopy(model), backend=capture)(x)
    yield capture.graphs[0], captured


@pytest.mark.often(2)
@pytest.mark.parametrize("name", CASES)
def test_nodes_in_bodies_have_rows_and_are_judged(name):
    for source, changed in sources(name):
        session = Session(source)
        session.apply(INVERSE)
        table = compare_nodes(session.original, session.graph_module, session.inputs, judge=True)
        assert 0 < table["introduced"][changed] < 1e-6, table.to_string()
        assert table["status"][changed] == "within the model's own rounding"
        others = table.drop(index=changed)
        assert (others["introduced"] < 1e-6).all()
        prefix = changed.rpartition("/")[0]
        assert table["original"][changed].startswith(f"{prefix}/")
        inside = [row for row in table.index if row.startswith(f"{prefix}/")]
        body = all_bodies(session.graph_module)[f"{prefix}/"]
        assert set(inside) <= {f"{prefix}/{node.name}" for node in body.graph.nodes}
        assert list(table.index).index(inside[-1]) == list(table.index).index(inside[0]) + len(inside) - 1
        assert first_divergence(session.original, session.graph_module, session.inputs) is None


def wrong(graph_module, change):
    """Return a copy whose bodies are changed."""
    result = copy.deepcopy(graph_module)
    for body in all_bodies(result).values():
        change(body)
        body.recompile()
    return result


def divide_by_four(body: fx.GraphModule) -> None:
    for node in body.graph.nodes:
        if "div" in str(node.target) and node.args[1] == 3:
            node.args = (node.args[0], 4)


@pytest.mark.often(2)
@pytest.mark.parametrize("name", [name for name in CASES if name != "cond"])
def test_a_mistake_in_a_body_is_found_by_name(name):
    for source, node in sources(name):
        graph = Session(source).original
        inputs = Session(source).inputs
        found = first_divergence(graph, wrong(graph, divide_by_four), inputs)
        assert found is not None
        assert (found.node, found.original) == (node, node)
        assert "different function" in found.judgement.reason


def test_a_branch_that_is_not_taken_has_no_rows():
    program = torch.export.export(Cond(), (torch.rand(2, 3),))
    graph = fxlab.from_exported(program)
    names = {x: compare_nodes(graph, wrong(graph, divide_by_four), sign * torch.ones(2, 3)).index
             for x, sign in (("taken", -1), ("not taken", 1))}  # fmt: skip
    assert "false_graph_0/div" in names["taken"]
    assert not any(name.startswith("false_graph_0/") for name in names["not taken"])
    assert any(name.startswith("true_graph_0/") for name in names["not taken"])


def test_of_several_runs_the_largest_difference_is_told():
    graph = fxlab.from_exported(torch.export.export(Loop(), (torch.ones(3),)))
    other = wrong(graph, divide_by_four)
    table = compare_nodes(graph, other, torch.ones(3))
    y, ours, theirs, differences = torch.ones(3), torch.ones(3), torch.ones(3), []
    for i in range(3):
        differences.append(((ours / 3 - theirs / 4).norm() / (ours / 3).norm()).item())
        ours, theirs = ours / 3 + i, theirs / 4 + i
    assert table["accumulated"]["while_loop_body_graph_0/div"] == pytest.approx(max(differences))
    assert table["introduced"]["while_loop_body_graph_0/div"] == pytest.approx(0.25)
    assert torch.equal(graph(y)[1], ours)


def test_loops_may_take_another_number_of_steps():
    graph = fxlab.from_exported(torch.export.export(Loop(), (torch.ones(3),)))

    def stop_sooner(body):
        for node in body.graph.nodes:
            if node.target is torch.ops.aten.lt.Scalar:
                node.args = (node.args[0], 2)

    table = compare_nodes(graph, wrong(graph, stop_sooner), torch.ones(3))
    assert (table["introduced"].filter(like="body_graph_0/") == 0).all()
    assert table["accumulated"]["while_loop"] > 0.1


def test_a_body_writes_into_copies():
    outer, inner = fx.Graph(), fx.Graph()
    x = inner.placeholder("x")
    inner.output(inner.call_method("add_", (x, 1)))
    x = outer.placeholder("x")
    called = outer.call_module("body", (outer.call_function(torch.neg, (x,)),))
    outer.output(outer.call_function(torch.mul, (called, 2)))
    graph = fx.GraphModule({"body": fx.GraphModule(nn.Module(), inner)}, outer)
    table = compare_nodes(graph, copy.deepcopy(graph), torch.ones(3))
    assert [*table.index] == ["x", "neg", "body/x", "body/add_", "body", "mul"]
    assert (table["accumulated"] == 0).all()


def test_many_values_at_once_are_no_run():
    graph = fxlab.from_exported(torch.export.export(Cond(), (torch.ones(2, 3),)))
    (call,) = [node for node in graph.graph.nodes if node.name == "cond"]
    readings = {node: getattr(graph, node.target) for node in call.all_input_nodes if "graph" in node.name}
    runs = BodyRuns()
    body = runs.noted(call, graph, readings)[next(iter(readings))]
    given = {"weight": graph.linear.weight, "bias": graph.linear.bias}
    weights = [given[node.name.rpartition("_")[2]] for node in body.graph.find_nodes(op="placeholder")[1:]]
    torch.vmap(lambda x: body(x, *weights))(torch.ones(2, 3))
    assert runs.inputs["true_graph_0"] == []
    body(torch.ones(2, 3), *weights)
    assert len(runs.inputs["true_graph_0"]) == 1
