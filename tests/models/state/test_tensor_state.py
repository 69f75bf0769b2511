"""What makes a kept result stale: any attribute of a module, however deep, and what it computes by."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn
from wrapper_tensor import Int8Weight

from fxlab.models.state.module_state import ModelNoted, ModuleState
from fxlab.models.state.tensor_state import Sampled, TensorState


@dataclass
class Settings:
    scale: float = 1.0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.mode, self.dtype, self.sizes, self.act = "zeros", torch.float32, (1, [2]), torch.relu
        self.scaling, self.steps, self.settings = {"default": 1.0, "other": {"rate": 2}}, [1, [2]], Settings()
        self.space = SimpleNamespace(scale=1.0)

    def forward(self, x):
        return self.act(self.linear(x))


CHANGES = {
    "mode": lambda layer: layer.eval(),
    "dtype": lambda layer: setattr(layer, "dtype", torch.float64),
    "list in a tuple": lambda layer: layer.sizes[1].append(3),
    "dict in a dict": lambda layer: layer.scaling["other"].update(rate=3),
    "another number of another type": lambda layer: layer.steps.__setitem__(0, 1.0),
    "object": lambda layer: setattr(layer, "settings", Settings()),
    "field of an object": lambda layer: setattr(layer.settings, "scale", 2.0),
    "field of a namespace": lambda layer: setattr(layer.space, "scale", 2.0),
    "forward": lambda layer: setattr(layer, "forward", torch.tanh),
    "missing attribute": lambda layer: delattr(layer, "mode"),
    "hook": lambda layer: layer.linear.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change):
    model = nn.Sequential(Layer())
    state = ModuleState(model)
    assert state.changed() == []
    change(model[0])
    assert state.changed()


def test_the_forward_of_a_class_counts(monkeypatch):
    state = ModuleState(nn.Sequential(Layer()))
    monkeypatch.setattr(Layer, "forward", lambda self, x: x)
    assert state.changed()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_marks_of_dynamo_and_scripted_parts_are_no_change():
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.ReLU()))
    noted = ModelNoted(model)
    torch.compile(model, backend="eager")(torch.randn(1, 2))
    assert noted.changed() == []
    model[0].weight.mark = True
    assert noted.changed() == ["0.weight.mark"]


def test_what_was_put_back_is_no_change():
    model = nn.Sequential(Layer())
    state = ModuleState(model)
    model[0].scaling["default"] = 5.0
    model[0].scaling["default"] = 1.0
    assert state.changed() == []


def test_writes_show_in_tensors_whose_bits_cannot_be_read():
    meta, wrapper = torch.ones(2, device="meta"), Int8Weight(torch.ones(2, 2), torch.ones(2, 1))
    states = [TensorState.of(tensor, keep_small=True) for tensor in (meta, wrapper)]
    assert states[0].is_of(meta)
    assert states[1].is_of(wrapper)
    meta.add_(1)
    wrapper.scale.add_(1)
    assert not states[0].is_of(meta)
    assert not states[1].is_of(wrapper)


def test_what_holds_itself_is_looked_at_once():
    model = nn.Sequential(Layer())
    model[0].steps.append(model[0].steps)
    assert ModuleState(model).changed() == []


def test_notes_on_a_graph_are_no_setting():
    traced = fx.symbolic_trace(nn.Sequential(Layer()))
    state = ModuleState(traced)
    traced.meta["note"] = 1
    traced.recompile()
    assert state.changed() == []


DTYPES = [torch.float32, torch.bfloat16, torch.complex128, torch.bool, torch.float8_e4m3fn, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "make", [lambda t: t, torch.Tensor.t, lambda t: nn.Parameter(t, requires_grad=False)]
)
def test_a_write_that_torch_does_not_count_shows(dtype, make):
    tensor, other = make(torch.zeros(50, 60).to(dtype)), torch.zeros(3)
    sampled, state = Sampled([other, tensor]), TensorState.of(tensor)
    assert not sampled.changed()
    tensor.data.fill_(1)
    assert sampled.changed()
    assert not state.is_of(tensor)
    tensor.data.fill_(0)
    assert not sampled.changed()
    assert state.is_of(tensor)


def test_each_element_of_a_small_tensor_is_looked_at_and_the_first_of_a_large_one():
    small, large = torch.zeros(16, 16), torch.zeros(999, 999)
    for tensor, places in (small, range(256)), (large, (0,)):
        for place in places:
            sampled = Sampled([tensor])
            tensor.view(-1).numpy()[place] += 1
            assert sampled.changed()


def test_tensors_without_such_memory_are_left_out():
    freed = torch.ones(9)
    freed.untyped_storage().resize_(0)
    empty, meta, sparse = torch.ones(0, 3), torch.ones(2, device="meta"), torch.ones(2).to_sparse()
    every_second = torch.ones(9)[::2]
    assert not Sampled([freed, empty, meta, sparse, every_second]).changed()
