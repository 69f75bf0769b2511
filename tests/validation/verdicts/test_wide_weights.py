"""Float64 copies of weights that several runs have in common."""

import pytest
import torch
from torch import nn

import fxlab
from fxlab.validation import Reference
from fxlab.validation.verdicts import runs
from fxlab.validation.verdicts.float64_run import Float64Interpreter
from fxlab.validation.verdicts.runs import WideWeights


def place(tensor):
    return tensor.untyped_storage().data_ptr()


def test_a_weight_is_widened_once_while_copies_are_kept():
    wide, weight = WideWeights(), nn.Parameter(torch.randn(4))
    with wide.kept():
        first = wide.of(weight)
        with wide.kept():
            assert place(wide.of(weight)) == place(first)
        assert place(wide.of(weight.detach())) == place(first)
    assert place(wide.of(weight)) != place(first)
    assert torch.equal(first, weight.detach().double())
    assert not first.requires_grad


def test_what_was_written_is_widened_anew():
    wide, weight = WideWeights(), torch.ones(4)
    with wide.kept():
        wide.of(weight).mul_(2)
        assert torch.equal(wide.of(weight), torch.ones(4, dtype=torch.float64))
        weight.mul_(3)
        assert torch.equal(wide.of(weight), torch.full((4,), 3.0, dtype=torch.float64))


def test_copies_are_kept_up_to_a_size(monkeypatch):
    monkeypatch.setattr(runs, "MOST_BYTES", 100)
    wide, small, large = WideWeights(), torch.ones(4), torch.ones(40)
    with wide.kept():
        assert place(wide.of(small)) == place(wide.of(small))
        first = wide.of(large)
        assert place(first) != place(wide.of(large))


def chain():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    return fxlab.symbolic_trace(model, torch.randn(2, 8)), torch.randn(2, 8)


def wrong_copy(graph_module, factor):
    other = fxlab.symbolic_trace(graph_module, torch.randn(2, 8))
    relu = next(node for node in other.graph.nodes if node.target == "1" or "relu" in str(node.target))
    with other.graph.inserting_after(relu):
        scaled = other.graph.call_function(torch.mul, (relu, factor))
    relu.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
    other.recompile()
    return other


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_verdicts_are_the_same_with_copies_that_are_kept(factor):
    model, inputs = chain()
    other = wrong_copy(model, factor)
    alone = Reference(model, inputs).verdict(other)
    reference = Reference(model, inputs)
    with reference.weights_kept():
        together = [reference.verdict(other) for _ in range(2)]
    assert all(str(found) == str(alone) for found in together)
    assert alone.agrees == (factor == 1.0)


def test_stages_that_share_weights_are_judged_on_one_copy_of_them(monkeypatch):
    model, inputs = chain()
    others = [wrong_copy(model, factor) for factor in (1.01, 1.02, 1.03)]
    handed, value = [], Float64Interpreter.value

    def noted(interpreter, tensor):
        result = value(interpreter, tensor)
        handed.append((place(tensor), result))
        return result

    monkeypatch.setattr(Float64Interpreter, "value", noted)
    reference = Reference(model, inputs)
    with reference.weights_kept():
        assert not any(reference.verdict(other).agrees for other in others)
    weights = {place(parameter) for parameter in model.parameters()}
    copies = {(source, place(copy)) for source, copy in handed if source in weights}
    assert len(copies) == len(weights)
