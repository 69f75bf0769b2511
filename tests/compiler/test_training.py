"""Compiles with gradients: joint, forward and backward, each a stack of its own."""

from unittest import mock

import pytest
import torch
import torch._inductor.decomposition as decomposition
from functorch.compile import min_cut_rematerialization_partition
from tiny_models import Blocks, without_code
from torch import nn
from torch._inductor.custom_graph_pass import CustomPartitionerFn

import fxlab


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(0)
    return fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), training=True)


def divergence(session):
    """Return the first node of the present graph that differs from the original's."""
    return fxlab.first_divergence(session.original, session.graph_module, session.inputs)


def test_there_are_three_stacks(session):
    assert list(session.graphs) == ["joint", "forward", "backward"]
    assert session.graphs["joint"] is session
    for stage in session.stages[1:]:  # the first is what Dynamo has captured
        backward = [bool(node.meta.get("autograd_backward")) for node in stage.graph.nodes]
        assert {*backward} == {False, True}


def test_outputs_and_gradients_of_every_stage_are_those_of_eager(session):
    count = len(list(session.original.parameters()))
    assert len(fxlab.compare_outputs(session.original, session.graph_module, session.inputs)) == 2 + count
    assert session.verdict().agrees
    assert all(session.verdict(pass_.name).agrees for pass_ in session.passes)


def test_the_original_has_the_gradients_of_autograd(session):
    captured = session.original(**session.inputs)
    model = Blocks().eval()
    model.load_state_dict(session.original.state_dict())
    outputs = model(session.inputs["x"]).values()
    tangents = [value for name, value in session.inputs.items() if name != "x"]
    expected = torch.autograd.grad(list(outputs), list(model.parameters()), tangents)
    assert all(any(torch.equal(a, b) for b in captured) for a in expected)


@pytest.mark.weekly
def test_a_pass_of_one_stack_is_switched_for_that_stack_alone(session):
    backward = session.graphs["backward"]
    backward.revert(backward.passes[-1].name)
    assert backward.verdict().agrees
    assert session.applied == session.passes


def test_a_model_in_training_mode_writes_its_buffers_as_eager_does():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    session = fxlab.compiler.compile_session(model, torch.randn(5, 4), training=True)
    assert session.verdict().agrees
    assert (
        "written state 1.running_mean"
        in fxlab.compare_outputs(session.original, session.graph_module, session.inputs).index
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_node_of_an_intact_compile_is_accused(session):
    assert divergence(session) is None
    assert all(divergence(one) is None for one in session.graphs.values())


def test_autocast_around_a_compile_is_in_its_graph():
    layers = torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)
    model, x = torch.nn.Sequential(*layers), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        session = fxlab.compiler.compile_session(model, x, training=True)
    with fxlab.compiler.record_compile() as record:
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.compile(model, backend=without_code)(x).float().sum()
        loss.backward()
    for each in (session, *record.sessions.values()):
        assert each.verdict().agrees
        assert divergence(each) is None
    name = next(pass_.name for pass_ in session.applied if pass_.name.startswith("joint/"))
    session.revert(name)
    assert session.verdict().agrees


def careless_derivative(graph):
    (node,) = graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
    square = next(user for user in node.users if user.target is torch.ops.aten.mul.Tensor)
    with graph.inserting_after(square):
        new = graph.call_function(torch.ops.aten.mul.Tensor, (square, 0.9), name="careless")
    new.meta["val"] = square.meta["val"]
    square.replace_all_uses_with(new, lambda user: user is not new)


def test_a_mistake_in_the_derivative_is_named_with_its_node():
    model, options = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), {}
    options["joint_custom_post_pass"] = careless_derivative
    session = fxlab.compiler.compile_session(model, torch.randn(3, 4), training=True, options=options)
    assert not session.verdict().agrees
    # The captured graph takes all gradients at once, so that an output is the first to differ from it.
    assert divergence(session).node in ("1", "2")
    found = fxlab.first_divergence(session.stages[1], session.graph_module, session.inputs)
    node = next(node for node in session.graph_module.graph.nodes if node.name == found.node)
    assert "careless" in [found.node, *map(str, node.all_input_nodes)]
    assert found.original in [node.name for node in session.stages[1].graph.nodes]


OPTIMIZERS = {
    "AdamW": lambda given: torch.optim.AdamW(given, lr=torch.tensor(1e-2)),
    "SGD": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, nesterov=True, foreach=False),
    "foreach": lambda given: torch.optim.Adam(given, foreach=True, amsgrad=True),
    "Rprop": torch.optim.Rprop,
}


@pytest.mark.parametrize(
    "optimizer", [pytest.param(n, marks=() if n == "foreach" else pytest.mark.weekly) for n in OPTIMIZERS]
)
def test_a_compiled_optimizer_is_the_eager_one(optimizer):
    torch.manual_seed(0)
    torch._dynamo.reset()
    given = [*map(torch.nn.Parameter, (torch.randn(3, 2), torch.randn(2), torch.randn(3, 3)[:, :2]))]
    for parameter in given:
        parameter.grad = torch.randn_like(parameter)
    step = torch.compile(OPTIMIZERS[optimizer](given).step, backend=without_code)
    with fxlab.compiler.record_compile() as record:
        step()
    assert record.sessions
    for session in record.sessions.values():
        assert session.verdict().agrees
        assert all(session.verdict(pass_.name).agrees for pass_ in session.passes)
        assert divergence(session) is None
        # Of one tensor all stages have one name.
        held = [
            {path: id(value) for path, value in (*stage.named_buffers(), *stage.named_parameters())}
            for stage in session.stages
        ]
        assert all(known[path] == held[0][path] for known in held for path in known)


class Careless(CustomPartitionerFn):
    """Splits as Inductor does, and changes the backward graph."""

    def __call__(self, gm, joint_inputs, **kwargs):
        forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        node = backward.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)[0]
        with backward.graph.inserting_after(node):
            new = backward.graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.1))
        new.meta.update(node.meta)
        node.replace_all_uses_with(new, lambda user: user is not new)
        backward.recompile()
        return forward, backward

    def uuid(self):
        return None


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(
            torch.nn.Linear(4, 4),
            torch.nn.Tanh(),
            torch.nn.LayerNorm(4),
            torch.nn.Linear(4, 2),
            torch.nn.SiLU(),
        )
    )


@pytest.mark.weekly
def test_the_split_is_a_stage_that_is_judged():
    session = fxlab.compiler.compile_session(layers(), torch.randn(3, 4), training=True)
    assert session.passes[-1].name == "AOTAutograd/partition"
    assert session.verdict("AOTAutograd/partition").agrees
    assert divergence(session) is None
    with pytest.raises(ValueError, match="forward and backward are compiled apart"):
        session.revert("AOTAutograd/partition")


def test_a_wrong_partitioner_is_named():
    options = {"custom_partitioner_fn": Careless()}
    session = fxlab.compiler.compile_session(layers(), torch.randn(3, 4), training=True, options=options)
    assert not session.verdict().agrees
    assert fxlab.bisect(session).pass_.name == "AOTAutograd/partition"
    assert all(one.verdict().agrees for name, one in session.graphs.items() if name != "joint")


@pytest.mark.weekly
def test_a_budget_of_memory_is_an_option():
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(*[torch.nn.Linear(16, 16), torch.nn.GELU()] * 3), torch.randn(64, 16)
    plain, less = (
        fxlab.compiler.compile_session(model, x, training=True, options=options)
        for options in ({}, {"activation_memory_budget": 0.1})
    )
    saved = [len(one.graphs["forward"].graph_module.graph.output_node().args[0]) for one in (plain, less)]
    assert saved[1] < saved[0]
    assert less.verdict().agrees
    assert torch._functorch.config.activation_memory_budget == 1.0


def test_a_wrong_decomposition_is_found():
    def step(x, weight):
        return nn.functional.silu(x @ weight).sum(-1)

    def wrong(gradient, x):
        return own(gradient, x) * 1.001

    table = decomposition.select_decomp_table()
    own = table[torch.ops.aten.silu_backward.default]
    weight = torch.randn(4, 4, requires_grad=True)
    with mock.patch.dict(table, {torch.ops.aten.silu_backward.default: wrong}):
        session = fxlab.compiler.compile_session(step, (torch.randn(2, 4), weight), training=True)
        found = fxlab.bisect(session)
    assert found.pass_.name == "AOTAutograd"


def test_a_dropout_of_a_permuted_value_is_judged_pass_by_pass_and_a_mistake_beside_it_is_found():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4))

    def step(x):
        return model(x.transpose(0, 1)).sin().sum(0)

    x = torch.randn(3, 2, 4)
    right = fxlab.compiler.compile_session(step, (x,), training=True)
    assert "inductor_random" in right.graph_module.code
    assert right.verdict().agrees
    assert all(right.verdict(pass_.name).agrees for pass_ in right.applied)
    assert divergence(right) is None

    def careless(graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.gt.Scalar):
            node.args = (node.args[0], 0.5)

    wrong = fxlab.compiler.compile_session(
        step, (x,), training=True, options={"joint_custom_post_pass": careless}
    )
    assert fxlab.bisect(wrong).pass_.name == "joint/careless"
