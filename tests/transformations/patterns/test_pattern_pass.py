"""A pattern pass is a pass like any other: exact, reversible, and it says why it leaves a place alone."""

import hypothesis.strategies as st
import pytest
import torch
from exactness import assert_close, assert_is, shapes_known, snapshot
from hypothesis import HealthCheck, given, settings
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import FuseActivation, Session, from_pattern, symbolic_trace
from fxlab.rewriting import either

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions
X = torch.randn(3, 4)


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.function(self, x)


def traced(function, kind="trace", x=X):
    torch.manual_seed(0)
    model = Apply(function).eval()
    if kind == "trace":
        return fxlab.symbolic_trace(model, x)
    program = torch.export.export(model, (x,))
    return fxlab.from_exported(program.run_decompositions() if kind == "decomposed" else program)


def written_silu(x):
    return x * torch.sigmoid(x)


def silu(x):
    return F.silu(x)


def thrice(x):
    return (x.bfloat16() + 2) * 3


def to_silu(**options):
    return from_pattern(written_silu, silu, name="to-silu", preserves_computation=True, **options)


def matched(pass_, gm):
    table = pass_.explain(gm)
    return table[table.matched].candidate.nunique()


def codes(pass_, gm):
    table = pass_.explain(gm)
    return sorted({*table[~table.matched].code})


@pytest.mark.parametrize("kind", ["trace", "exported", "decomposed"])
def test_a_match_is_one_candidate_in_every_dialect(kind):
    gm = traced(lambda m, x: written_silu(x) + torch.sigmoid(x + 1) * (x + 1), kind)
    assert len(to_silu().candidates(gm)) in (1, 2)  # exported, x + 1 is computed twice
    expected = gm(X)
    session = Session(gm, X, passes=[to_silu()])
    session.apply("to-silu")
    assert session.verdict().agrees
    assert_close(session.graph_module(X), expected)


def test_one_of_two_matches_is_excluded():
    gm = traced(lambda m, x: written_silu(x) + written_silu(m.linear(x)))
    session = Session(gm, X, passes=[to_silu()])
    session.apply("to-silu")
    first, second = to_silu().candidates(gm)
    session.exclude("to-silu", first[-1])
    assert fxlab.rewriting.transformed_nodes(
        session.graph_module, original=session.original
    ).index.tolist() == [second[-1]]
    assert to_silu().only(first[0]).get_transformed_nodes(to_silu().only(first[0])(gm))[0].name == first[-1]


def between(m, x):
    y = x + 1
    gate = torch.sigmoid(y)
    y.add_(1.0)
    return y * gate


def after(m, x):
    y = x + 1
    result = y * torch.sigmoid(y)
    y.add_(1.0)
    return result + y


def result_written(m, x):
    return written_silu(x).add_(1)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["trace", "exported", "decomposed"])
@pytest.mark.parametrize(("function", "count"), [(between, 0), (after, 1), (result_written, 1)])
def test_writes_in_place_are_seen(function, count, kind):
    gm = traced(function, kind)
    assert matched(to_silu(), gm) == count
    session = Session(gm, X, passes=[to_silu()])
    session.apply("to-silu")
    assert session.verdict().agrees


@pytest.mark.parametrize(
    ("function", "pattern", "replacement", "code"),
    [
        (lambda m, x: torch.sigmoid(x) * x + torch.sigmoid(x).sum(), written_silu, silu, ""),
        (lambda m, x: (s := torch.sigmoid(x)) * x + s, written_silu, silu, "other-users"),
        (lambda m, x: x + 0.0, lambda x: x + 0.0, lambda x: x, "returned"),
        (lambda m, x: x.bfloat16() * 3 + 6, lambda x: x.bfloat16() * 3 + 6, thrice, ""),
        (lambda m, x: (x * 1.0).add_(2) + x, lambda x: x * 1.0, lambda x: x, "written-in-place"),
        (lambda m, x: torch.relu(x) + 1, lambda x: torch.relu(x), lambda x: F.gelu(x), "differs"),
        (lambda m, x: torch.relu(x), lambda x: torch.relu(x), lambda x: torch.cat((x, x)), "result-differs"),
        (lambda m, x: torch.relu(x), lambda x: torch.relu(x), lambda x: x.relu().half(), "result-differs"),
        (lambda m, x: torch.relu(x), lambda x: torch.relu(x), lambda x: x.view(5, 5), "replacement-fails"),
    ],
)
def test_what_is_not_exact_is_left_alone_with_a_code(function, pattern, replacement, code):
    gm = traced(function)
    pass_ = from_pattern(pattern, replacement, preserves_computation=True)
    assert codes(pass_, gm) == ([code] if code else [])
    before = snapshot(gm)
    if code:
        assert_is(pass_(gm), before)


def test_a_search_of_too_many_steps_finds_nothing(monkeypatch):
    gm = traced(lambda m, x: written_silu(x))
    monkeypatch.setattr("fxlab.transformations.patterns.matching._MOST_STEPS", 3)
    assert matched(to_silu(), gm) == 0


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        (lambda x: x.sum(0) / x.shape[0], []),
        (lambda x: x.sum(0) / 3, ["differs"]),
        (lambda x: x.view(3, -1).mean(0), ["other-sizes"]),
        (lambda x: x.unflatten(0, (1, 3)).mean((0, 1)), ["other-sizes"]),
    ],
)
def test_a_replacement_that_holds_for_the_traced_sizes_only_is_refused(replacement, expected):
    gm = symbolic_trace(nn.Sequential(Mean()), torch.randn(3, 4))
    pass_ = from_pattern(lambda x: x.mean(0), replacement, preserves_computation=True)
    assert codes(pass_, gm) == expected
    fixed = symbolic_trace(nn.Sequential(Mean()), torch.randn(3, 4), dynamic=False)
    assert codes(pass_, fixed) == []


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(0)


def written_inside(m, x):
    y = m.linear(x)
    return F.relu(y, inplace=True).mul_(2.0)


def written_outside(m, x):
    y = x + 1
    return torch.relu_(y) * 2.0 + y


@pytest.mark.often(3)
@pytest.mark.parametrize("kind", ["trace", "exported", "decomposed"])
@pytest.mark.parametrize(("function", "count"), [(written_inside, 1), (written_outside, 0)])
def test_a_write_into_a_value_of_the_match_alone_is_a_call(function, count, kind):
    def doubled(x, w, b):
        return torch.relu(F.linear(x, w, b)) * 2.0

    def folded(x, w, b):
        return torch.relu(F.linear(x, w * 2, b * 2))

    gm = traced(function, kind)
    session = Session(gm, X, passes=[from_pattern(doubled, folded, name="fold", preserves_computation=True)])
    assert matched(session.passes["fold"], gm) == count
    plain = from_pattern(
        lambda x: torch.relu(x) * 2.0, lambda x: torch.relu(x * 2.0), name="plain", preserves_computation=True
    )
    for pass_ in (session.passes["fold"], plain):
        session.apply(pass_)
        assert session.verdict().agrees


def test_a_replacement_that_promises_nothing_may_differ_but_in_shape():
    gm = traced(lambda m, x: torch.relu(x) + 1)
    assert matched(from_pattern(lambda x: torch.relu(x), lambda x: F.gelu(x)), gm) == 1
    assert matched(from_pattern(lambda x: torch.relu(x), lambda x: torch.cat((x, x))), gm) == 0


@pytest.mark.parametrize(
    ("replacement", "refusals"), [(lambda x: x.max(1).indices, []), (lambda x: x.min(1).indices, ["differs"])]
)
def test_whole_numbers_have_to_be_the_same(replacement, refusals):
    gm = traced(lambda m, x: torch.argmax(x, 1) + 1)
    pass_ = from_pattern(lambda x: torch.argmax(x, 1), replacement, name="to-max", preserves_computation=True)
    assert codes(pass_, gm) == refusals
    assert matched(pass_, gm) == (not refusals)


def test_modules_are_run_to_confirm_a_replacement_of_them():
    gm = shapes_known(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), X)
    for replacement, refusals in ((F.gelu, ["differs"]), (lambda x: x.clamp(min=0), [])):
        pass_ = from_pattern(lambda x: torch.relu(x), replacement, name="relu", preserves_computation=True)
        assert codes(pass_, gm) == refusals


def test_a_value_of_a_size_that_depends_on_data_is_replaced_unconfirmed():
    gm, inputs = traced(lambda m, x: written_silu(x[x[:, 0] > 0])), (X, torch.randn(9, 4))
    expected = [gm(x) for x in inputs]
    silu = from_pattern(written_silu, lambda x: F.silu(x), preserves_computation=True)
    assert matched(silu, gm) == len(silu.get_transformed_nodes(silu(gm))) == 1
    for x, values in zip(inputs, expected, strict=True):
        assert_close(gm(x), values)


def test_the_difference_is_said_with_numbers():
    gm = traced(lambda m, x: torch.relu(x) + 1)
    pass_ = from_pattern(lambda x: torch.relu(x), lambda x: F.gelu(x), preserves_computation=True)
    words = pass_.explain(gm).reason.iloc[0]
    assert words.startswith("the replacement differs: by at most 0.1")
    assert "at x = " in words


def divided(x, c: float):
    return x / c


@pytest.mark.parametrize("pattern", [divided, lambda x, c: x / c])
def test_a_divisor_is_captured_as_the_number_that_it_is(pattern):
    def scaled(x, c):
        return x * (1 / c)

    for model, expected in ((lambda x: x / 2.5 + 1, [2.5]), (lambda x: (x + 1) / 4, [4.0])):
        traced = torch.fx.symbolic_trace(model)
        assert [match["c"] for match in fxlab.rewriting.find_matches(traced, pattern)] == expected
        changed = fxlab.from_pattern(pattern, scaled)(traced)
        assert "/" not in changed.code
        assert torch.allclose(changed(torch.ones(3)), model(torch.ones(3)))


def test_a_tensor_that_divides_is_captured_by_a_bare_argument_alone():
    traced = torch.fx.symbolic_trace(lambda x, y: x / y)
    assert [match["c"].name for match in fxlab.rewriting.find_matches(traced, lambda x, c: x / c)] == ["y"]
    assert not fxlab.rewriting.find_matches(traced, divided)
    assert not fxlab.rewriting.find_matches(torch.fx.symbolic_trace(lambda x: x + 2), divided)


def test_arguments_capture_what_their_annotation_says():
    def scaled(x, factor: float):
        return x * factor

    gm = traced(lambda m, x: x * 3 + x * m.linear.weight[0] + x * x.cos())
    assert matched(from_pattern(scaled, lambda x, factor: x * factor, name="number"), gm) == 1

    def weighed(x, weight: nn.Parameter):
        return F.linear(x, weight)

    gm = traced(lambda m, x: F.linear(x, m.linear.weight) + F.linear(x, x.t() @ x))
    assert matched(from_pattern(weighed, lambda x, weight: x @ weight.t(), name="weight"), gm) == 1


@pytest.mark.parametrize("kind", ["trace", "exported", "decomposed"])
def test_what_is_computed_of_weights_becomes_a_parameter(kind):
    def doubled(x, weight, bias):
        return F.linear(x, weight, bias) * 2.0

    def folded(x, weight, bias):
        return F.linear(x, weight * 2, bias * 2)

    gm = traced(lambda m, x: m.linear(x) * 2.0, kind)
    before, expected = snapshot(gm), gm(X)
    pass_ = from_pattern(doubled, folded, preserves_computation=True)
    pass_(gm)
    assert_close(gm(X), expected)
    new = [name for name, _ in gm.named_parameters() if name.startswith(("mul", "linear_weight", "view"))]
    assert len(new) == 2
    assert_is(pass_(gm, reverse=True), before)


def test_an_optional_argument_and_alternatives():
    def attention(q, k, v, scale: float, mask=None):
        scores = q @ k.transpose(-2, -1) * scale
        return torch.softmax(scores if mask is None else scores + mask, -1) @ v

    def also(q, k, v, scale: float, mask):
        scores = q @ k.transpose(-2, -1) * scale
        return torch.softmax(either(scores + mask, scores), -1) @ v

    def fused(q, k, v, scale, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)

    def twice(m, x):
        first = torch.softmax((x @ x.mT) / 2 + x.sum(), -1) @ x
        return torch.softmax(0.5 * (first @ first.mT), dim=1) @ first

    for pattern in (attention, also):
        session = Session(
            traced(twice), X, passes=[from_pattern(pattern, fused, name="a", preserves_computation=True)]
        )
        assert matched(session.passes["a"], session.original) == 2
        session.apply("a")
        assert session.verdict().agrees


def test_several_patterns_and_several_results():
    both = from_pattern(
        [lambda x: torch.relu(x), lambda x: torch.sigmoid(x)], lambda x: torch.tanh(x), name="b"
    )
    assert matched(both, traced(lambda m, x: torch.relu(x) + torch.sigmoid(x))) == 2

    def merged(x, a, b, c, d):
        y = F.linear(x, torch.cat((a, b)), torch.cat((c, d)))
        return y[..., : a.shape[0]], y[..., a.shape[0] :]

    def two(x, a, b, c, d):
        return F.linear(x, a, c), F.linear(x, b, d)

    merge = from_pattern(two, merged, name="merge", preserves_computation=True)
    for kind in ("trace", "exported", "decomposed"):
        session = Session(traced(lambda m, x: m.linear(x) * m.other(x), kind), X, passes=[merge])
        assert len(merge.candidates(session.original)) == 1
        session.apply("merge")
        assert session.verdict().agrees
        merged_linear = merge.get_transformed_nodes(session.graph_module)[0]
        assert merged_linear.meta["val"].shape[-1] == 8


def test_a_graph_refuses_autocast_where_that_would_make_another_dtype():
    gm = traced(lambda m, x: m.linear(x).softmax(-1) @ m.other.weight)
    pass_ = from_pattern(
        lambda x, w: torch.matmul(torch.softmax(x, -1), w),
        lambda x, w: (torch.softmax(x, -1)[..., None] * w).sum(-2),
        name="by-hand",
        preserves_computation=True,
    )
    expected = gm(X)
    pass_(gm)
    assert_close(gm(X), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(AssertionError, match="under autocast"):
        gm(X)


def test_conditions_are_asked_and_named():
    gm = traced(lambda m, x: written_silu(x) + written_silu(x[:2]).sum())
    pass_ = to_silu(where={"three rows": lambda match: match.shape("x")[0] == 3})
    table = pass_.explain(traced(lambda m, x: written_silu(m.linear(x)[:2]).sum(), x=torch.randn(3, 4)))
    assert table.reason.tolist() == ["three rows does not hold"] * 2
    assert matched(to_silu(where={"a tensor": lambda match: match["x"].op == "placeholder"}), gm) == 1


def test_the_next_pass_knows_the_shapes_of_what_is_new():
    gm = traced(lambda m, x: written_silu(torch.relu(x) * 2))
    double = from_pattern(lambda x: torch.relu(x) * 2, lambda x: torch.relu(x + x), name="double")
    session = Session(gm, X, passes=[double, FuseActivation()])
    session.apply("double")
    assert session.explain("fuse-activation").matched.all()
    assert all("val" in node.meta for node in session.graph_module.graph.nodes if node.op != "output")


def test_a_pattern_reaches_into_bodies():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: written_silu(y) + 1, lambda y: y - 1, (x,))

    program = torch.export.export(Branches(), (X,))
    gm = fxlab.from_exported(program)
    pass_ = to_silu()
    assert [names[0].split("/")[0] for names in pass_.candidates(gm)] == ["true_graph_0"]
    expected = gm(X.abs())
    assert_close(pass_(gm)(X.abs()), expected)
    assert len(pass_.get_transformed_nodes(gm)) == 1


def two_sizes(x, high: int, wide: int):
    return F.avg_pool2d(x, (high, wide))


def one_dimension(x, dim: int):
    return x.std(dim) + x.mean(dim)


def range_along(x, dim):
    return x.max(dim)[0] - x.min(dim).values


def scaled_by_size(x):
    return x.sin() / x.size(-1) ** 0.5


SPELLINGS = [
    (two_sizes, lambda x: F.avg_pool2d(x, 2), True),
    (two_sizes, lambda x: F.avg_pool2d(x, (2, 2)), True),
    (two_sizes, lambda x: F.avg_pool2d(x, (1, 2)), True),
    (two_sizes, lambda x: F.avg_pool2d(x, 2, 1), False),
    (lambda x, pad: F.max_pool2d(x, 2, padding=(pad, 0)), lambda x: F.max_pool2d(x, 2), True),
    (lambda x, pad: F.max_pool2d(x, 2, padding=(pad, 1)), lambda x: F.max_pool2d(x, 2), False),
    (one_dimension, lambda x: x.std(2) + x.mean((2,)), True),
    (one_dimension, lambda x: x[:, :, :4].std(2) + x[:, :, :4].mean(3), False),
    (range_along, lambda x: torch.max(x, dim=2)[0] - x.min(-2).values, True),
    (range_along, lambda x: x.max(x.sin())[0] - x.min(x.sin())[0], False),
    (lambda x, y: x * y, lambda x: x * x, True),
    (lambda x, y: x * y, lambda x: x.square(), True),
    (lambda x, y: x * y, lambda x: x**3, False),
    (scaled_by_size, lambda x: x.sin() / 4**0.5, True),
    (scaled_by_size, lambda x: x.sin() / 5**0.5, False),
    (lambda x, n: x.sin() / n, lambda x: x.sin() / x.shape[-1], True),
    (lambda x: x.sin() / x.shape[-1], lambda x: x.sin() / x.shape[-1], True),
    (lambda x: x.sin() / x.shape[-2], lambda x: x.sin() / x.shape[-1], False),
]


@pytest.mark.often(9)
@pytest.mark.parametrize("kind", ["exported", "trace"])
@pytest.mark.parametrize(("pattern", "function", "matches"), SPELLINGS)
def test_one_computation_is_found_in_each_spelling(pattern, function, matches, kind):
    x = torch.randn(2, 3, 6, 4)
    gm = traced(lambda self, x: function(x), kind, x)
    if kind == "trace" and pattern is scaled_by_size:
        matches = False  # the size varies
    assert len(fxlab.rewriting.find_matches(gm, pattern)) == matches
    pass_ = from_pattern(pattern, pattern, name="same", preserves_computation=True)
    assert_close(pass_(gm)(x), function(x))


def test_a_whole_number_is_asked_for_in_words():
    def times(x, count: int):
        return x * count

    session = Session(traced(lambda self, x: x * 2.5), X, passes=[from_pattern(times, times, name="times")])
    (reason,) = session.why_not("times").reason
    assert reason == "2.5 is not a whole number, which count captures"


def in_rows(x, rows: int, columns: int):
    return x.reshape(rows, columns).relu()


def only_rows(x, rows: int, columns: int):
    return x.reshape(rows, columns)


@pytest.mark.parametrize(
    ("pattern", "replacement", "code"),
    [
        (in_rows, lambda x, rows, columns: x.relu().reshape(rows, columns), "captured-inside"),
        (only_rows, lambda x, rows, columns: x.view(rows, columns), "captured-inside"),
        (in_rows, lambda x, rows: x.reshape(rows, -1).clamp(min=0), None),
    ],
)
def test_a_size_that_follows_from_a_removed_call_cannot_be_read(pattern, replacement, code):
    pass_ = from_pattern(pattern, replacement, name="rows")
    inputs = torch.randn(2, 3, 4)

    def compute(self, x):
        return x.reshape(6, -1).relu()

    gm = traced(compute, x=inputs)
    assert codes(pass_, gm) == ([code] if code else [])
    assert torch.equal(pass_(gm)(inputs), compute(None, inputs))
    fixed = traced(compute, "exported", inputs)
    assert matched(pass_, fixed) == 1
    assert torch.equal(pass_(fixed)(inputs), compute(None, inputs))


def test_a_near_miss_is_a_row_that_names_what_does_not_fit():
    gm = traced(lambda m, x: x * torch.tanh(x) + torch.softmax(x.sum(0, keepdim=True) * 0.5, 0))
    table = from_pattern(lambda x: torch.softmax(x * 0.5, 1), lambda x: x, name="s").explain(gm)
    assert not table.matched.any()
    assert table.code.unique().tolist() == ["other-argument"]
    assert table.reason.iloc[0] == "2 of 2 calls fit; dim is 0, and the pattern has 1"


def test_a_write_in_between_is_the_reason():
    gm = traced(between)
    assert to_silu().explain(gm).code.unique().tolist() == ["written-in-place"]


def test_why_not_answers_at_a_node_and_for_all():
    gm = traced(lambda m, x: x.cos() * torch.sigmoid(x) + torch.relu(x))
    session = Session(gm, X, passes=[to_silu(), FuseActivation()])
    row, *_ = session.why_not("to-silu").itertuples()
    assert (row.code, row.matched, row.reached, row.operators) == ("other-value", False, 2, 2)
    assert session.why_not("to-silu", "sigmoid").code.iloc[0] == "other-value"
    assert session.why_not("to-silu", "relu").matched.tolist() == [False]
    assert session.why_not("fuse-activation").code.tolist() == ["other-value"]
    with pytest.raises(ValueError, match="Did you mean 'sigmoid'"):
        session.why_not("to-silu", "sigmoi")
    with pytest.raises(TypeError, match="node: expected"):
        session.why_not("to-silu", 3)


@pytest.mark.parametrize(
    ("pattern", "replacement", "options", "message"),
    [
        (lambda x, y: torch.relu(x), lambda x, y: x, {}, "does not use its argument 'y'"),
        (lambda x: x, lambda x: x, {}, "must return what it computes"),
        (
            lambda x, m=None: torch.relu(x) if m is None else x + m,
            lambda x, m: x + m.sin(),
            {},
            "where m is None",
        ),
        (lambda *xs: torch.cat(xs), lambda x: x, {}, "stands for any number"),
        (lambda x: torch.relu(x), lambda x: x.relu_(), {}, "writes an argument in place"),
        ([], lambda x: x, {}, "empty list"),
        (written_silu, silu, {"where": [3]}, "where: expected a mapping"),
        (written_silu, silu, {"where": {"large": 3}}, "where"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_made(pattern, replacement, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_pattern(pattern, replacement, **options)


STEPS = {
    "silu": written_silu,
    "relu": torch.relu,
    "halved": lambda x: x / 2,
    "scaled": lambda x: 0.5 * x,
    "gated": lambda x: torch.sigmoid(x) * x,
    "twice": lambda x: (s := torch.sigmoid(x)) * x + s,
    "written": lambda x: x.clone().add_(1),
    "view": lambda x: x.reshape(-1, 2).reshape(3, 4),
    "transposed": lambda x: x.t().contiguous().t(),
}
PASSES = [
    to_silu(),
    from_pattern(lambda x: x * 0.5, lambda x: x / 2, name="halve", preserves_computation=True),
    from_pattern(
        lambda x, a, b: x.reshape(a).reshape(b),
        lambda x, b: x.reshape(b),
        name="view",
        preserves_computation=True,
    ),
    from_pattern(lambda x, p: x.permute(p).permute(p), lambda x: x, name="back", preserves_computation=True),
    from_pattern(
        lambda x: torch.relu(torch.relu(x)), torch.nn.ReLU(), name="once", preserves_computation=True
    ),
]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6), st.sampled_from(["trace", "exported"])
)
def test_rewrites_preserve_values_and_reversal_is_exact(names, kind):
    def function(m, x):
        for name in names:
            x = STEPS[name](x)
        return x

    gm = traced(function, kind)
    before, expected = snapshot(gm), gm(X)
    for pass_ in PASSES:
        pass_(gm)
    assert_close(gm(X), expected)
    for pass_ in reversed(PASSES):
        pass_(gm, reverse=True)
    assert_is(gm, before)
