"""Switching passes and matches of the compiler, and finding the one that is wrong."""

import pytest
import torch
from tiny_models import Blocks, plant_mistake, relus_to_clamps
from torch import nn
from torch._inductor import config as inductor_config

import fxlab


def count_nodes(session):
    return len(session.graph_module.graph.nodes)


def names(session):
    return [pass_.name for pass_ in session.passes]


def test_switching_any_pass_off_leaves_the_model_the_same(session):
    for name in names(session):
        if session.passes[name].fixed:
            continue
        session.revert(name)
        assert name not in [pass_.name for pass_ in session.applied]
        assert session.verdict().agrees
        session.undo()
    assert session.applied == session.passes


def test_a_pass_that_is_off_leaves_its_change_out_and_undo_brings_it_back(session):
    name, later, before = "joint/remove_noop_ops", "post_grad/remove_noop_ops", count_nodes(session)
    session.revert(name)
    # The compiler does the same once more, later, where there is something left to do.
    assert session._internals.is_on(later)
    assert count_nodes(session) == before
    session.revert(later)
    assert count_nodes(session) == before + 3
    session.undo()
    session.undo()
    assert session._internals.is_on(name)
    assert later not in names(session)
    session.redo()
    assert not session._internals.is_on(name)


def test_a_pass_is_judged_on_other_inputs_as_well(session):
    found = session.verdict("joint/remove_noop_ops", variants=True)
    assert found.agrees
    assert len(found.by_inputs) > 1


def test_what_cannot_be_switched_off_says_why(session):
    with pytest.raises(ValueError, match="AOTAutograd cannot be switched off: it writes the graph in ATen"):
        session.revert("AOTAutograd")
    session.revert()
    assert "AOTAutograd" in [pass_.name for pass_ in session.applied]
    assert session.verdict().agrees


def test_the_order_is_the_compilers(session):
    with pytest.raises(ValueError, match="the compiler decides on the order"):
        session.move("AOTAutograd", 1)
    with pytest.raises(ValueError, match="Switch it off: revert"):
        session.remove("joint/remove_noop_ops")
    with pytest.raises(ValueError, match="It cannot be switched off either: it writes the graph in ATen"):
        session.remove("AOTAutograd")
    with pytest.raises(ValueError, match=r"cannot be saved.* session.to_python\(\).* fxlab.report"):
        session.save("file")


def test_passes_that_were_added_move_above_the_compilers(blocks):
    session = fxlab.compiler.compile_session(blocks, torch.randn(3, 8))
    session.add(fxlab.RemoveDeadCode())
    session.add(fxlab.EliminateCommonSubexpressions())
    places = len(session.passes) - 2
    session.move("eliminate-common-subexpressions", places)
    assert [str(pass_.name) for pass_ in session.passes[places:]] == [
        "eliminate-common-subexpressions",
        "remove-dead-code",
    ]
    with pytest.raises(ValueError, match=f"expected one from {places} to {places + 1}, got 0"):
        session.move("remove-dead-code", 0)
    session.remove("remove-dead-code")
    assert session.verdict().agrees


def test_a_compiler_pass_takes_stages_of_its_session_alone(session):
    with pytest.raises(ValueError, match=r"Make one: fxlab\.compiler\.compile_session"):
        session.passes[-1](torch.fx.symbolic_trace(nn.ReLU()))


def test_a_mistake_in_a_pass_of_the_users_own_is_found_by_name(blocks):
    session = fxlab.compiler.compile_session(
        blocks, torch.randn(3, 8), options={"post_grad_custom_post_pass": plant_mistake}
    )
    assert "post_grad/plant_mistake" in names(session)
    assert not session.verdict().agrees
    assert not session.verdict("post_grad/plant_mistake").agrees
    assert session.verdict("AOTAutograd").agrees
    found = fxlab.bisect(session)
    assert found.pass_.name == "post_grad/plant_mistake"
    session.revert("post_grad/plant_mistake")
    assert session.verdict().agrees
    with pytest.raises(ValueError, match="is off"):
        session.verdict("post_grad/plant_mistake")


def test_a_mistake_in_a_match_is_found_and_excluded(blocks):
    options = {"post_grad_custom_pre_pass": relus_to_clamps(wrong={1})}
    session = fxlab.compiler.compile_session(blocks, torch.randn(3, 8), options=options)
    name = "post_grad/relus_to_clamps"
    explained = session.explain(name)
    assert explained.index.tolist() == ["relu_2", "relu_1", "relu"]
    assert explained["reason"].iloc[0] == "replaced by relu_to_clamp"
    assert str(session.changes(name)) == "3 rewrites: 3 relus become 3 clamp mins"
    marked = session.passes[name].get_transformed_nodes(session.graph_module)
    assert [str(node.target) for node in marked] == ["aten.clamp_min.default"] * 3
    found = fxlab.bisect(session)
    assert found.pass_.name == name
    (wrong,) = found.rewrites
    assert found.divergence.node == wrong

    session.exclude(name, wrong)
    assert session._internals.excluded(name) == (("relu_1",),)
    assert session.explain(name)["matched"].tolist() == [True, False, True]
    assert session.verdict().agrees
    session.undo()
    assert not session.verdict().agrees
    session.redo()
    session.include(name, "relu_1")
    assert not session.verdict().agrees


@pytest.mark.weekly
def test_a_pass_that_finds_something_only_when_another_is_off_is_offered_then():
    def take_relus(graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.target, node.args = torch.ops.aten.clamp_min.default, (*node.args, 0.0)

    def take_what_is_left(graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.target, node.args = torch.ops.aten.clamp_min.default, (*node.args, 0)

    options = {"post_grad_custom_pre_pass": take_relus, "post_grad_custom_post_pass": take_what_is_left}
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), options=options)
    assert "post_grad/take_what_is_left" not in names(session)
    session.revert("post_grad/take_relus")
    assert session._internals.is_on("post_grad/take_what_is_left")
    assert names(session).index("post_grad/take_relus") < names(session).index("post_grad/take_what_is_left")
    session.undo()
    assert session._internals.is_on("post_grad/take_relus")
    assert session.verdict().agrees


def test_the_code_of_a_session_makes_it_again(session, blocks):
    session.revert("joint/remove_noop_ops")
    made = {"model": blocks, "inputs": session.inputs}
    exec(session.to_python(), made)
    again = made["session"]
    assert [pass_.name for pass_ in again.applied] == [pass_.name for pass_ in session.applied]


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        rows, columns, size = x.shape
        return self.linear(x).reshape(rows * columns, size).relu().view(rows, columns, size)


@pytest.mark.often(1)
@pytest.mark.parametrize("training", [False, True])
def test_sizes_are_symbols_where_dynamic_shapes_are_asked_for(training):
    session = fxlab.compiler.compile_session(
        Flat().eval(), torch.randn(2, 3, 8), dynamic=True, training=training
    )
    sizes = {name: value for name, value in session.inputs.items() if isinstance(value, int)}
    assert list(sizes.values()) == [2, 3]
    # They are inputs of the graphs that compute with them.
    assert any(node.users for node in session.stages[-1].graph.nodes if node.name in sizes)
    assert all(stack.verdict().agrees for stack in session.graphs.values())
    assert f"inputs{', training=True' * training}, dynamic=True)" in session.to_python()


@pytest.mark.weekly
def test_the_code_of_a_backward_graph_makes_that_one_again():
    session = fxlab.compiler.compile_session(Flat().eval(), torch.randn(2, 3, 8), training=True)
    made = {"model": Flat().eval(), "inputs": torch.randn(2, 3, 8)}
    exec(session.graphs["backward"].to_python(), made)
    assert list(made["session"].inputs) == list(session.graphs["backward"].inputs)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def test_weights_that_are_frozen_are_folded_and_judged():
    model, x = Normed().eval(), torch.randn(1, 2, 5, 5)
    with inductor_config.patch(freezing=True):
        session = fxlab.compiler.compile_session(model, x)
    assert session.remarks == ()
    assert list(session.inputs) == ["x"]
    assert dict(session.original.named_parameters()).keys() == dict(model.named_parameters()).keys()
    for stage in session.stages[:4]:
        with torch.no_grad():
            assert torch.allclose(stage(**session.inputs)[0], model(x), atol=1e-5)
    folded = session.stages[session.passes.index(session.passes["post_grad/before its passes"]) + 1]
    targets = [str(node.target) for node in folded.graph.nodes]
    assert not any("batch_norm" in target or "sqrt" in target for target in targets)


def test_freezing_as_an_option_says_why_it_folds_nothing():
    model, x = Normed().eval(), torch.randn(1, 2, 5, 5)
    (remark,) = fxlab.compiler.compile_session(model, x, options={"freezing": True}).remarks
    assert remark.startswith("freezing: no weight is folded")
    (remark,) = fxlab.compiler.compile_session(model, x, options={"freezing": True}, training=True).remarks
    assert remark.startswith("freezing: weights are folded for inference alone")
