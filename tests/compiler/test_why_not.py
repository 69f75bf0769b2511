"""Patterns of the compiler: which there are, where they matched, and why they did not."""

import functools

import pytest
import torch
from tiny_models import aten
from torch import fx, nn
from torch._inductor.pattern_matcher import (
    MULTIPLE,
    CallFunction,
    KeywordArg,
    ListOf,
    MultiOutputPattern,
    PatternMatcherPass,
    config_flag,
    fwd_only,
    register_graph_pattern,
    register_replacement,
)
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab
from fxlab.drawing import build_hierarchy
from fxlab.transformations.inductor_patterns import Pattern, PatternAttempts, not_tried
from fxlab.view_model.details import Describer
from fxlab.view_model.pass_state import explain_all, explain_unchanged

DOUBLED = "post_grad/doubled"


class Doubles(nn.Module):
    def forward(self, x, y):
        shared = torch.relu(x + 1)
        return (
            torch.relu(x) * 2.0,
            torch.sigmoid(x) * 2.0,
            shared * 2.0 + shared,
            torch.relu(x - 1) * 3.0,
            torch.relu(y) * 2.0,
            torch.tanh(torch.relu(x + 2) * 2.0),
        )


def wide_enough(match):
    return match.kwargs["x"].meta["val"].shape[-1] > 4


def doubled(patterns):
    """Register patterns of a relu that is doubled, under two names."""
    relu = CallFunction(aten.relu.default, KeywordArg("x"))

    @register_graph_pattern(
        CallFunction(aten.mul.Tensor, relu, 2.0), extra_check=wide_enough, pass_dict=patterns
    )
    def double_relu(match, x):
        with match.graph.inserting_before(match.output_node()):
            new = match.graph.call_function(aten.clamp_min.default, (x, 0.0))
            new = match.graph.call_function(aten.add.Tensor, (new, new))
        new.meta["val"] = match.output_node().meta["val"]
        match.output_node().replace_all_uses_with(new)
        match.erase_nodes()

    @register_graph_pattern(
        CallFunction(aten.tanh.default, CallFunction(aten.mul.Tensor, relu, 2.0)),
        extra_check=config_flag("b2b_gemm_pass"),
        pass_dict=patterns,
    )
    def never(match, x):
        raise AssertionError("the setting is off")


@pytest.fixture(scope="module")
def patterns():
    made = PatternMatcherPass("doubled")
    doubled(made)
    return made


@pytest.fixture(scope="module")
def session(patterns):
    inputs = {"x": torch.randn(2, 8), "y": torch.randn(2, 4)}
    return fxlab.compiler.compile_session(
        Doubles().eval(), inputs, options={"post_grad_custom_pre_pass": patterns.apply}
    )


@pytest.mark.parametrize(
    ("node", "code", "at", "reason"),
    [
        ("mul_2", "users", "shared", "takes a value with 1 user, and finds 2 users"),
        ("mul_3", "constant", "mul_3", "2 of 2 operators match; then it takes the constant 2.0, and finds 3"),
        ("mul_4", "check", "", "all operators match, and its check wide_enough (test_why_not.py:"),
    ],
)
def test_why_a_pattern_does_not_match(session, node, code, at, reason):
    told = session.why_not(node, "double_relu").iloc[0]
    assert (told["code"], told["at"], told["begins_at"]) == (code, at, node)
    assert reason in told["reason"]
    assert not told["matched"]


X = KeywordArg("x")
RELU = CallFunction(aten.relu.default, X, _users=MULTIPLE)
WHERE = {
    "arguments@cat: arguments in another structure, and finds these": (
        CallFunction(aten.cat.default, [X, KeywordArg("y")]),
        lambda x, y: torch.cat([x, y, x]),
    ),
    "arguments@relu: a list of such values, and finds aten.relu": (
        CallFunction(aten.cos.default, ListOf(RELU)),
        lambda x, y: x.relu().cos(),
    ),
    "arguments@: a list of such values, and finds a list": (
        CallFunction(aten.sum.dim_IntList, X, ListOf(RELU)),
        lambda x, y: x.sum([]),
    ),
    "operator@x_1: the operator aten.relu, and finds an input or a weight": (
        CallFunction(aten.mul.Tensor, RELU, X),
        lambda x, y: x * y,
    ),
    "arguments@sum_1: 2 positional arguments, and finds 3 positional arguments": (
        CallFunction(aten.sum.dim_IntList, X, [1]),
        lambda x, y: x.sum([1], True),
    ),
    "repeated@relu_1: one value in two places, and finds two values": (
        CallFunction(aten.add.Tensor, RELU, RELU),
        lambda x, y: x.relu() + y.relu(),
    ),
    "output@cos: several outputs, and finds no aten.sin that reads the same values": (
        MultiOutputPattern([CallFunction(aten.cos.default, RELU), CallFunction(aten.sin.default, RELU)]),
        lambda x, y: x.relu().cos(),
    ),
    "constant@mul: the constant 2.0, and finds a computed value": (
        CallFunction(aten.mul.Tensor, X, 2.0),
        torch.mul,
    ),
}


@pytest.mark.parametrize("told", WHERE)
def test_what_a_pattern_takes_and_what_it_finds(told):
    pattern, function = WHERE[told]
    made = PatternMatcherPass("tried")
    register_graph_pattern(pattern, pass_dict=made)(lambda match, **held: None)
    inputs = torch.ones(2, 8), torch.ones(2, 8)
    session = fxlab.Session(make_fx(function)(*inputs), inputs, passes=[fxlab.from_callable(made)])
    row = session.why_not("tried", session.stages[0].graph.output_node().args[0]).iloc[0]
    assert f"{row['code']}@{row['at']}: {row['reason'].partition('; then it takes ')[2]}" == told


def test_patterns_outside_of_a_compile_say_why_they_do_not_match(patterns):
    inputs = torch.randn(2, 8), torch.randn(2, 4)
    traced = make_fx(Doubles())(*inputs)

    def plain(graph_module):
        patterns.apply(graph_module.graph)

    outside = fxlab.Session(
        traced, inputs, passes=[fxlab.from_callable(patterns), fxlab.from_callable(plain)]
    )
    table = outside.why_not("doubled")
    assert list(zip(table.index, table["code"], table["begins_at"], strict=True)) == [
        ("never", "setting", "tanh"),
        ("double_relu", "check", "mul_4"),
        ("double_relu", "constant", "mul_3"),
    ]
    told = outside.why_not("plain", "mul_1").iloc[0]
    assert (told["code"], told["at"]) == ("operator", "sigmoid")
    begins = outside.why_not("plain", "sigmoid").loc["never", "reason"]
    assert begins == "it begins at aten.tanh, and this is aten.sigmoid"
    assert "never: all operators match" in outside.explain("doubled").loc["tanh", "reason"]
    assert not outside.applied


def test_a_setting_that_is_off_is_named(session):
    told = session.why_not("tanh", "never").iloc[0]
    assert told["code"] == "setting"
    assert "the setting b2b_gemm_pass is off" in told["reason"]
    assert told["reached"] == told["operators"] == 3


def test_a_match_is_told_as_such_and_seen_from_all_its_nodes(session):
    for node in ("mul", "relu_1"):
        told = session.why_not(node, "double_relu").iloc[0]
        assert (told["matched"], told["reason"], told["begins_at"]) == (
            True,
            "it matches, and is handed to double_relu",
            "mul",
        )


def test_what_is_not_there_is_refused_with_the_nearest_name(session):
    with pytest.raises(ValueError, match="Did you mean 'double_relu'"):
        session.why_not("tanh", "double_rel")
    with pytest.raises(ValueError, match=r"no stage has a node 'tang'\. Did you mean 'tanh'"):
        session.why_not("tang")
    with pytest.raises(TypeError, match=r"node: expected a torch.fx.Node or its name"):
        session.why_not(3)
    with pytest.raises(TypeError, match="pattern: expected the name of a pattern"):
        session.why_not("tanh", 3)


def test_explain_lists_near_misses_beside_matches(session):
    table = session.explain(DOUBLED)
    assert table["matched"].sum() == 4  # two nodes of each match
    refused = table[~table["matched"]]
    codes = {
        "constant": ("mul_3", "relu_2"),
        "check": ("mul_4", "relu_3"),
        "setting": ("tanh", "mul_5", "relu_4"),
    }
    assert dict(refused["code"]) == {node: code for code, nodes in codes.items() for node in nodes}
    assert refused.loc["mul_4", "reason"].startswith("double_relu: all operators match, and its check")


def test_passes_that_changed_nothing_are_explained_as_well(session):
    name = "joint/pass_pattern_1"
    assert name in session.unchanged
    assert {*session.explain_unchanged()} <= {*session.unchanged}
    assert session.explain(name).columns.tolist() == session.explain(DOUBLED).columns.tolist()


def test_a_node_that_calls_nothing_is_told_by_its_kind():
    graph = fx.Graph()
    graph.output((graph.placeholder("x"), graph.get_attr("weight")))
    tried = PatternAttempts("doubled", [Pattern("double", ("aten.mul",), ("aten.mul",))], [], tuple)
    words = [not_tried([tried], node)["reason"].iloc[0] for node in graph.nodes]
    kinds = "an input", "a weight or a constant", "the output"
    assert words == [f"it begins at aten.mul, and this is {kind}" for kind in kinds]


def test_details_of_a_node_say_why_not(session):
    explained = explain_all(session) | explain_unchanged(session)
    assert "tanh" in {name for frame in explained.values() for name in frame.index}
    hierarchy = build_hierarchy(session.stages[1])
    describer = Describer(hierarchy, explained)
    node = next(node for node in session.stages[1].graph.nodes if node.name == "tanh")
    reasons = [row["reason"] for row in describer.node(node)["candidates"]]
    assert "never: all operators match, and the setting b2b_gemm_pass is off" in reasons


def test_the_patterns_of_torch_are_as_they_were(patterns, session):
    for entries in patterns.patterns.values():
        for entry in entries:
            assert "apply" not in vars(entry)
            assert not isinstance(entry.extra_check, functools.partial)
            assert isinstance(entry.pattern, CallFunction)


def test_a_pattern_that_does_not_fit_the_shapes_says_so():
    made = PatternMatcherPass("shaped")

    def search(x):
        return torch.ops.aten.expand.default(torch.ops.aten.relu.default(x), [3, 8])

    def replace(x):
        return torch.ops.aten.clamp_min.default(x, 0.0).expand(3, 8)

    register_replacement(search, replace, [torch.randn(1, 8)], fwd_only, made)
    model, x = _Expands().eval(), torch.randn(1, 8)
    session = fxlab.compiler.compile_session(model, x, options={"post_grad_custom_pre_pass": made.apply})
    table = session.why_not("expand", "search")
    assert table["code"].tolist() == ["shapes"]
    assert "with these shapes and dtypes it takes" in table["reason"].iloc[0]


class _Expands(nn.Module):
    def forward(self, x):
        return torch.relu(x).expand(5, 8) + 1


def test_without_the_hook_a_compile_is_judged_and_has_no_patterns(monkeypatch):
    from fxlab.transformations.inductor_patterns import hooks

    monkeypatch.setattr(hooks.MatcherRecorder, "_copy", lambda self, entry: entry)
    session = fxlab.compiler.compile_session(Doubles().eval(), (torch.ones(2, 8), torch.ones(2, 4)))
    assert session.why_not("tanh").empty
    assert session.verdict().agrees
