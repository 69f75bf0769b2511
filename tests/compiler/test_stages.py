"""The stages of a compile: what they compute, hold, and are called."""

import pytest
import torch
from torch import nn

import fxlab


def test_each_pass_that_changed_the_graph_is_a_stage_under_the_compilers_name(shared):
    assert [pass_.name for pass_ in shared.passes][:2] == ["AOTAutograd", "joint/remove_noop_ops"]
    assert shared.applied == shared.passes
    assert len(shared.stages) == len(shared.passes) + 1
    assert shared.remarks == ()


def test_the_original_computes_what_the_model_does(shared, blocks):
    with torch.no_grad():
        eager = blocks(**shared.inputs)
        captured = shared.original(**shared.inputs)
    assert all(torch.equal(a, b) for a, b in zip(eager.values(), captured, strict=True))


def test_every_stage_is_the_model_up_to_rounding(shared):
    assert shared.verdict().agrees
    assert all(shared.verdict(pass_.name).agrees for pass_ in shared.passes)
    assert fxlab.bisect(shared) is None


def test_stages_share_the_parameters_of_the_model(shared, blocks):
    own = dict(blocks.named_parameters())
    for stage in shared.stages:
        held = dict(stage.named_parameters())
        assert held.keys() == own.keys()
        assert all(held[path] is own[path] for path in held)
        assert stage.get_buffer("scale") is blocks.scale


def test_nodes_know_their_modules(shared):
    for stage in shared.stages:
        weight = stage.graph.find_nodes(op="get_attr", target="layers.1.linear.weight")[0]
        assert list(weight.meta["nn_module_stack"]) == ["layers", "layers.1", "layers.1.linear"]
        called = [node for node in stage.graph.nodes if node.op == "call_function"]
        known = [node for node in called if "nn_module_stack" in node.meta]
        assert len(known) >= len(called) - 2  # those of the root have none


def test_nodes_that_compute_the_same_have_one_name_across_the_border_to_aten(shared):
    captured, aten, *_ = shared.stages
    table = fxlab.compare_nodes(captured, aten, shared.inputs)
    assert {"linear", "relu_1", "layer_norm_2"} <= {*table["original"]}
    assert (table["introduced"] < 1e-5).all()
    others = {n.name for n in aten.graph.nodes} - {n.name for n in captured.graph.nodes}
    assert any("var_mean" in name for name in others)


def test_what_a_node_became_is_known_across_the_border(shared):
    table = fxlab.rewriting.transformed_nodes(shared.stages[1], original=shared.original)
    variance = next(name for name in table.index if "var_mean" in name)
    assert table.loc[variance, "before"] == ["layer_norm"]


@pytest.mark.weekly
def test_a_graph_after_a_break_is_a_session_of_its_own_with_the_reason(capsys):
    class Prints(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            hidden = self.a(x).relu()
            print("in between")
            return self.b(hidden)

    session = fxlab.compiler.compile_session(Prints().eval(), torch.randn(2, 4))
    first, second = session.graphs.values()
    assert first is session
    assert list(session.graphs) == ["graph 1, inference", "graph 2, inference"]
    assert first.graph_break.code == 'print("in between")'
    assert second.graph_break is None
    assert list(second.original.state_dict()) == ["b.weight", "b.bias"]
    assert first.verdict().agrees
    assert second.verdict().agrees


@pytest.mark.weekly
def test_a_graph_that_runs_again_after_a_later_one_leaves_that_one_its_inputs():
    class Calls(nn.Module):
        def double(self, x):
            return x * 2

        def add(self, x, y):
            return x.sum() + y

        def forward(self, x):
            found = []
            for place in range(2):
                print(end="")  # a break in a loop: the functions are compiled alone
                y = self.double(x + place)
                found += [self.add(y, x)] if place == 0 else []
            return found

    session = fxlab.compiler.compile_session(Calls(), torch.arange(3.0))
    inputs = [[value.tolist() for value in graph.inputs.values()] for graph in session.graphs.values()]
    assert [[0, 2, 4], [0, 1, 2]] in inputs
    assert all(graph.verdict() for graph in session.graphs.values())


def test_lowerings_of_inductor_say_why_they_cannot_run():
    def lowered(graph):
        node = graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]

        def generated(x):
            raise AssertionError

        generated._inductor_lowering_function = True
        node.target = generated

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    session = fxlab.compiler.compile_session(
        model, torch.randn(2, 4), options={"post_grad_custom_post_pass": lowered}
    )
    with pytest.raises(RuntimeError, match="generated is a lowering of Inductor"):
        session.graph_module(**session.inputs)
    with pytest.raises(ValueError, match="generated is a lowering of Inductor"):
        session.verdict()


def test_what_the_outermost_forward_calls_is_inside_of_no_module():
    class Outermost(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).softmax(-1)

    session = fxlab.compiler.compile_session(Outermost().eval(), torch.randn(2, 4))
    assert len(session.stages) > 1
    for stage in session.stages:
        inside = {node.name for node in stage.graph.nodes if node.meta.get("nn_module_stack")}
        after = stage.graph.find_nodes(op="output")[0].all_input_nodes[0]
        assert after.name not in inside
        assert "linear" in inside


def one_twice(graph_module):
    """Return the second output as the third as well."""
    output = graph_module.graph.output_node()
    viewed, second, _ = output.args[0]
    output.args = ((viewed, second, second),)


@pytest.mark.often(1)
@pytest.mark.parametrize("training", [False, True])
def test_memory_that_aotautograd_makes_outputs_share_later_is_not_compared(training):
    def function(x):
        return x.view(-1)[:4].add_(1), x.sin(), x.sin() * 1

    session = fxlab.compiler.compile_session(function, torch.randn(4, 8), training=training)
    for found in (session.verdict(), session.verdict("AOTAutograd")):
        assert found.status == "same bits"
        assert [note.partition(",")[0] for note in found.notes] == ["0: shared memory is not compared"]
    # The memory of others is.
    session.apply(fxlab.from_callable(one_twice, name="one-twice"))
    assert "output 1 shares memory with output 2" in session.verdict().reason
