"""A verdict on several inputs, of which the worst decides."""

import math

import pytest
import torch
from planted import Of, traced
from torch import fx, nn
from zoo import tiny

import fxlab
from fxlab import verdict

IDS = torch.randint(1, 30, (2, 6), generator=torch.Generator().manual_seed(0))
X = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)) / 10


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def graph_of(function, *names):
    """Return a graph that calls a function as it is, with inputs of these names."""
    graph = fx.Graph()
    graph.output(graph.call_module("calls", kwargs={name: graph.placeholder(name) for name in names}))
    return fx.GraphModule({"calls": Calls(function)}, graph)


def judged(a, b, inputs, **options):
    if isinstance(inputs, torch.Tensor):
        inputs = {"x": inputs}
    return verdict(graph_of(a, *inputs), graph_of(b, *inputs), inputs, **options)


@pytest.mark.parametrize(
    ("mistake", "inputs", "on"),
    [
        (lambda x: x + 1 if len(x) >= 9 else x.clone(), X, "batch of 17"),
        (lambda x: x + (torch.arange(x.shape[1]) > 12)[:, None], X, "length 25"),
        (lambda x: x + torch.arange(x.shape[1]).to(torch.int8).lt(0)[:, None], X, "length 130"),
        (lambda x: x + (torch.arange(x.shape[1]) > 12), IDS, "length 25"),
        (lambda x: x.clamp(-50, 50), X, "very large values"),
    ],
    ids=["batch", "length", "positions-in-8-bits", "length-of-text", "magnitude"],
)
def test_mistakes_that_the_given_inputs_do_not_reach_are_found(mistake, inputs, on):
    assert judged(torch.clone, mistake, inputs).status == "same bits"
    found = judged(torch.clone, mistake, inputs, variants=True)
    assert not found.agrees
    assert not found.by_inputs[on].agrees


def test_a_softmax_without_its_maximum_is_found():
    def quotient(x):
        return x.exp() / x.exp().sum(-1, keepdim=True)

    assert judged(lambda x: x.softmax(-1), quotient, X).agrees
    assert not judged(lambda x: x.softmax(-1), quotient, X, variants=True).agrees


def test_a_mask_that_is_read_from_its_end_is_found_by_padding_on_the_left():
    inputs = {"x": X, "mask": torch.ones(2, 6, dtype=torch.long)}

    def mean(x, mask):
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def mean_of_first(x, mask):
        return torch.stack([row[: int(n)].sum(0) / n for row, n in zip(x, mask.sum(1), strict=True)])

    found = judged(mean, mean_of_first, inputs, variants=True)
    assert [name for name, one in found.by_inputs.items() if not one.agrees] == ["left half masked"]


def test_token_ids_that_were_not_given_are_tried():
    model = nn.Sequential(nn.Embedding(40, 3))
    graph = fx.symbolic_trace(model)
    wrong = fx.symbolic_trace(nn.Sequential(nn.Embedding(40, 3)))
    wrong.load_state_dict(graph.state_dict())
    with torch.no_grad():
        wrong.get_parameter("0.weight")[39] = 0  # an id that is not among those given
    assert verdict(graph, wrong, IDS).agrees
    found = verdict(graph, wrong, IDS, variants=True)
    assert not found.agrees
    assert found.decided_by == "other tokens"


def test_the_answer_says_how_many_inputs_decided_and_which_were_refused():
    def narrow(x):
        if len(x) > 5:
            raise ValueError("too many")
        return x

    found = judged(narrow, lambda x: x, X, variants=True)
    assert found.status == "same bits"
    count = len(found.by_inputs)
    assert found.reason == (
        f"every bit of the output is the same (on all {count} inputs; not compared, as the original refuses "
        "them: batch of 17)"
    )
    assert "too many" in found.not_compared["batch of 17"]
    found = judged(lambda x: x, narrow, X, variants=True)
    assert found.decided_by == "batch of 17"
    assert found.reason.startswith("transformed: the GraphModule does not run on these inputs: too many")
    assert f"(on 'batch of 17', the worst of {count + 1} inputs)" in found.reason


@pytest.mark.parametrize(
    "several",
    [[{"x": X}, {"x": X + 20}], {"small": {"x": X}, "large": {"x": X + 20}}, iter([{"x": X}, {"x": X + 20}])],
    ids=["list", "mapping", "iterator"],
)
def test_inputs_of_ones_own(several):
    a, b = graph_of(torch.clone, "x"), graph_of(lambda x: x.clamp(max=10), "x")
    found = verdict(a, b, variants=several)
    assert found.decided_by in ("inputs 2", "large")
    assert len(found.by_inputs) == 2


def test_inputs_on_which_nothing_can_be_compared_decide_nothing_and_are_named():
    a, b = graph_of(torch.clone, "x"), graph_of(lambda x: x * 1, "x")
    found = verdict(a, b, variants={"numbers": {"x": X}, "none": {"x": X * math.nan}})
    assert (found.status, found.decided_by) == ("same bits", "numbers")
    assert found.not_compared.keys() == {"none"}
    assert found.reason.endswith("(on all 1 inputs; with nothing to compare: none)")
    assert verdict(a, b, variants=[{"x": X}, {"x": X + 1}]).not_compared == {}


def test_sessions_and_bisecting_take_variants():
    class Careless(fxlab.ChangeTrueDivToMulByInverse):
        def rewrite(self, candidate, edit):
            node = super().rewrite(candidate, edit)
            edit.read_instead(node, edit.insert_before(node.next, "call_method", "clamp", (node, -9, 9)))
            return node

    session = fxlab.Session(fx.symbolic_trace(lambda x: x / 2), X, passes=[Careless()])
    session.apply("careless")
    assert session.verdict().agrees
    assert not session.verdict(variants=True).agrees
    assert fxlab.bisect(session) is None
    assert fxlab.bisect(session, variants=True).pass_.name == "careless"


def test_what_are_no_inputs_is_said_in_words():
    graph = graph_of(torch.clone, "x")
    with pytest.raises(TypeError, match="variants: expected True, a mapping of inputs by name"):
        verdict(graph, graph, {"x": X}, variants=3)
    with pytest.raises(ValueError, match="variants: there are no inputs in it"):
        verdict(graph, graph, variants=[])
    with pytest.raises(ValueError, match="inputs: there are none that the original runs on"):
        verdict(graph, graph, variants=[{"y": X}, {"z": X}])


@pytest.mark.parametrize(
    ("mistake", "on"),
    [
        (lambda x: x * 1.1 if x.shape[-1] % 2 else x * 1, "width 9"),
        (lambda x: x * (1 + (torch.arange(x.shape[-2]) > 8)[:, None]), "size 15 x 15"),
        (lambda x: x.nan_to_num(), "a NaN"),
    ],
    ids=["odd", "height", "nan"],
)
def test_other_sizes_of_images_and_nan_are_tried(mistake, on):
    images = {"x": torch.randn(2, 3, 8, 8)}
    assert judged(lambda x: x * 1, mistake, images)
    found = judged(lambda x: x * 1, mistake, images, variants=True)
    assert not found.agrees
    assert not found.by_inputs[on].agrees


def test_parameters_that_a_function_closes_over_are_no_false_alarm():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3).eval()
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)

    def by_hand(x):
        scale = (norm.running_var + norm.eps).rsqrt() * norm.weight
        return x * scale[:, None, None] + (norm.bias - norm.running_mean * scale)[:, None, None]

    x = torch.randn(2, 3, 6, 6)
    closed = Of(lambda x: norm(x))
    found = verdict(closed, Of(by_hand), x, variants=True)
    assert found, found
    assert not verdict(closed, Of(lambda x: by_hand(x) * 1.0001), x)


@pytest.mark.slow
def test_a_model_agrees_with_its_trace_on_all_inputs():
    graph, inputs = traced("bert")
    found = verdict(tiny("bert"), graph, inputs, variants=True)
    assert {str(one.status) for one in found.by_inputs.values()} == {"same bits"}
    assert [*found.by_inputs] == [
        *("as given", "other values", "batch of 1", "batch of 5", "batch of 17"),
        *("length 6", "length 23", "length 49", "length 130"),
        *("half masked", "left half masked", "masked by row"),
    ]
    assert found.not_compared == {}


def test_inputs_without_a_float64_run_leave_the_verdict_to_the_others():
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    whole = torch.ones(8, 8, dtype=torch.int32)
    both = {"x": x, "y": x.view(torch.int32)}

    def judged_with(factor):
        models = (lambda x, y: x + y * 1e-9, lambda x, y: (y * 1e-9 + x) * 3 / factor)
        return judged(*models, {"x": x, "y": whole}, variants={"overlapping": both})

    found = judged_with(3.01)
    assert found.status == "different"
    assert "overlap in memory" in found.not_compared["overlapping"]
    assert "with nothing to compare: overlapping" in judged_with(3).reason


def test_torch_writes_no_traceback_of_inputs_that_a_graph_refuses(capfd):
    graphs = [fx.symbolic_trace(lambda x, by=by: x.chunk(2)[1] * by) for by in (2, 3)]
    for options in ({}, {"gradients": True}):
        found = verdict(*graphs, torch.ones(4, 3), variants={"one": torch.ones(1, 3)}, **options)
        assert "tuple index out of range" in found.not_compared["one"]
    assert capfd.readouterr().err == ""
