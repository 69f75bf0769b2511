"""A pattern and its replacement, as a transformation."""

import pytest
import torch
from exactness import Apply, assert_close, assert_is, check, snapshot, traced
from torch import fx, nn
from torch.nn import functional as F

import fxlab
from fxlab import from_pattern


class Attention(nn.Module):
    """Attention as written by hand, twice."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for _ in range(2):
            scores = torch.matmul(self.query(x), self.key(x).transpose(-2, -1)) * 0.125
            x = torch.matmul(torch.softmax(scores, dim=-1), self.value(x)) + x
        return torch.relu(x)


def by_hand(query, key, value):
    scores = torch.matmul(query, key.transpose(-2, -1)) * 0.125
    return torch.matmul(torch.softmax(scores, dim=-1), value)


def fused(query, key, value):
    """Attention in one kernel."""
    return F.scaled_dot_product_attention(query, key, value, scale=0.125)


def relu(x):
    return torch.relu(x)


def gelu(x):
    return F.gelu(x)


def to_sdpa():
    return from_pattern(by_hand, fused, name="to-sdpa", preserves_computation=True)


X = torch.randn(2, 5, 8)


def test_a_pattern_is_replaced_marked_and_taken_back():
    gm = check(to_sdpa(), Attention(), X, marked=2)
    assert [n.target for n in to_sdpa().get_transformed_nodes(gm)] == [F.scaled_dot_product_attention] * 2


def test_explain_names_the_nodes_that_would_go():
    gm = traced(Attention())
    before = snapshot(gm)
    frame = to_sdpa().explain(gm)
    assert {"matmul", "softmax", "matmul_1"} <= set(frame.index)
    assert_is(gm, before)


def test_literals_are_compared():
    halve = from_pattern(lambda x: x / 2, lambda x: x * 2, name="halve")
    for traced_by, count in ((lambda x: x / 2, 1), (lambda x: x / 3, 0)):
        gm = fx.symbolic_trace(traced_by)
        assert len(halve.get_transformed_nodes(halve(gm))) == count


def test_modules_of_a_replacement_are_put_in_and_taken_out():
    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = nn.GELU()

        def forward(self, x):
            return self.activation(x)

    gm = traced(Attention())
    before = snapshot(gm)
    replacement = fx.symbolic_trace(Replacement())
    transformation = from_pattern(fx.symbolic_trace(relu), replacement, name="relu-to-gelu")
    transformation(gm)
    assert isinstance(gm.activation, nn.GELU)
    assert_is(transformation(gm, reverse=True), before)


def reads_a_number(x):
    return torch.relu(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("pattern", "replacement", "error", "message"),
    [
        ("relu", gelu, TypeError, "pattern: expected a function, got a str"),
        (relu, None, TypeError, "replacement: expected a function, got a NoneType"),
        (relu, torch.add, ValueError, "replacement: add cannot be traced"),
        (reads_a_number, gelu, ValueError, "pattern: reads-a-number cannot be traced"),
        (relu, by_hand, ValueError, "expected to take 1 and return 1 values"),
        (relu, lambda x: (x, x), ValueError, "takes 1 and returns 2"),
    ],
)
def test_what_cannot_be_a_pattern_is_refused(pattern, replacement, error, message):
    with pytest.raises(error, match=message):
        from_pattern(pattern, replacement)


def test_a_match_may_be_in_a_list_that_the_next_one_is_given():
    def cat(tensors, dim):
        return torch.cat(tensors, dim)

    def concat(tensors, dim):
        return torch.concat(tensors, dim)

    def nested(_, x):
        inner = torch.cat([x, torch.cat([x, x], 1), x * 2], 1)
        return torch.cat([torch.cat([inner, inner], 0), torch.cat([inner, inner], 0)], 0), inner.relu()

    x = torch.randn(2, 3)
    gm = check(from_pattern(cat, concat), Apply(nested), x, marked=5)
    assert not gm.graph.find_nodes(op="call_function", target=torch.cat)
    assert len(gm.graph.nodes) == len(traced(Apply(nested)).graph.nodes)


def test_what_a_replacement_stands_for_is_said_to_be_replaced():
    assert from_pattern(relu, gelu).explain(traced(Attention())).reason.tolist() == ["would be replaced"]


@pytest.mark.parametrize("pattern", [relu, lambda x: torch.relu(x) * 2], ids=["one call", "two calls"])
@pytest.mark.parametrize("same", [True, False])
def test_a_replacement_is_computed_before_what_it_reads_is_written(pattern, same):
    class Writes(nn.Module):
        def forward(self, x, y):
            before = torch.relu(x)
            y.add_(1)
            return before * 2 + torch.relu(y) * 2

    gm = traced(Writes())
    replaced = from_pattern(pattern, lambda x: pattern(x) + 0)
    assert set(replaced.explain(gm).code) <= {"", "may-be-written-in-between"}
    assert len(replaced.get_transformed_nodes(replaced(gm))) > 0
    x = torch.randn(4)
    given, others = ((x.clone(),) * 2, (x.clone(),) * 2) if same else ((x, x + 1), (x.clone(), x + 1))
    assert torch.equal(gm(*given), Writes()(*others))


@pytest.mark.parametrize("function", [F.silu, F.gelu])
def test_a_function_of_torch_is_a_replacement_as_it_is(function):
    gm = from_pattern(lambda x: x * torch.sigmoid(x), function)(fx.symbolic_trace(lambda x: x * x.sigmoid()))
    assert_close(gm(X), function(X))


def test_a_place_around_a_match_is_no_near_miss():
    to_silu = from_pattern(lambda x: x * torch.sigmoid(x), F.silu)
    table = to_silu.explain(fx.symbolic_trace(lambda x: (x * x.sigmoid()) * x.cos()))
    assert table.matched.tolist() == [True, True]


@pytest.mark.parametrize(
    ("pattern", "place", "at", "words"),
    [
        (
            lambda x, y: torch.tanh(x / y) + 1,
            lambda x, y: torch.tanh(y.cos() / x) + x,
            "add",
            "operand of add is x",
        ),
        (lambda x, y: (x / 8.0 + y).relu(), lambda x, y: (x + y).relu(), "x", "the pattern has div there"),
        (lambda x, y: x.exp() * y, lambda x, y: (x.cos() * 1).reshape(2, 4) * y, "cos", "has exp there"),
        (lambda x: x.exp().sum(-1), lambda x, y: (x.exp() + 0).expand(2, 4).sum(0), "sum_1", "dim is (0)"),
    ],
)
def test_divisions_and_identities_do_not_hide_the_misfit(pattern, place, at, words):
    traced = fxlab.symbolic_trace(place, (torch.ones(2, 4), torch.ones(2, 4)))
    nearest = fxlab.from_pattern(pattern, pattern, name="p").attempts(traced)[0]
    assert nearest.at == at
    assert words in nearest.reason


def test_identities_are_seen_through_where_the_shape_and_dtype_are_known_to_stay():
    pass_ = fxlab.from_pattern(lambda x: x.exp().sum(-1), lambda x: x.exp().sum(dim=-1), name="p")

    def kept(x):
        return ((x.exp() * 1.0 + 0).reshape(2, 4).expand(2, 4) / 1).sum(-1)

    def changed(x):
        return (x.exp().reshape(4, 2) * 1.0).sum(-1)

    for place, count in ((kept, 1), (changed, 0)):
        x = torch.randn(2, 4)
        session = fxlab.Session(fxlab.symbolic_trace(place, x), x, passes=[pass_])
        session.apply("p")
        assert session.changes("p").rewrites == count
        assert session.verdict().agrees


@pytest.mark.parametrize("reads_first", [True, False])
def test_the_factor_that_reads_the_other_is_the_misfit_in_either_order(reads_first):
    class Gated(torch.nn.Module):
        def forward(self, x):
            y = x.cos()
            return torch.tanh(y) * y * 1.5 if reads_first else y * torch.tanh(y) * 1.5

    silu = fxlab.from_pattern(lambda x, s: x * torch.sigmoid(x) * s, lambda x, s: x * s, name="silu")
    (reason,) = fxlab.Session(Gated(), torch.randn(2, 4), passes=[silu]).why_not("silu")["reason"]
    assert reason.endswith("tanh is tanh, and the pattern has sigmoid there")


def test_a_sum_that_others_read_as_well_is_opened():
    def summed(a, b, c):
        both = a + b
        return torch.relu(both + c), both * 2

    gm = fxlab.symbolic_trace(summed, (X, X, X))
    (match,) = fxlab.rewriting.find_matches(gm, lambda x, y, z: torch.relu(x + y + z))
    assert {match[name].name for name in "xyz"} == {"a", "b", "c"}


IMAGES = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        (lambda x: F.max_pool2d(x, 2), nn.MaxPool2d(2)),
        (lambda x: F.max_pool2d(x, kernel_size=2, stride=2), nn.MaxPool2d(2)),
        (lambda x: F.adaptive_max_pool2d(x, 2), nn.AdaptiveMaxPool2d((2, 2))),
        (lambda x: F.avg_pool2d(x, 2), nn.AvgPool2d(2)),
        (lambda x, size: F.max_pool2d(x, size, size), nn.MaxPool2d(2)),
        (lambda x: F.softplus(x), nn.Softplus()),
        (lambda x: F.pad(x, (1, 1)), nn.ZeroPad1d(1)),
        (lambda x: F.pad(x, (1, 1, 1, 1), value=2), nn.ConstantPad2d(1, 2.0)),
        (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), nn.ReflectionPad2d(1)),
        (lambda x: torch.unflatten(x, -1, (2, 4)), nn.Unflatten(-1, (2, 4))),
    ],
)
def test_a_function_is_found_in_its_module_with_the_same_settings(pattern, module):
    model = nn.Sequential(module)
    for graph_module in (fxlab.symbolic_trace(model, IMAGES), fx.symbolic_trace(model)):
        assert len(fxlab.rewriting.find_matches(graph_module, pattern)) == 1


@pytest.mark.parametrize("module", [nn.ReplicationPad2d(1), nn.ZeroPad2d(2), nn.ConstantPad2d(1, 2.0)])
def test_a_function_is_not_found_in_its_module_with_other_settings(module):
    graph_module = fxlab.symbolic_trace(nn.Sequential(module), IMAGES)
    for pattern in (lambda x: F.pad(x, (1, 1, 1, 1)), lambda x: F.pad(x, (1, 1, 1, 1), "reflect")):
        assert not fxlab.rewriting.find_matches(graph_module, pattern)


class Called(nn.Module):
    """Calls a module with the input, parts of it, and settings."""

    def __init__(self, module, *others, **settings):
        super().__init__()
        self.module, self.others, self.settings = module, others, settings

    def forward(self, x):
        return self.module(x, *(x[each] for each in self.others), **self.settings)


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        (nn.Linear(3, 3), nn.Linear(8, 8)),
        (nn.GELU(), nn.GELU(approximate="tanh")),
        (nn.LayerNorm(3), nn.LayerNorm(8)),
        (nn.BatchNorm1d(3), nn.BatchNorm1d(5).eval()),
        (nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(1)),
        (nn.ConvTranspose1d(3, 3, 1), nn.ConvTranspose1d(5, 3, 1)),
        (nn.LSTM(3, 3), nn.LSTM(8, 4)),
        (nn.MultiheadAttention(4, 1), Called(nn.MultiheadAttention(8, 2), ..., ..., need_weights=False)),
    ],
)
def test_a_module_stands_for_all_of_its_class(pattern, module):
    model = nn.Sequential(nn.Tanh(), module)
    for graph_module in (fxlab.symbolic_trace(model, X), fx.symbolic_trace(model)):
        (match,) = fxlab.rewriting.find_matches(graph_module, pattern)
        assert str(match.roots[0].target) in ("1", "1.module")


def test_a_module_is_found_with_the_inputs_of_the_pattern_alone():
    graph_module = fx.symbolic_trace(Called(nn.LSTM(8, 8), 0))
    assert fxlab.rewriting.find_matches(graph_module, nn.LSTM(8, 8))[0]["hx"]
    for other in (nn.Sequential(nn.LSTM(8, 8)), nn.GRU(8, 8)):
        assert not fxlab.rewriting.find_matches(graph_module, other)


class Clamped(nn.Module):
    def forward(self, x):
        return x.clamp(0.0, 6.0)


class BoundedByAModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.bound = nn.Hardtanh(0.0, 6.0)

    def forward(self, x):
        return self.bound(x)


def test_a_module_that_a_replacement_brings_along_is_confirmed_and_called():
    pass_ = fxlab.from_pattern(lambda x: x.clamp(0.0, 6.0), BoundedByAModule(), name="bounded")
    session = fxlab.Session(nn.Sequential(nn.Linear(8, 8), Clamped()), X, passes=[pass_])
    assert session.explain("bounded").matched.tolist() == [True]
    session.apply("bounded")
    assert isinstance(session.graph_module.get_submodule("bound"), nn.Hardtanh)
    assert session.verdict().status == "same bits"


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return torch.sigmoid(self.narrow(torch.sigmoid(self.wide(x))))


def test_a_condition_asks_for_shapes_of_a_plain_graph_on_the_inputs_of_its_session():
    even = {"an even width": lambda match: match.shape("x")[-1] % 2 == 0 and match.dtype("x").is_signed}
    halves = from_pattern(
        lambda x: torch.sigmoid(x), lambda x: (torch.tanh(x / 2) + 1) / 2, where=even, name="halves"
    )
    graph = fx.symbolic_trace(Rows())
    before = graph.code
    session = fxlab.Session(graph, torch.randn(2, 4), passes=[halves])
    session.apply("halves")
    assert session.changes("halves").rewrites == 1
    assert session.why_not("halves")["reason"].tolist() == ["an even width does not hold"]
    assert graph.code == before
    assert not any("val" in node.meta for node in graph.graph.nodes)
