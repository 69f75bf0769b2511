"""Errors and warnings of a trace name the cause, once and in words."""

import logging
import warnings

import pytest
import torch
from torch import nn

import fxlab
from fxlab.base.torch_logs import torch_logs_silent

X = torch.randn(3, 4)


class Mismatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(5, 4)

    def forward(self, x):
        return self.second(self.first(x))


class Typo(nn.Module):
    def forward(self, x):
        return x.reluu()


@pytest.mark.parametrize("model", [Mismatch(), Typo()])
def test_an_error_of_the_model_itself_is_said_to_be_one(model, caplog, capfd):
    with pytest.raises(fxlab.TraceError) as raised:
        fxlab.symbolic_trace(model, X)
    message = str(raised.value)
    assert raised.value.code == "model-raises"
    assert type(model).__name__ in message
    assert "test_trace_messages.py:" in message
    assert "leaf_modules" not in message
    assert not [record for record in caplog.records if record.name.startswith("torch")]
    assert capfd.readouterr().err == ""


def test_torch_logs_again_after_a_trace(caplog):
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    with torch_logs_silent():
        logger.error("during")
    logger.error("after")
    assert [record.message for record in caplog.records] == ["after"]


def test_torchs_trace_of_itself_ends_with_its_first_record():
    """Its handler looks whether somebody wants the records; else torch makes them all, with stacks."""
    records = logging.getLogger("torch.__trace")
    filters = list(records.filters)
    with torch_logs_silent():
        assert records.filters == filters


class DecidesOnData(nn.Module):
    def forward(self, x):
        if x.sum() > 1000:
            return x
        return x.numpy().sum() + x


def test_a_reason_is_given_once_and_the_raw_text_is_in_the_report():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traced = fxlab.symbolic_trace(DecidesOnData(), X)
    message = str(caught[-1].message)
    assert message.count("Python decides on data") == 1
    assert "unhinted" not in message
    report = traced.meta["trace"]
    assert not any("unhinted" in step for step in report.steps_down)
    assert any("unhinted" in raw for raw in report.raised)


def test_a_lazy_module_is_left_as_it_was():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with pytest.raises(ValueError, match=r"0\.weight, .* not initialized yet.* Run the model on them once"):
        fxlab.symbolic_trace(model, X)
    assert type(model[0]) is nn.LazyLinear
    assert model[0].has_uninitialized_params()
    model(X)
    assert torch.equal(fxlab.symbolic_trace(model.eval(), X)(X), model(X))


def test_a_model_that_no_stand_in_satisfies_is_told_with_its_line_and_what_may_help():
    class OnlyTensors(nn.Module):
        def forward(self, x):
            if type(x) is not torch.Tensor:
                raise OSError("only tensors")
            return x + 1

    with pytest.raises(fxlab.TraceError, match="on real inputs, it raised OSError: only tensors") as raised:
        fxlab.symbolic_trace(OnlyTensors(), X)
    assert raised.value.code == "untraceable"
    assert "leaf_modules" in str(raised.value)


class Keeps(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use = use
        self.register_buffer("kept", torch.zeros(4))

    def forward(self, x):
        return self.use(self, x)


class Stored(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.quint8))

    def forward(self, x):
        return x @ self.table.dequantize()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        (lambda: Keeps(lambda own, x: own.kept.set_(x.mean(0)) - x), "hidden-operator", "Tensor.set_"),
        (Stored, "quantized", "takes and returns plain tensors"),
        (lambda: Keeps(lambda own, x: own.kept.add_(1) * x), "inference-tensor", "Make the model outside"),
    ],
)
def test_a_refusal_names_the_kind_of_tensor_or_call(model, code, words):
    with pytest.raises(fxlab.TraceError, match=words) as raised, torch.inference_mode(code.startswith("inf")):
        fxlab.symbolic_trace(model(), X)
    assert raised.value.code == code


class Named(nn.Module):
    def forward(self, x, **rest):
        return x + sum(rest.values())


@pytest.mark.parametrize("name", ["class", "two words"])
def test_an_input_whose_name_no_function_can_have_is_refused(name):
    with pytest.raises(TypeError, match=f"{name!r} can name no parameter"):
        fxlab.symbolic_trace(Named(), {"x": X, name: X})
