"""The code that Inductor generates, as the last stage: one kernel each, as C++ is slow to compile."""

from unittest import mock

import pytest
import torch
import torch._inductor.lowering as lowering
from torch import nn

import fxlab
from fxlab.compiler.compiling.hooks import why_no_code
from fxlab.compiler.compiling.stack import KEY
from fxlab.compiler.graphs.flat import CompiledCode
from fxlab.transformations.candidate_filter import Limit

CODE = "compiled code"
aten = torch.ops.aten
pytestmark = pytest.mark.skipif(bool(why_no_code({"cpu"})), reason="no C++ compiler")


def a_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(4, 8)


@pytest.fixture(scope="module")
def generated():
    session = fxlab.compiler.compile_session(*a_model())
    session.generate_code()
    return session


@pytest.mark.weekly
def test_generated_code_is_the_last_stage_and_is_judged_against_model_and_stage_below(generated):
    assert [pass_.name for pass_ in generated.applied] == ["AOTAutograd", CODE]
    with torch.no_grad():
        (expected,) = generated.original(**generated.inputs)
        (found,) = generated.graph_module(**generated.inputs)
    assert torch.allclose(found, expected)
    assert generated.verdict().agrees
    assert generated.verdict(CODE).agrees
    assert "session.generate_code()" in generated.to_python()


@pytest.mark.slow
def test_code_is_taken_off_and_offered_again(generated):
    generated.revert(CODE)
    try:
        assert not generated.has_code
        assert "generate_code" not in generated.to_python()
    finally:
        generated.undo()


@pytest.mark.slow
def test_code_for_other_matches_is_generated_anew(generated, monkeypatch):
    stage = generated.stages[1].meta[KEY]
    stack, asked = stage.stack, []
    first = stack.compiler.first
    monkeypatch.setattr(stack, "_with_code", [first])
    monkeypatch.setattr(stack.compiler, "compile", lambda *given, **_: asked.append(given) or first)
    assert stack._generated(stage.entries) is first.recorder.recordings[0]
    assert not asked
    limit = Limit(frozenset({"relu"}))
    stack._generated((("joint/a_pass", limit),))
    assert [limits for *_, limits in asked] == [{"joint/a_pass": limit}]


@pytest.mark.slow
def test_a_mistake_of_code_generation_is_that_of_the_last_stage():
    relu, mul = lowering.lowerings[aten.relu.default], lowering.lowerings[aten.mul.Tensor]
    model, x = a_model()

    def step(x):
        return torch.relu(model[0](x)) + 1

    with mock.patch.dict(lowering.lowerings, {aten.relu.default: lambda x: mul(relu(x), 1.001)}):
        session = fxlab.compiler.compile_session(step, (x,))
        session.generate_code()
        found = session.verdict(CODE)
        assert found.status == "different"
        assert "rounds worse" in found.reason
        assert session.verdict("AOTAutograd").agrees
        bisection = fxlab.bisect(session)
    assert bisection.pass_.name == CODE


@pytest.mark.weekly
def test_gradients_of_compiled_code_are_judged_with_the_joint_graph():
    session = fxlab.compiler.compile_session(*a_model(), training=True)
    session.generate_code()
    assert session.verdict().agrees
    assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None
    assert len(session.verdict().outputs) == 3
    with pytest.raises(ValueError, match="none of the backward graph alone"):
        session.graphs["backward"].generate_code()


@pytest.mark.weekly
def test_code_that_draws_by_itself_is_not_judged_and_accused_of_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8))
    session = fxlab.compiler.compile_session(model, torch.randn(4, 8), training=True)
    session.generate_code()
    verdict = session.verdict()
    assert verdict.status == "nothing compared"
    assert "fallback_random=True" in verdict.reason
    assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None


def test_what_a_backend_has_returned_is_a_stage_of_a_recorded_script():
    model, x = a_model()

    def wrong(graph_module, example_inputs):
        return lambda *values: [value * 1.01 for value in graph_module(*values)]

    with fxlab.compiler.record_compile() as record, torch.no_grad():
        torch.compile(model, backend=wrong)(x)
    (session,) = record.sessions.values()
    session.generate_code()
    assert session.verdict(CODE).status == "different"


def test_code_runs_on_what_it_was_generated_for_and_nothing_else():
    weight = torch.ones(3, requires_grad=True)
    code = CompiledCode(lambda x, y: [x * y], [torch.ones(3), 2], has_gradients=False)
    with torch.no_grad():
        assert code(weight, 2)[0].tolist() == [2, 2, 2]
        for values in ((torch.ones(4), 2), (torch.ones(3, dtype=torch.float64), 2), (torch.ones(3), 3)):
            with pytest.raises(ValueError, match="it was generated for"):
                code(*values)
    with pytest.raises(ValueError, match="training=True"):
        code(weight, 2)


def test_without_a_compiler_it_says_so_and_nothing_changes():
    session = fxlab.compiler.compile_session(*a_model())
    absent = mock.patch("torch._inductor.cpp_builder.get_cpp_compiler", side_effect=OSError("No c++ here"))
    with absent, pytest.raises(ValueError, match=r"there is no C\+\+ compiler \(No c\+\+ here\)"):
        session.generate_code()
    assert [pass_.name for pass_ in session.passes] == ["AOTAutograd"]


def test_code_is_refused_above_passes_of_others():
    session = fxlab.compiler.compile_session(*a_model())
    session.add(fxlab.from_callable(_doubled, name="doubled"))
    session.apply("doubled")
    with pytest.raises(fxlab.TransformationError, match="what torch's own passes have made"):
        session.generate_code()
    assert not session.has_code


def _doubled(graph_module):
    for node in graph_module.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target = aten.sigmoid.default
    return graph_module


@pytest.mark.weekly
def test_code_that_makes_a_view_of_an_input_is_judged_with_and_without_it():
    session = fxlab.compiler.compile_session(lambda x: (x.view(-1)[:4].add_(1), x + 1), torch.randn(4, 8))
    session.generate_code()
    assert session.verdict().agrees
    assert not session.verdict().notes
    assert session.verdict(CODE).agrees
    assert "shared memory is not compared" in session.verdict(CODE).reason
