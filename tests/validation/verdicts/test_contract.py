"""What a caller can tell of a call beside the numbers in its outputs."""

import contextlib
import dataclasses

import pytest
import torch
from planted import Of
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fxlab
from fxlab import Session, from_callable, verdict
from fxlab.validation import Reference
from fxlab.validation.arguments import as_graph
from fxlab.validation.verdicts import runs_compared
from fxlab.validation.verdicts.runs import gradients_flow


class OfAll(Of):
    """Computes a function of all inputs."""

    def forward(self, *inputs):
        return self.function(*inputs)


def judged(original, transformed, *inputs, **options):
    return verdict(
        OfAll(original), OfAll(transformed), inputs or (torch.arange(6.0).reshape(2, 3),), **options
    )


def test_a_verdict_and_an_evaluation_are_true_where_the_models_agree():
    same, other = judged(torch.sin, torch.sin), judged(torch.sin, torch.cos)
    assert same
    assert not other
    session = Session(fx.symbolic_trace(nn.ReLU()), torch.randn(3), passes=[from_callable(negated, name="n")])
    assert session.evaluate([torch.randn(3)])
    session.apply("n")
    assert not session.evaluate([torch.randn(3)])
    assert not session._internals.known_verdict()
    assert session._internals.known_verdict() is session._internals.known_verdict()


def negated(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.neg, output.args),)
    graph_module.recompile()


def first_and_rest(x):
    x[1:] = 0
    return x


SHARING = {
    "an input": (lambda x: x.clone(), lambda x: x, "the output shares memory with input x"),
    "a view of an input": (lambda x: x.t() * 1, lambda x: x.t(), "the output shares memory with input x"),
    "no input any more": (
        lambda x: x[1:],
        lambda x: x[1:].clone(),
        "the output shares no memory with input x",
    ),
    "another output": (
        lambda x: (x.sin(), x.sin()),
        lambda x: (x.sin(),) * 2,
        "output 0 shares memory with output 1",
    ),
    "no other output": (
        lambda x: (lambda y: {"all": y, "part": y[0]})(x.sin()),
        lambda x: {"all": x.sin(), "part": x[0].sin()},
        "output all shares no memory with output part",
    ),
    "an input that it writes": (
        lambda x: first_and_rest(x).clone(),
        first_and_rest,
        "the output shares memory with input x",
    ),
}


@pytest.mark.parametrize(("before", "after", "words"), SHARING.values(), ids=SHARING)
def test_memory_that_outputs_share_is_a_part_of_the_call(before, after, words):
    x = torch.arange(6.0).reshape(2, 3)
    found = judged_with_x(before, after, x)
    assert found.status == "different"
    assert words in found.reason
    assert judged_with_x(before, before, x)
    assert judged_with_x(after, after, x)


def judged_with_x(before, after, x):
    return verdict(Of(before), Of(after), x)


def test_a_model_that_returns_nothing_differs_from_one_that_does():
    for before, after in ((torch.neg, lambda x: None), (lambda x: None, torch.neg)):
        assert judged_with_x(before, after, torch.ones(3)).status == "different"


def test_parts_of_one_tensor_that_do_not_overlap_are_as_good_as_copies():
    def apart(x):
        y = x.sin()
        return y[:, ::2], y[:, 1::2], y[:0]

    assert judged(lambda x: tuple(part.clone() for part in apart(x)), apart)


class Holds(nn.Module):
    def __init__(self, copies, name="weight", tensor=None):
        super().__init__()
        self.name, self.copies = name, copies
        self.register_buffer(name, torch.ones(3) if tensor is None else tensor)

    def forward(self, x):
        held = getattr(self, self.name)
        return held.clone() if self.copies else held.view(-1)


def test_an_output_in_the_memory_of_a_weight_is_named_with_it():
    found = verdict(Holds(True), Holds(False), torch.ones(1))
    assert "the output shares memory with state model.weight; the original's does not" in found.reason
    assert found.compared == 3
    weight = torch.ones(3)
    assert verdict(Holds(False, "weight", weight), Holds(False, "other", weight), torch.ones(1))
    # What a pass holds in another form stands for what it was made of.
    assert verdict(Holds(False, "weight"), Holds(False, "other"), torch.ones(1))


def test_bisecting_names_the_pass_that_hands_out_the_input():
    def without_clones(graph_module):
        for node in graph_module.graph.find_nodes(op="call_method", target="clone"):
            node.replace_all_uses_with(node.args[0])
        graph_module.recompile()

    passes = [fxlab.RemoveIdentities(), from_callable(without_clones, name="without clones")]
    session = Session(fx.symbolic_trace(Of(lambda x: x.clone())), torch.ones(3), passes=passes)
    session.apply(passes[1])
    found = fxlab.bisect(session)
    assert found.pass_.name == "without clones"
    assert "shares memory with input x" in found.reason


@pytest.mark.parametrize("given", ["the same", "a part"])
def test_inputs_that_overlap_are_given_so(given):
    def before(x, y):
        kept = y * 3
        x.add_(1)
        return kept

    def after(x, y):
        x.add_(1)
        return y / (1 / 3)

    def pair():
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
        return (x, x) if given == "the same" else (x[:3], x[1:])

    assert judged(before, after, torch.randn(3), torch.randn(3))
    found = judged(before, after, *pair())
    assert found.status == "different"
    assert "a different function" in found.reason  # in float64 they overlap too


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    factor: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, factor):
        self.second = self.first * factor


class Named(dict):
    pass


def with_attribute(x, **attributes):
    result = Named(first=x.sin())
    vars(result).update(attributes)
    return result


FACTS = {
    "class": (lambda x: [x.sin()], lambda x: (x.sin(),), "type of output: it is of class tuple"),
    "text": (lambda x: {"a": x.sin(), "b": "x"}, lambda x: {"a": x.sin(), "b": "y"}, "value of b: it is 'y'"),
    "nothing": (lambda x: (x.sin(), None), lambda x: (x.sin(),), "value of 1: only the original has it"),
    "order": (
        lambda x: {"a": x.sin(), "b": x.cos()},
        lambda x: {"b": x.cos(), "a": x.sin()},
        "value of output: its keys are ('b', 'a')",
    ),
    "number": (
        lambda x: (x.sin(), 2),
        lambda x: (x.sin(), torch.tensor(2)),
        "type of 1: it is of class Tensor",
    ),
    "dtype": (
        lambda x: (x.sin(), x.dtype),
        lambda x: (x.sin(), torch.half),
        "value of 1: it is torch.float16",
    ),
    "attribute": (
        lambda x: with_attribute(x, step=1),
        lambda x: with_attribute(x, step=2),
        "value of step: it is 2, the original's 1",
    ),
    "tensor in an attribute": (
        lambda x: with_attribute(x, extra=x.cos()),
        with_attribute,
        "extra: only the original has it",
    ),
    "no field": (lambda x: Pair(x.sin(), 2.0), lambda x: Pair(x.sin(), 3.0), "second: a different function"),
}


@pytest.mark.parametrize(("before", "after", "words"), FACTS.values(), ids=FACTS)
def test_classes_and_plain_values_are_a_part_of_the_output(before, after, words):
    found = judged(before, after)
    assert found.status == "different"
    assert words in found.reason
    assert words.partition(": ")[0] in found.table.index
    assert judged(before, before)
    assert judged(after, after)


def test_random_numbers_that_change_nothing_are_a_difference():
    def draws(x):
        return x.sin() + 0 * torch.rand(1)

    assert "draws random numbers, the original draws none" in judged(torch.sin, draws).reason
    assert "the transformed model draws none" in judged(draws, torch.sin).reason
    more = judged(draws, lambda x: draws(x) + 0 * torch.rand(2, 1)).reason
    assert "only the transformed model draws uniform (0.0, 1.0) of shape (2, 1) in node 'model'" in more
    assert judged(draws, draws)


def test_other_strides_are_a_note():
    found = judged(torch.sin, lambda x: x.sin().t().contiguous().t())
    assert found.status == "same bits"
    assert found.notes == ("output: the strides are (1, 2), the original's (3, 1)",)
    assert found.notes[0] in str(found)
    # The stride of a dimension of size one is nothing that can be told.
    assert not judged(torch.sin, lambda x: x.sin().t().contiguous().t(), torch.ones(3, 1)).notes


class Normed(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.inner = nn.Sequential(nn.BatchNorm1d(3) if norm is None else norm)

    def forward(self, values):
        return self.inner(values)


def test_state_is_the_same_wherever_its_module_is():
    original = nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    found = verdict(original, Normed(original), x)
    assert found.status == "same bits"
    assert "written state model.running_mean" in found.table.index
    other = nn.BatchNorm1d(3, momentum=0.5)
    other.running_mean, other.running_var = original.running_mean, original.running_var
    assert not verdict(original, Normed(other), x)
    assert not verdict(original, Normed(), x)  # which has statistics of its own


def test_inputs_that_a_model_does_not_take_are_refused_in_words():
    with pytest.raises(ValueError, match="original: the GraphModule does not run on these inputs"):
        verdict(Of(torch.sin), Of(torch.sin), (torch.ones(1), torch.ones(1)))
    several = OfAll(lambda *inputs: inputs[1].mul_(2))
    found = verdict(several, OfAll(lambda *inputs: inputs[1].add_(inputs[1])), (torch.ones(1), torch.ones(1)))
    assert [*found.table.index] == ["output", "written input inputs_1"]


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def frozen(model, name="0"):
    model.get_submodule(name).requires_grad_(False)
    return model


def test_a_layer_that_trains_in_one_model_alone_is_a_difference_of_gradients():
    x = torch.randn(2, 4)
    assert verdict(layers(), frozen(layers()), x)
    for pair in ((layers(), frozen(layers())), (frozen(layers()), layers())):
        found = verdict(*pair, x, gradients=True)
        assert found.status == "different"
        assert "gradient of model.0.weight: only the" in found.reason
    copy = layers()
    moved = nn.Sequential(nn.Sequential(frozen(copy)[0], copy[1]), copy[2])
    assert "gradient of model.0.weight" in verdict(layers(), moved, x, gradients=True).table.index


def test_an_output_that_gradients_flow_from_in_one_model_alone_is_a_difference_of_gradients():
    x = torch.randn(2, 4)
    model = layers()
    both, cut = Of(lambda x: (model(x), x * 2)), Of(lambda x: (model(x), x.detach() * 2))
    assert verdict(both, cut, x)
    found = verdict(both, cut, x, gradients=True)
    assert found.outputs["1"].reason == "no gradients flow from it; the original's do"


def changed_setting(name):
    """Return a context in which torch is set otherwise."""
    return {
        "precision": lambda: setting(torch.set_float32_matmul_precision, "high", "highest"),
        "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
        "dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        "autocast": lambda: torch.autocast("cpu"),
        "mode": Coarse,
    }[name]()


@contextlib.contextmanager
def setting(function, value, usual):
    function(value)
    try:
        yield
    finally:
        function(usual)


class Coarse(TorchDispatchMode):
    """Rounds the operands of products, as a lower precision of a device does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
            args = [a.bfloat16().float() if a.dim() == 2 and a.dtype == torch.float32 else a for a in args]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["precision", "deterministic", "dtype", "autocast", "mode"])
def test_what_was_run_under_other_settings_is_run_again_and_settings_are_told(name):
    session = Session(layers().eval(), torch.randn(64, 4))
    session.apply("fuse-bias-in-linear")
    first = session.verdict()
    assert first
    assert "run with" not in first.reason
    with changed_setting(name):
        under = session.verdict()
        assert under, under
        assert "; run with " in under.reason
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs)
        session.revert()
        session.apply("fuse-bias-in-linear")
        again = session.verdict()
        assert again, again
    assert session.verdict().reason == first.reason
    assert name == "mode" or under.settings != first.settings


def test_a_reference_runs_again_only_under_other_settings():
    model, runs = layers(), []
    reference = Reference(model, torch.randn(2, 4))
    model.register_forward_hook(lambda *_: runs.append(1))
    for _ in range(2):
        assert reference.verdict(layers())
    assert len(runs) == 1
    with changed_setting("autocast"):
        assert reference.verdict(layers())
    assert len(runs) == 2


def cut(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.detach, output.args),)
    graph_module.recompile()


def test_an_output_from_which_no_gradients_would_flow_any_more_is_a_note():
    session = Session(fx.symbolic_trace(layers()), torch.randn(2, 4), passes=[from_callable(cut, name="cut")])
    session.apply("cut")
    found = session.verdict()
    assert found.status == "same bits"
    assert found.notes == ("output: no gradients would flow from it; the original's do",)
    assert found.notes[0] in found.reason
    opposite = verdict(session.graph_module, session.original, session.inputs)
    assert opposite.notes == ("output: gradients would flow from it; the original's do not",)
    assert not session.verdict(gradients=True)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda layer, x: layer(x).data,
        lambda layer, x: (layer(x).detach() + 1).relu(),
        lambda layer, x: x * layer.weight.shape[0],
        lambda layer, x: x.sin(),
    ],
)
def test_gradients_are_told_to_flow_as_they_do(function):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return {"out": function(self.layer, x), "whole": self.layer(x), "one": 1}

    x = torch.randn(2, 4)
    for given in (x, x.clone().requires_grad_()):
        graph = fxlab.symbolic_trace(Model(), x)
        expected = {n: t.requires_grad for n, t in graph(given).items() if isinstance(t, torch.Tensor)}
        assert gradients_flow(graph, {"x": given}) == expected
        # Of a model that is one node nothing is known.
        assert gradients_flow(as_graph(Model(), x), {"x": given}) == {}


def test_a_verdict_says_that_a_device_without_float64_was_judged_on_the_cpu(monkeypatch):
    monkeypatch.setattr(runs_compared, "has_float64", lambda device: False)
    found = judged(lambda x: x / 3, lambda x: x * (1 / 3))
    assert found.reason.endswith("; judged on the CPU, as cpu has no float64")
    assert "judged on" not in judged(torch.sin, torch.sin).reason
