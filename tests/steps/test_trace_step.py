"""A traced step is an eager step: names, bits, and nothing of the user's changes."""

import copy
import logging
import pickle
import random
from array import array

import pytest
import torch
from step_models import LayerDrop, batches, blocks, net, own_loss, squared
from torch import nn
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fxlab
from fxlab.drawing import build_hierarchy
from fxlab.values.tensors import same_bits

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW


class Again(torch.autograd.Function):
    """Calls a function again in the backward pass, and accumulates the gradients of its parameters."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.function(x).backward(gradient)
        return None, x.grad


def names(step):
    return list(step.graph.output_node().args[0])


def inputs_of(step):
    return [str(node.target) for node in step.graph.find_nodes(op="placeholder")]


def eager(model, batch, loss, optimizer=None):
    """Return what an eager step computes, by the names of a step's outputs; the model is stepped."""
    output = model(*batch) if isinstance(batch, tuple) else model(batch)
    value = loss(output)
    value.backward()
    found = {"loss": value.detach()}
    found |= {f"grad of {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    if optimizer is not None:
        optimizer.step()
        found |= {f"new {n}": p.detach() for n, p in model.named_parameters()}
        for name, parameter in model.named_parameters():
            state = optimizer.state.get(parameter, {})
            found |= {f"new {k} of {name}": v for k, v in state.items() if isinstance(v, torch.Tensor)}
    return found | {f"new {n}": b for n, b in model.named_buffers()}


def run(step):
    torch.manual_seed(5)
    with torch.no_grad():
        return step(**fxlab.Session(step).inputs)


def test_every_result_has_its_name_and_the_bits_of_an_eager_step():
    model, other = net(), net()
    (batch,) = batches(1)
    optimizer = ADAMW(model.parameters())
    step = fxlab.trace_step(model, batch, loss=own_loss, optimizer=optimizer)
    torch.manual_seed(5)
    expected = eager(other, batch, own_loss, ADAMW(other.parameters()))
    found = run(step)
    assert found.keys() <= expected.keys()
    for name, value in expected.items():
        if name in found:
            assert same_bits(found[name], value), name
        else:  # what a step leaves alone has no output
            assert name in ("new conv.bias", "new unused.weight", "new unused.bias"), name
    assert not any("unused" in name or "conv.bias" in name or "tied.weight" in name for name in found)


def test_inputs_are_called_after_parameters_buffers_state_settings_and_batch():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(3, 2)
    first = fxlab.trace_step(model, {"input": x}, loss=squared, optimizer=optimizer)
    assert inputs_of(first) == [
        *("p_0_weight", "p_0_bias", "p_1_weight", "p_1_bias"),
        *("b_1_running_mean", "b_1_running_var", "b_1_num_batches_tracked"),
        *("lr", "input_1"),
    ]
    eager(model, x, squared, optimizer)
    second = fxlab.trace_step(model, {"input": x}, loss=squared, optimizer=optimizer)
    assert "momentum_buffer_of_0_weight" in inputs_of(second)
    assert [node.meta["desc"].target for node in second.graph.find_nodes(op="placeholder")][:2] == [
        "0.weight",
        "0.bias",
    ]


def test_model_optimizer_and_generators_stay_as_they_are():
    model = net()
    optimizer = ADAMW(model.parameters())
    eager(model, batches(1)[0], own_loss, optimizer)
    model.conv.calls = []
    model.conv.register_forward_hook(lambda module, *_: module.calls.append(1))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    versions = [value._version for value in model.state_dict().values()]
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    generators = torch.get_rng_state()
    fxlab.trace_step(model, batches(1)[0], loss=own_loss, optimizer=optimizer)
    after = model.state_dict(), optimizer.state_dict()
    assert str(before) == str(after)
    assert all(same_bits(a, b) for a, b in zip(before[0].values(), after[0].values(), strict=True))
    assert versions == [value._version for value in model.state_dict().values()]
    assert all(
        a is b.grad or same_bits(a, b.grad) for a, b in zip(gradients, model.parameters(), strict=True)
    )
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    assert torch.equal(generators, torch.get_rng_state())
    assert model.conv.calls == []
    assert all(p.is_leaf and isinstance(p, nn.Parameter) for p in model.parameters())


def test_forward_and_backward_nodes_know_their_module():
    model, x = blocks(2)
    step = fxlab.trace_step(model, x, loss=squared, optimizer=SGD(model.parameters(), lr=0.1))
    backward = [node for node in step.graph.nodes if node.meta.get("autograd_backward")]
    places = {next(reversed(node.meta.get("fwd_nn_module_stack", {"?": 0}))) for node in backward}
    assert {"first", "blocks.0.up", "blocks.1.down", "blocks.1.norm", "last", "loss"} <= places
    assert all(
        node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        for node in step.graph.nodes
        if node.op == "call_function" and node.name != "ones_like"
    )
    assert {
        next(reversed(n.meta["nn_module_stack"]))
        for n in step.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default)
    } == {"blocks.0", "blocks.1"}
    stacks = [[*node.meta.get("nn_module_stack", ())] for node in step.graph.nodes]
    updates = {stack[-1] for stack in stacks if stack and stack[0] == "optimizer"}
    assert {"optimizer.first", "optimizer.blocks.0.up", "optimizer.last"} <= updates


def test_a_loss_that_the_model_computes_itself_has_a_box():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            doubled = x * 2
            return {"loss": (self.linear(doubled) - 1).square().mean()}

    step = fxlab.trace_step(WithLoss(), torch.ones(3, 2))
    boxes = {node.name: list(node.meta.get("nn_module_stack", ())) for node in step.graph.nodes}
    assert boxes["mul"] == [""]
    assert boxes["addmm"] == ["", "linear"]
    assert boxes["sub"] == boxes["mean"] == ["", "loss"]
    backward = [node.meta.get("fwd_nn_module_stack", ()) for node in step.graph.nodes]
    assert any("loss" in stack for stack in backward)
    assert build_hierarchy(step).groups["loss (backward)"]


@pytest.mark.parametrize("checkpointed", [(0,), (0, 1, 2)])
def test_a_checkpoint_is_computed_again_with_the_random_numbers_of_the_forward_pass(checkpointed):
    model, x = blocks(3, checkpointed)
    plain = fxlab.trace_step(blocks(3)[0], x, loss=squared)
    step = fxlab.trace_step(model, x, loss=squared)
    again = [node for node in step.graph.nodes if node.meta.get("recomputed")]
    assert len(again) >= 8 * len(checkpointed)
    draws = torch.ops.aten.bernoulli.p
    assert len(step.graph.find_nodes(op="call_function", target=draws)) == 3
    found, expected = run(step), run(plain)
    assert all(same_bits(found[name], expected[name]) for name in expected)


def again(function, *inputs):
    return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=False)


def a_function(self, x):
    return again(lambda x: dropout(dropout(self.linear(x), 0.4).sin(), 0.3), x)


def two_functions(self, x):
    for rate in (0.2, 0.5):
        x = again(lambda x, rate=rate: dropout(self.linear(x), rate), x)
    return x


def one_module_twice(self, x):
    return again(self.block, again(self.block, x))


def one_inside_the_other(self, x):
    def outer(x):
        return dropout(again(lambda x: dropout(self.linear(x), 0.2).tanh(), dropout(x, 0.3)), 0.4)

    return again(outer, dropout(x, 0.1))


@pytest.mark.parametrize(
    ("forward", "count", "wrapped"),
    [
        (a_function, 2, {"0"}),
        (two_functions, 2, {"0"}),
        (one_module_twice, 2, {"0.block", "0.block@1"}),
        (one_inside_the_other, 4, {"0"}),
    ],
)
def test_whatever_a_checkpoint_wraps_its_draws_are_those_of_the_forward_pass(forward, count, wrapped):
    class Wraps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3))

        def forward(self, x):
            return forward(self, x)

    model, x = Wraps(), torch.randn(5, 4)
    step = fxlab.trace_step(nn.Sequential(model), x, loss=squared)
    draws = [node for node in step.graph.nodes if node.target is torch.ops.aten.bernoulli.p]
    assert len(draws) == count
    assert {node.meta["recomputed"] for node in step.graph.nodes if "recomputed" in node.meta} == wrapped
    found = run(step)
    torch.manual_seed(5)
    expected = eager(nn.Sequential(model), x, squared)
    assert found.keys() == expected.keys()
    assert all(same_bits(value, expected[name]) for name, value in found.items())


@pytest.mark.each_value
@pytest.mark.parametrize("settings", [{}, {"bidirectional": True}, {"num_layers": 2, "dropout": 0.3}])
@pytest.mark.parametrize("training", [True, False])
def test_an_lstm_keeps_the_workspace_of_its_backward_pass(settings, training):
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 5, **settings)

        def forward(self, x):
            return self.lstm(x)[0]

    model, x = Sequence().train(training), torch.randn(4, 3, 6)
    step = fxlab.trace_step(model, x, loss=squared)
    assert fxlab.Session(step).verdict().same_bits
    found = run(step)
    torch.manual_seed(5)
    expected = eager(copy.deepcopy(model), x, squared)
    assert found.keys() == expected.keys()
    assert all(same_bits(value, expected[name]) for name, value in found.items())


def test_autocast_around_the_trace_holds_for_forward_and_loss():
    model, x = blocks(2)
    with torch.autocast("cpu", torch.bfloat16):
        step = fxlab.trace_step(model, x, loss=squared)
    other, _ = blocks(2)
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16):
        loss = squared(other(x))
    loss.backward()
    found = run(step)
    assert found["loss"].dtype == loss.dtype
    assert same_bits(found["loss"], loss.detach())
    for name, parameter in other.named_parameters():
        assert same_bits(found[f"grad of {name}"], parameter.grad)


def test_the_loss_may_take_the_inputs_too():
    model, x = blocks(1)
    step = fxlab.trace_step(
        model, {"x": x}, loss=lambda output, inputs: (output.sum(-1) - inputs["x"].sum(-1)).square().mean()
    )
    assert names(step)[0] == "loss"
    assert run(step)["loss"] > 0


@pytest.mark.parametrize("more", [(), (torch.tensor(3.0),)])
def test_labels_come_last_where_the_model_takes_more_than_it_requires(more):
    class Scaled(nn.Linear):
        def forward(self, x, scale=2.0, mask=None):
            return super().forward(x) * scale if mask is None else x

    model, labels = Scaled(4, 4), torch.randn(3, 4)
    given = (torch.randn(3, 4), *more)
    session = fxlab.Session(fxlab.trace_step(model, (*given, labels), loss=nn.functional.mse_loss))
    expected = nn.functional.mse_loss(model(*given), labels)
    assert same_bits(session.graph_module(**session.inputs)["loss"], expected.detach())
    assert same_bits(fxlab.steps.as_step(session)((*given, labels)), expected.detach())
    assert [*session.inputs][2:] == ["x", *["scale" for _ in more], "target"]


def test_a_decision_on_data_is_guarded():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    step = fxlab.trace_step(Routed(), torch.ones(1, 2), loss=squared)
    given = fxlab.Session(step).inputs
    assert "grad of a.weight" in step(**given)
    with pytest.raises(AssertionError, match="may decide otherwise"):
        step(**{**given, "x": -torch.ones(1, 2)})


@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_of_a_step_that_decides_on_random_numbers_draws_those_of_the_trace(seed):
    torch.manual_seed(seed)
    assert fxlab.Session(fxlab.trace_step(LayerDrop(), torch.randn(2, 4), loss=squared)).verdict().same_bits


def test_a_size_that_depends_on_data_is_guarded():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x[x.sum(-1) > 0])

    step = fxlab.trace_step(Chosen(), torch.tensor([[1.0, 1], [-1, -1], [2, 2]]), loss=squared)
    with pytest.raises(AssertionError, match="elements were chosen"):
        step(**{**fxlab.Session(step).inputs, "x": torch.ones(3, 2)})


def test_passes_of_fxlab_keep_every_bit():
    model = net()
    optimizer = ADAMW(model.parameters())
    session = fxlab.Session(fxlab.trace_step(model, batches(1)[0], loss=own_loss, optimizer=optimizer))
    before = len(session.original.graph.nodes)
    for name in ("eliminate-common-subexpressions", "remove-redundant-views", "remove-dead-code"):
        session.apply(name)
    assert len(session.graph_module.graph.nodes) < before
    found = session.verdict()
    assert str(found.status) == "same bits"
    assert {"loss", "grad of head.weight", "new norm.running_mean", "new exp_avg of head.weight"} <= set(
        found.outputs
    )


def test_a_parameter_that_the_forward_pass_writes_is_refused_and_not_written():
    model = nn.Sequential(nn.Embedding(3, 2, max_norm=0.1), nn.Linear(2, 1))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(fxlab.TraceError, match=r"writes the parameter 0\.weight"):
        fxlab.trace_step(model, torch.tensor([0, 1]), loss=squared)
    assert all(same_bits(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


def test_a_loss_that_reads_the_parameters_of_the_model_has_their_gradients():
    model = nn.Linear(2, 1)

    def with_decay(output):
        return output.sum() + 0.5 * model.weight.square().sum()

    step = fxlab.trace_step(model, torch.zeros(1, 2), loss=with_decay)
    assert same_bits(run(step)["grad of weight"], model.weight.detach())


@pytest.mark.parametrize(
    "wrapped", [lambda function, x: checkpoint(function, x, use_reentrant=True), Again.apply]
)
def test_a_gradient_that_an_operator_accumulates_itself_is_refused(wrapped):
    class Adapter(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.last(wrapped(self.inside, x.detach().requires_grad_()))

    model = Adapter()
    with pytest.raises(fxlab.TraceError, match=r"grad of inside\.weight is accumulated inside an operator"):
        fxlab.trace_step(model, torch.ones(3, 2), loss=squared)
    assert model.inside.weight.grad is None


def in_itself(model):
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    ("compiled", "loss"),
    [
        (lambda model: torch.compile(model, backend="eager"), squared),
        (in_itself, squared),
        (lambda model: model, torch.compile(squared, backend="eager")),
    ],
    ids=["around", "inside", "loss"],
)
def test_what_torch_compile_has_wrapped_is_recorded_as_its_python(compiled, loss):
    model, x = blocks(1)
    expected = run(fxlab.trace_step(model, x, loss=squared))
    before = torch._dynamo.config.error_on_nested_fx_trace
    found = run(fxlab.trace_step(compiled(model), x, loss=loss))
    assert all(same_bits(a, b) for a, b in zip(expected.values(), found.values(), strict=True))
    assert torch._dynamo.config.error_on_nested_fx_trace is before


def test_labels_that_are_no_inputs_are_fixed_with_a_warning():
    model, x = blocks(1)
    labels = torch.ones(5, 2)
    with pytest.warns(fxlab.TraceWarning, match=r"shape \(5, 2\)"):
        fxlab.trace_step(model, x, loss=lambda output: (output - labels).square().mean())


def test_a_step_is_shown_as_any_graph(tmp_path):
    model = net()
    session = fxlab.Session(
        fxlab.trace_step(model, batches(1)[0], loss=own_loss, optimizer=ADAMW(model.parameters()))
    )
    session.apply("eliminate-common-subexpressions")
    page = fxlab.report(session, path=tmp_path / "step.html")
    assert "grad of head.weight" in page.read_text()


def test_a_planted_mistake_is_named_by_what_it_changes():
    model, x = blocks(1)
    optimizer = ADAMW(model.parameters())
    session = fxlab.Session(fxlab.trace_step(model, x, loss=squared, optimizer=optimizer))

    def wrong(graph_module):
        output = graph_module.graph.output_node()
        gradient = output.args[0]["grad of last.bias"]
        with graph_module.graph.inserting_after(gradient):
            twice = graph_module.graph.call_function(torch.ops.aten.mul.Tensor, (gradient, 1.5))
        twice.meta = dict(gradient.meta)
        gradient.replace_all_uses_with(twice, delete_user_cb=lambda user: user is not twice)
        graph_module.recompile()
        return graph_module

    session.add(fxlab.from_callable(wrong, name="wrong"))
    session.apply("wrong")
    found = session.verdict()
    different = {name for name, judgement in found.outputs.items() if str(judgement.status) == "different"}
    assert different
    assert all("last.bias" in name for name in different)
    assert "last.bias" in found.reason


def test_a_step_is_pickled_without_the_model_it_was_traced_of():
    model, x = blocks(1)
    step = fxlab.trace_step(model, x, loss=squared)
    loaded = pickle.loads(pickle.dumps(fxlab.Session(step).graph_module))
    with pytest.raises(ValueError, match="does not know the model"):
        fxlab.steps.as_step(fxlab.Session(loaded))


def stepped(kind, model, x):
    """Return an optimizer after its first step."""
    optimizer = kind(model.parameters())
    squared(model(x)).backward()
    optimizer.step()
    return optimizer


class KeepsNumbers(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["count"] = self.state[p].get("count", 0) + 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m, x: fxlab.trace_step(m, x), "has no loss"),
        (lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o), "one element"),
        (lambda m, x: fxlab.trace_step(m.requires_grad_(False), x, loss=squared), "no gradients flow"),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=squared, optimizer=torch.optim.LBFGS(m.parameters())),
            "calls the model again",
        ),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=squared, optimizer=stepped(torch.optim.RAdam, m, x)),
            "decides something",
        ),
        (lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() * o.mean().item()), "fixed in the graph"),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() * max(o[0].tolist())),
            "fixed in the graph",
        ),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() * o.detach().numpy().max()),
            "fixed in the",
        ),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() + o.new_ones(10_001).tolist()[0]),
            "10,001",
        ),
        (
            lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() * OTHER.weight.sum()),
            "no parameter of one",
        ),
        (lambda m, x: fxlab.trace_step(m, x, loss=lambda o: o.sum() * PLAIN.sum()), "no parameter of one"),
    ],
)
def test_a_step_that_cannot_be_recorded_is_refused_in_words(make, words):
    with pytest.raises(fxlab.TraceError, match=words):
        make(*blocks(1))


@pytest.mark.often(1)
@pytest.mark.parametrize("kind", [torch.optim.RAdam, torch.optim.ASGD])
def test_the_first_step_of_an_optimizer_that_decides_by_its_state_is_recorded(kind):
    model, x = blocks(1)
    step = fxlab.trace_step(model, x, loss=squared, optimizer=kind(model.parameters()))
    assert fxlab.Session(step).verdict().same_bits
    with pytest.raises(fxlab.TraceError, match="decides something by the numbers in its state"):
        fxlab.trace_step(model, x, loss=squared, optimizer=stepped(kind, model, x))


def test_what_torch_cannot_record_is_told_with_the_line_of_the_model():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(3, 3)

        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]))
            return self.layer(packed)[1]

    with pytest.raises(fxlab.TraceError, match=r"yet. .at .*test_trace_step.py:\d+: return self"):
        fxlab.trace_step(Packed(), torch.randn(4, 2, 3), loss=squared)


def test_a_rate_that_has_to_be_a_number_is_found_out_without_a_log():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2, dtype=torch.cfloat))

        def forward(self, x):
            return (x.to(torch.cfloat) @ self.weight).abs()

    records, model = [], Turned()
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    try:
        fxlab.trace_step(model, torch.ones(3, 2), loss=squared, optimizer=ADAMW(model.parameters()))
    finally:
        logger.removeHandler(handler)
    assert records == []


OTHER = nn.Linear(2, 2)
PLAIN = torch.ones(2, requires_grad=True)


def test_arguments_that_are_none_are_refused():
    model, x = blocks(1)
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        fxlab.trace_step(model, x, loss=squared, optimizer="adam")
    with pytest.raises(ValueError, match="not in the model"):
        fxlab.trace_step(model, x, loss=squared, optimizer=SGD(OTHER.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="expected a function"):
        fxlab.trace_step(model, x, loss=3)
    with pytest.raises(ValueError, match="inputs: x was computed from other tensors"):
        fxlab.trace_step(model, nn.Linear(4, 4)(x), loss=squared)
    optimizer = stepped(KeepsNumbers, model, x)
    with pytest.raises(fxlab.TraceError, match="keeps count = 1"):
        fxlab.trace_step(model, x, loss=squared, optimizer=optimizer)
    optimizer = SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(fxlab.TraceError, match="hooks around step"):
        fxlab.trace_step(model, x, loss=squared, optimizer=optimizer)
    for held in ({"of": [model]}, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)):
        optimizer = SGD(model.parameters(), lr=0.1)
        optimizer.plan = held
        with pytest.raises(fxlab.TraceError, match="leads to its parameters"):
            fxlab.trace_step(model, x, loss=squared, optimizer=optimizer)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(("around", "name"), [(lambda part: part, "model"), (nn.Sequential, "model.0")])
def test_a_scripted_model_is_refused_by_its_name(around, name):
    with pytest.raises(TypeError, match=f"{name}: expected a module in Python, got a RecursiveScriptModule"):
        fxlab.trace_step(around(torch.jit.script(nn.Linear(2, 2))), torch.ones(3, 2), loss=squared)


class Counting(torch.optim.SGD):
    """Takes smaller steps with time, by a count that is no tensor."""

    calls = 0

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(
                        parameter.grad, alpha=-0.1 / (1 + self.count(group, self.state[parameter]))
                    )


def in_a_list(self, group, state):
    self.counts = getattr(self, "counts", [0])
    self.counts[0] += 1
    return self.counts[0]


def in_an_attribute(self, group, state):
    self.calls += 1
    return self.calls


def in_the_class(self, group, state):
    Counting.calls += 1
    return Counting.calls


def in_a_group(self, group, state):
    group["k"] = group.get("k", 0) + 1
    return group["k"]


def in_the_state(self, group, state):
    state["k"] = state.get("k", 0) + 1
    return state["k"]


COUNTED, AROUND = [0], 0


def in_a_global_list(self, group, state):
    COUNTED[0] += 1
    return COUNTED[0]


def in_a_global_variable(self, group, state):
    global AROUND
    AROUND += 1
    return AROUND


def _counter():
    counts = array("l", [0])

    def in_a_closure(self, group, state):
        counts[0] += 1
        return counts[0]

    return in_a_closure


in_a_closure = _counter()


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (in_a_global_list, r"test_trace_step\.COUNTED"),
        (in_a_global_variable, r"test_trace_step\.AROUND"),
        (in_a_closure, r"_counter\.<locals>\.in_a_closure\.counts"),
        (in_an_attribute, r"self\.calls"),
        (in_a_list, r"self\.counts"),
        (in_the_class, r"Counting\.calls"),
        (in_a_group, r"param_groups\[0\]\['k'\]"),
        (in_the_state, r"state\[\.\.\.\]\['k'\]"),
    ],
)
def test_an_optimizer_that_counts_in_python_is_refused_and_left_as_it_was(monkeypatch, count, name):
    monkeypatch.setattr(Counting, "count", count, raising=False)
    monkeypatch.setattr(Counting, "calls", 0)
    model = torch.nn.Linear(4, 2)
    optimizer = Counting(model.parameters(), lr=0.1)
    if count is in_a_list:
        optimizer.counts = [0]
    with pytest.raises(fxlab.TraceError, match=f"a step of Counting changes {name}, which is no tensor"):
        fxlab.trace_step(model, torch.ones(3, 4), loss=lambda output: output.sum(), optimizer=optimizer)
    assert optimizer.__dict__.get("counts", [0]) == [0]
    assert "calls" not in vars(optimizer)
    assert (Counting.calls, COUNTED, AROUND) == (0, [0], 0)
    assert in_a_closure.__closure__[0].cell_contents[0] == 0
    assert "k" not in optimizer.param_groups[0]
    assert not optimizer.state


class CountsItself(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(4, 2), 0
        self.generator = torch.Generator().manual_seed(1)


def by_an_attribute(self, x):
    self.calls += 1
    return self.linear(x) / self.calls


def by_a_global_list(self, x):
    COUNTED[0] += 1
    return self.linear(x) / COUNTED[0]


def by_python_s_random(self, x):
    return self.linear(x) * random.random()


def by_its_own_generator(self, x):
    return self.linear(x + torch.randn(x.shape, generator=self.generator))


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        (by_an_attribute, "calls"),
        (by_a_global_list, r"test_trace_step\.COUNTED"),
        (by_python_s_random, "the generator of random"),
        (by_its_own_generator, "generator"),
    ],
)
def test_no_loop_trains_by_the_step_of_a_model_that_counts_or_draws_in_python(monkeypatch, forward, name):
    monkeypatch.setattr(CountsItself, "forward", forward, raising=False)
    model = CountsItself()
    words = f"Each step changes {name} in Python"
    with pytest.warns(fxlab.TraceWarning, match=words):
        session = fxlab.Session(fxlab.trace_step(model, torch.ones(3, 4), loss=squared))
    assert session.verdict()
    with pytest.raises(ValueError, match=words):
        fxlab.steps.as_step(session)
    assert model.calls == COUNTED[0] == 0


HELD = torch.ones(2)


class HeldByLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, output):
        self.mean.lerp_(output.detach().mean(), 0.1)
        return squared(output - self.mean)


class HeldByModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(4, 2), [torch.ones(2)]

    def forward(self, x):
        self.calls[0].add_(1)
        return self.linear(x) / self.calls[0]


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (HeldByModel(), squared),
        (nn.Linear(4, 2), HeldByLoss()),
        (nn.Linear(4, 2), lambda output: squared(output * HELD.add_(1))),
    ],
    ids=["model", "loss", "global"],
)
def test_a_write_into_a_tensor_that_is_no_input_is_refused(model, loss):
    words = r"writes into a tensor that is no input of it \(at .*test_trace_step\.py:\d+: "
    with pytest.raises(fxlab.TraceError, match=words):
        fxlab.trace_step(model, torch.ones(3, 4), loss=loss)
    assert HELD.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (
            lambda self, group: setattr(self, "scale", self.scale * 2),
            r"changes self\.scale, which is no tensor in",
        ),
        (
            lambda self, group: group.update(k=group["k"] * 2),
            r"param_groups\[0\]\['k'\], which is no tensor in",
        ),
        (lambda self, group: self.scale.mul_(2), "writes into a tensor that is no input"),
    ],
    ids=["attribute", "group", "in place"],
)
def test_a_tensor_that_an_optimizer_holds_elsewhere_than_in_its_state_stays_as_it_is(count, words):
    class Scaled(SGD):
        scale = None

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                count(self, group)
                for p in group["params"]:
                    p.sub_(p.grad * self.scale * group["k"])

    model = nn.Linear(4, 2)
    optimizer = Scaled(model.parameters(), lr=0.1)
    optimizer.scale = optimizer.param_groups[0]["k"] = torch.ones(2)[0]
    with pytest.raises(fxlab.TraceError, match=words):
        fxlab.trace_step(model, torch.ones(3, 4), loss=squared, optimizer=optimizer)
    assert optimizer.scale == optimizer.param_groups[0]["k"] == 1


def test_a_count_on_which_nothing_depends_is_no_obstacle(monkeypatch):
    def forward(self, x):
        self.calls += 1
        return self.linear(x)

    monkeypatch.setattr(CountsItself, "forward", forward, raising=False)
    model = CountsItself()
    train = fxlab.steps.as_step(fxlab.Session(fxlab.trace_step(model, torch.ones(3, 4), loss=squared)))
    train(torch.ones(3, 4))
    assert train.graphs == 1


def test_a_hook_after_the_gradient_is_refused():
    model = torch.nn.Linear(4, 2)
    model.bias.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(fxlab.TraceError, match="bias has a hook that runs after its gradient"):
        fxlab.trace_step(model, torch.ones(3, 4), loss=squared)
