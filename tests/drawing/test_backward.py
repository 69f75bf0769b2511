"""Forward and backward of a module are two boxes, and weights that are inputs belong to their modules."""

import pytest
import torch
from step_models import blocks, squared
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab
from fxlab.drawing import build_hierarchy
from fxlab.models.running.step_record import StepInput


@pytest.fixture(scope="module")
def step():
    model, x = blocks(3, checkpointed=(0, 1, 2))
    return fxlab.trace_step(model, x, loss=squared, optimizer=torch.optim.AdamW(model.parameters()))


def calls(graph_module):
    return [node for node in graph_module.graph.nodes if node.op == "call_function"]


def boxes_around(hierarchy, name):
    return hierarchy.ancestors(name)


def test_a_module_has_a_box_for_each_pass_so_that_no_two_boxes_read_each_other(step):
    hierarchy = build_hierarchy(step)
    assert {"blocks.[0-2]", "blocks.[0-2] (backward)", "first", "last (backward)", "loss", "optimizer"} <= {
        *hierarchy.groups
    }
    view = fxlab.draw(step, opened=[]).view
    order = {box.id: place for place, box in enumerate(view.boxes)}
    edges = {(edge.source.id, edge.target.id) for edge in view.edges}
    assert not any((target, source) in edges for source, target in edges)
    assert len(order) < 16


def test_a_checkpoint_shows_what_is_computed_again_inside_of_the_backward_box(step):
    hierarchy = build_hierarchy(step)
    again = [node for node in step.graph.nodes if node.meta.get("recomputed") == "blocks.1"]
    paths = {tuple(boxes_around(hierarchy, node.name)) for node in again}
    assert all("blocks.1 (backward)" in path and "blocks.1 (recomputed)" in path for path in paths)


def test_weights_and_state_of_the_optimizer_are_no_boxes(step):
    view = fxlab.draw(step, opened=[]).view
    inputs = [box.name for box in view.boxes if getattr(box, "node", None) and box.node.op == "placeholder"]
    assert inputs == ["x"]
    group = build_hierarchy(step).groups["first"]
    assert group.parameters == 4 * 8 + 8


def test_updates_lie_in_the_module_whose_parameter_they_update(step):
    hierarchy = build_hierarchy(step)
    update = step.graph.output_node().args[0]["new blocks.1.up.weight"]
    assert boxes_around(hierarchy, update.name)[-2:] == ["optimizer.blocks.1", "optimizer.blocks.1.up"]


def test_no_node_is_outside_of_its_module(step):
    hierarchy = build_hierarchy(step)
    for node in calls(step):
        stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack") or {}
        own = [path for path in stack if path]
        around = " ".join(
            [*boxes_around(hierarchy, node.name), hierarchy.leaves[hierarchy.position_of[node.name]].owner]
        )
        assert not own or own[-1] in around, node.name


def joint_graph(model, x):
    """Return AOTAutograd's joint graph."""
    import contextlib

    from torch._dynamo.functional_export import dynamo_graph_capture_for_export
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return squared(self.model(x))

    with contextlib.ExitStack() as stack:
        captured = dynamo_graph_capture_for_export(WithLoss())(x)
        return aot_export_joint_with_descriptors(stack, captured, (x,)).graph_module


def test_the_joint_graph_of_aot_autograd_is_drawn_by_module_and_pass():
    model, x = blocks(3)
    graph = joint_graph(model, x)
    hierarchy = build_hierarchy(graph)
    names = " ".join(hierarchy.groups)
    assert "blocks.[0-2] (backward)" in names
    assert "model.first" in {leaf.owner for leaf in hierarchy.leaves} | {*hierarchy.groups}
    inputs = [leaf.name for leaf in hierarchy.leaves if leaf.node.op == "placeholder"]
    assert len(inputs) == 2  # the batch, and the gradient of the loss


def test_a_path_that_a_tool_has_noted_is_enough():
    def function(w, x):
        return (x @ w).relu().sum()

    graph = make_fx(function)(torch.ones(2, 2), torch.ones(2, 2))
    for place, node in enumerate(calls(graph)):
        node.meta["custom"] = {"module_fqn": f"layers.{place // 2}.attention"}
        node.meta["autograd_backward"] = place >= 2
    assert {"layers.0", "layers.0.attention"} <= {*build_hierarchy(graph).groups}
    leaf = build_hierarchy(graph).leaves[-2]
    assert leaf.owner == "layers.1.attention (backward)"


def test_weights_whose_path_is_noted_place_nodes_that_say_nothing():
    class Described:
        def __init__(self, target):
            self.target = target

    class ParamAOTInput(Described):
        pass

    graph = fx.Graph()
    a, b, x = (graph.placeholder(name) for name in ("a", "b", "x"))
    a.meta["desc"], b.meta["desc"] = ParamAOTInput("layers.0.weight"), ParamAOTInput("layers.1.weight")
    first = graph.call_function(torch.mul, (graph.call_function(torch.mm, (x, a)), 2))
    second = graph.call_function(torch.mul, (graph.call_function(torch.mm, (first, b)), 2))
    graph.output(second)
    hierarchy = build_hierarchy(fx.GraphModule({}, graph))
    owners = {leaf.name: leaf.owner for leaf in hierarchy.leaves if leaf.node.target is torch.mm}
    assert owners == {"mm": "layers.0", "mm_1": "layers.1"}
    assert [leaf.name for leaf in hierarchy.leaves if leaf.node.op == "placeholder"] == ["x"]


def flat_step(count=2):
    """Return a flat step whose nodes say nothing, with the paths of its first inputs."""
    model, x = blocks(count)
    state = dict(model.named_parameters())

    def step(state, x):
        loss = squared(torch.func.functional_call(model, state, (x,)))
        return [loss, *torch.autograd.grad(loss, list(state.values()))]

    return make_fx(step)(state, x), list(state)


def test_passes_of_a_step_that_says_nothing_are_told_by_its_order():
    graph, paths = flat_step()
    hierarchy = build_hierarchy(graph)
    assert {"forward pass", "backward pass"} <= {*hierarchy.groups}
    inputs = [leaf.name for leaf in hierarchy.leaves if leaf.node.op == "placeholder"]
    assert len(inputs) == 1 < len(paths)
    backward = hierarchy.groups["backward pass"]
    names = [leaf.name for leaf in hierarchy.leaves[backward.start : backward.stop]]
    assert names[0] == "ones_like"


def test_modules_of_a_step_that_says_nothing_are_told_by_its_weights():
    graph, paths = flat_step(4)
    for node, path in zip(graph.graph.find_nodes(op="placeholder"), paths, strict=False):
        node.meta["desc"] = StepInput("parameter", path, path)
    view = fxlab.draw(graph, opened=[]).view
    hierarchy = view.hierarchy
    paths = [path for path in hierarchy.groups if path.startswith("blocks.")]
    assert any(path.endswith("(backward)") for path in paths)
    assert any(not path.endswith("(backward)") for path in paths)
    inside = [leaf for leaf in hierarchy.leaves if (leaf.path or leaf.owner).startswith("blocks")]
    assert len(inside) > len(hierarchy.leaves) / 2
    edges = {(edge.source.id, edge.target.id) for edge in view.edges}
    assert not any((target, source) in edges for source, target in edges)


def test_a_graph_that_returns_one_number_has_no_backward_pass():
    graph = make_fx(lambda x: torch.ones_like(x).mul(x).sum())(torch.ones(2))
    assert "backward pass" not in build_hierarchy(graph).groups


def test_a_long_list_is_cut_where_few_values_go_on():
    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(6):
        parts = [graph.call_function((torch.sin, torch.cos)[n % 2], (value,)) for n in range(20)]
        value = parts[0]
        for number, part in enumerate(parts[1:]):
            value = graph.call_function((torch.add, torch.sub)[number % 2], (value, part))
        value = graph.call_function(torch.tanh, (value,))
    graph.output(value)
    hierarchy = build_hierarchy(fx.GraphModule({}, graph))
    stretches = [group for group in hierarchy.groups.values() if group.kind == "segment"]
    assert [group.label.partition(" … ")[2] for group in stretches] == [
        f"tanh{f'_{number}' if number else ''}" for number in range(6)
    ]
