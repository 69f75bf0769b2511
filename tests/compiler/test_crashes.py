"""A pass that raises is named with its match and line, and all else is shown."""

import pytest
import torch
from tiny_models import Blocks
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    register_graph_pattern,
)

import fxlab

aten = torch.ops.aten
X = torch.randn(3, 8)


def boom(graph):
    raise KeyError("in a pass")


def circle(graph):
    node = graph.find_nodes(op="call_function", target=aten.relu.default)[0]
    node.args = (next(iter(node.users)),)


def bad_patterns():
    patterns = PatternMatcherPass("bad_patterns")

    @register_graph_pattern(CallFunction(aten.relu.default, KeywordArg("x")), pass_dict=patterns)
    def bad(match, x):
        raise KeyError("in a handler")

    return patterns.apply


CRASHES = {
    "pass": (boom, "post_grad/boom has failed: KeyError: 'in a pass' (test_crashes.py:"),
    "match": (
        bad_patterns(),
        "post_grad/bad_patterns has failed, where bad replaces relu_2: KeyError: 'in a handler' (test_",
    ),
    "circle": (circle, "post_grad/circle has failed: ValueError: The graph has a cycle through "),
}


@pytest.mark.often(2)
@pytest.mark.parametrize("kind", CRASHES)
def test_a_model_is_compiled_without_a_pass_that_raises(kind):
    failing, words = CRASHES[kind]
    session = fxlab.compiler.compile_session(
        Blocks().eval(), X, options={"post_grad_custom_post_pass": failing}
    )
    (remark,) = session.remarks
    assert remark.startswith(words)
    assert remark.endswith("It was compiled without this pass, and what follows is shown.")
    assert [pass_.name for pass_ in session.passes] == ["AOTAutograd", "joint/remove_noop_ops"]
    session.revert("joint/remove_noop_ops")
    assert session.verdict().agrees


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", CRASHES)
def test_what_a_script_had_compiled_before_a_crash_is_shown(kind):
    failing, words = CRASHES[kind]
    torch._dynamo.reset()
    compiled = torch.compile(Blocks().eval(), options={"post_grad_custom_post_pass": failing})
    with fxlab.compiler.record_compile() as record, torch.no_grad(), pytest.raises(Exception):  # noqa: B017, PT011
        compiled(X)
    (session,) = record.sessions.values()
    assert [pass_.name for pass_ in session.passes] == ["AOTAutograd", "joint/remove_noop_ops"]
    assert session.verdict().agrees
    assert record.remarks[0].startswith(words)
    assert record.story()["kind"].tolist() == ["compile", "error"]
