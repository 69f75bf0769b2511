"""Options of Inductor as switches beside its passes."""

import pytest
import torch
from tiny_models import plant_mistake
from torch import nn

import fxlab

PATTERNS = "joint/pass_pattern_0"


def names(session):
    return [pass_.name for pass_ in session.passes]


def test_options_that_passes_read_are_listed_with_torchs_own_words(session):
    table = session.options()
    assert table.loc["pattern_matcher", ["value", "at_first", "phases", "description"]].tolist() == [
        True,
        True,
        "pre_grad, joint, post_grad",
        "enable pattern match+replace optimizations",
    ]
    assert not table.loc["b2b_gemm_pass", "value"]
    assert table.loc["b2b_gemm_pass", "place"].startswith("post_grad.py:")
    assert "Dynamo reads it too" in table.loc["freezing", "fixed"]
    assert {*table["value"].map(type)} == {bool}


def test_an_option_is_switched_by_compiling_again_and_taken_back(session):
    before, stages = names(session), session.stages
    assert PATTERNS in session.unchanged
    session.set_option("pattern_matcher", False)
    assert PATTERNS not in session.unchanged
    assert not session.options().loc["pattern_matcher", "value"]
    assert session.verdict().agrees
    assert all(not name.startswith("post_grad/pass_pattern") for name in names(session))
    with pytest.raises(ValueError, match=r"other options than the session has now"):
        session.passes["joint/remove_noop_ops"](stages[1])
    session.undo()
    assert names(session) == before
    assert PATTERNS in session.unchanged
    assert session.options().loc["pattern_matcher", "value"]
    session.redo()
    session.set_option("pattern-matcher", True)
    assert session.options()["value"].equals(session.options()["at_first"])
    assert names(session) == before


def test_a_pass_that_an_option_brings_is_offered_and_one_that_it_takes_is_not(blocks):
    x = torch.randn(3, 8)
    session = fxlab.compiler.compile_session(blocks, x)
    assert not any("b2b" in name for name in session.unchanged)
    session.set_option("b2b_gemm_pass", True)
    assert any("b2b" in name for name in session.unchanged)
    session.set_option("post_grad_custom_post_pass", plant_mistake)
    assert names(session)[-1] == "post_grad/plant_mistake"
    assert session._internals.is_on("post_grad/plant_mistake")
    assert not session.verdict().agrees
    assert fxlab.bisect(session).pass_.name == "post_grad/plant_mistake"
    assert session.options().loc["post_grad_custom_post_pass", "value"] is plant_mistake
    session.set_option("post_grad_custom_post_pass", None)
    assert "post_grad/plant_mistake" not in names(session)
    assert session.verdict().agrees


def test_what_is_off_stays_off_under_other_options(blocks):
    session = fxlab.compiler.compile_session(blocks, torch.randn(3, 8))
    session.revert("joint/remove_noop_ops")
    session.set_option("reorder_for_locality", False)
    assert not session._internals.is_on("joint/remove_noop_ops")
    assert "post_grad/reorder_for_locality" not in (*names(session), *session.unchanged)
    made = {"model": blocks, "inputs": session.inputs}
    exec(session.to_python(), made)
    assert [p.name for p in made["session"].applied] == [p.name for p in session.applied]
    assert made["session"].options()["value"].equals(session.options()["value"])


def test_an_option_that_breaks_the_compile_leaves_the_session_as_it_was(session):
    def broken(graph):
        raise ArithmeticError("of its author")

    before, stages = names(session), session.stages
    with pytest.raises(RuntimeError, match="of its author"):
        session.set_option("joint_custom_pre_pass", broken)
    assert names(session) == before
    assert session.stages == stages
    assert session.verdict().agrees


def test_what_is_no_option_or_value_of_one_says_so(session):
    for name, value, error, words in (
        (3, True, TypeError, "name: expected the name of an option"),
        ("pattern_macher", False, ValueError, "Did you mean 'pattern_matcher'"),
        ("pattern_matcher", 0, TypeError, "value: pattern_matcher is True or False"),
        ("post_grad_fusion_options", True, TypeError, "value: expected a dict"),
        ("freezing", True, ValueError, "freezing cannot be switched here"),
    ):
        with pytest.raises(error, match=words):
            session.set_option(name, value)


def test_options_are_those_of_the_whole_compile():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    session = fxlab.compiler.compile_session(model, x, training=True)
    with pytest.raises(ValueError, match="changed in its joint session"):
        session.graphs["forward"].set_option("pattern_matcher", False)
    session.set_option("joint_graph_constant_folding", False)
    assert session.verdict().agrees
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        torch.compile(model, backend="eager")(x)
    (recorded,) = record.sessions.values()
    with pytest.raises(ValueError, match="was recorded while a script ran"):
        recorded.options()
    assert not recorded.has_options


@pytest.mark.weekly
def test_what_was_compiled_with_options_is_kept(session):
    compiles = session._compiled._compiles
    session.set_option("reorder_for_locality", False)
    _ = session.stages
    known = len(compiles)
    session.undo()
    session.set_option("reorder_for_locality", False)
    _ = session.stages
    assert len(compiles) == known
    assert {frozenset(done.options.items()) for done in compiles} >= {
        frozenset(),
        frozenset({("reorder_for_locality", False)}),
    }
