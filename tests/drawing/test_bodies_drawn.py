"""Higher-order operators are drawn as groups that open, with the graphs of their bodies inside."""

import pandas as pd
import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab
from fxlab import Capture, Session, draw, graph_diff, node_values, nodes, report
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.hierarchy.changes import merged_graph
from fxlab.graphs.unfolded import unfolded

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")


def either(x):
    def inner(x):
        return torch.cond(x.sum() > 1, lambda x: x.exp() / 2, lambda x: x.tanh(), (x,))

    return torch.cond(x.sum() > 0, lambda x: x.sin() + x.sin(), inner, (x.relu(),)) + 1


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    return make_fx(either, tracing_mode="real")(torch.ones(2, 3))


@pytest.fixture(scope="module")
def hierarchy(gm):
    return build_hierarchy(unfolded(gm))


def test_each_call_is_a_group_of_its_bodies(hierarchy):
    groups = hierarchy.groups
    call = groups["cond"]
    assert [getattr(child, "path", "") or child.name for child in call.children[:2]] == [
        "true_graph_0",
        "false_graph_0",
    ]
    assert call.children[2].name == "cond"
    assert [group.label for group in groups.values() if group.kind == "module"] == [
        *("cond", "true_graph_0", "false_graph_0", "cond", "true_graph_0", "false_graph_0")
    ]
    assert hierarchy.ancestors("false_graph_0/true_graph_0/exp") == [
        *("cond", "false_graph_0", "false_graph_0/cond", "false_graph_0/true_graph_0")
    ]


def test_lines_lead_into_bodies_and_out_of_them(gm):
    nodes = {node.name: node for node in unfolded(gm).graph.nodes}
    inputs = {name: [value.name for value in node.all_input_nodes] for name, node in nodes.items()}
    (given,) = (name for name in inputs if name.startswith("true_graph_0/") and inputs[name] == ["relu"])
    assert nodes[given].op == "placeholder"
    assert inputs["true_graph_0/sin"] == [given]
    assert inputs["cond"] == ["gt", "true_graph_0/output", "false_graph_0/output", "relu"]


def test_a_graph_without_bodies_is_shown_as_it_is():
    gm = fx.symbolic_trace(nn.ReLU())
    assert unfolded(gm) is gm


def test_the_graph_itself_stays_as_it_is(gm):
    names, code = [node.name for node in gm.graph.nodes], gm.code
    unfolded(gm)
    assert ([node.name for node in gm.graph.nodes], gm.code) == (names, code)
    assert torch.equal(gm(torch.ones(2, 3)), either(torch.ones(2, 3)))


def test_a_picture_opens_bodies_under_the_names_of_their_own_graphs(gm):
    closed, opened = draw(gm, opened=[]), draw(gm, opened=["true_graph_0"])
    assert len(opened.view.boxes) > len(closed.view.boxes)
    assert ">sin<" in opened.svg
    assert "true_graph_0/sin<" not in opened.svg


def test_what_is_highlighted_in_a_body_is_opened(gm):
    drawing = draw(gm, highlight=["false_graph_0/true_graph_0/exp"])
    assert "false_graph_0/true_graph_0" in drawing.view.opened


def test_values_of_nodes_of_bodies_colour_them(gm, tmp_path):
    picture = draw(gm, overlay={"true_graph_0/sin": 3.0}, opened=["cond", "true_graph_0"])
    assert ">3<" in picture.svg
    overlay = pd.Series({"true_graph_0/sin": 3.0})
    report(fxlab.Session(gm), tmp_path / "r.html", overlay=overlay, measure=False)
    with pytest.raises(ValueError, match="node: 'true_graph_0/sin' is in a body"):
        node_values(gm, "true_graph_0/sin", torch.ones(2, 3))


def test_nodes_of_bodies_are_found_by_their_names_and_by_what_they_read(gm):
    table = nodes(gm)
    assert {"true_graph_0/sin", "true_graph_0/sin_1", "false_graph_0/true_graph_0/exp"} <= {*table.index}
    assert table.loc["true_graph_0/sin", "users"]


def test_what_changes_in_a_body_is_shown_where_it_is(gm):
    session = Session(gm, (torch.ones(2, 3),))
    session.apply("eliminate-common-subexpressions")
    session.apply("change-true-div-to-mul-by-inverse")
    changes = graph_diff(session.original, session.graph_module)["change"].to_dict()
    assert changes == {
        "true_graph_0/sin_1": "removed",
        "true_graph_0/add": "rewired",
        "false_graph_0/true_graph_0/div": "changed",
    }
    merged, marks = merged_graph(session.original, session.graph_module)
    assert {name: mark for name, (mark,) in marks.items()} == changes
    assert "true_graph_0/sin_1" in View(build_hierarchy(merged)).hierarchy.position_of
    table = fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)
    assert table.loc["false_graph_0/true_graph_0/div", "before"] == ["false_graph_0/true_graph_0/div"]


def test_a_graph_that_is_called_as_a_module_opens_too():
    class Tracer(fx.Tracer):
        def is_leaf_module(self, module, path):
            return isinstance(module, fx.GraphModule) or super().is_leaf_module(module, path)

    inner = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    outer = nn.Sequential(inner, nn.Tanh())
    gm = unfolded(fx.GraphModule(outer, Tracer().trace(outer)))
    names = [node.name for node in gm.graph.nodes]
    assert names == ["input_1", "0/input_1", "0/_0", "0/_1", "0/output", "_0", "_1", "output"]
    hierarchy = build_hierarchy(gm)
    assert hierarchy.groups["_0"].parameters == 9


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def test_inputs_that_a_call_does_not_pass_one_to_one_are_not_joined():
    capture = Capture()
    torch.compile(lambda x: Sine.apply(x) * 2, backend=capture)(torch.ones(2, requires_grad=True))
    shown = unfolded(capture.graphs[0].graph_module)
    inputs = [node for node in shown.graph.find_nodes(op="placeholder") if "/" in node.name]
    assert len(inputs) == 3
    assert not any(node.all_input_nodes for node in inputs)
    (call,) = (node for node in shown.graph.nodes if node.name == "autograd_function_apply")
    assert {"fwd_body_0/output_1", "bwd_body_0/output_1"} <= {value.name for value in call.all_input_nodes}
