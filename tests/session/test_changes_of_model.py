"""A session judges its model as it was traced, and says so when Python would read something else now."""

import enum
import functools
import types
import warnings
import weakref
from contextvars import ContextVar

import numpy as np
import pytest
import read_elsewhere
import torch
from torch import nn
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, LlamaConfig, LlamaModel

import fxlab

GAIN = 2.0


class Settings:
    def __init__(self):
        self.scale, self.inner = 2.0, {"kinds": ["relu"]}


class Reads(nn.Module):
    offset = 1.0

    def __init__(self):
        super().__init__()
        self.linear, self.settings, self.table = nn.Linear(4, 4), Settings(), np.ones(4, np.float32)
        self.function = torch.relu

    def forward(self, x):
        x = self.linear(x) * self.settings.scale * GAIN + self.offset + torch.from_numpy(self.table)
        return self.function(x) if "relu" in self.settings.inner["kinds"] else x


CHANGES = {
    "settings": lambda model, patch: setattr(model.settings, "scale", 3.0),
    "settings inside": lambda model, patch: model.settings.inner["kinds"].clear(),
    "table": lambda model, patch: model.table.fill(5),
    "function": lambda model, patch: setattr(model, "function", torch.tanh),
    "Reads.offset": lambda model, patch: patch.setattr(Reads, "offset", 5.0),
    f"{__name__}.GAIN": lambda model, patch: patch.setitem(globals(), "GAIN", 5.0),
    "linear": lambda model, patch: setattr(model, "linear", nn.Linear(4, 4)),
    "linear.weight": lambda model, patch: setattr(model.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "linear.compile()": lambda model, patch: model.linear.compile(backend="eager"),
    "linear._forward_hooks": lambda model, patch: model.linear.register_forward_hook(lambda *args: None),
}


@pytest.mark.often(4)
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_the_graph_does_not_follow_is_told(name, monkeypatch):
    model = Reads().eval()
    session = fxlab.Session(model, torch.randn(2, 4))
    assert session.verdict()
    CHANGES[name](model, monkeypatch)
    with pytest.warns(RuntimeWarning, match="changed since it was traced") as told:
        session.verdict()
    assert name.partition(" ")[0] in str(told[0].message)
    assert told[0].filename == __file__


class Kind(enum.Enum):
    ONE, OTHER = 1.0, 3.0


KIND, VARIABLE, LATER = Kind.ONE, ContextVar("factor", default=2.0), [torch.relu]


def applied(x, functions=LATER):
    return functools.reduce(lambda value, function: function(value), functions, x)


def factor():
    number = 2.0

    def change():
        nonlocal number
        number = 3.0

    return (lambda: number), change


of_closure, change_of_closure = factor()


class Slotted:
    __slots__ = ("_value",)

    def __init__(self):
        self._value = 2.0

    @property
    def value(self):
        return self._value


class PerOwner:
    def __init__(self):
        self._values = weakref.WeakKeyDictionary()

    def __get__(self, owner, cls):
        return self._values.get(owner, 2.0)

    def __set__(self, owner, value):
        self._values[owner] = value


class ReadsAround(nn.Module):
    gain = PerOwner()

    def __init__(self, read):
        super().__init__()
        self.read, self.slotted, self.table = read, Slotted(), np.ones(10_000)
        self.clamp = functools.partial(torch.clamp, min=-0.1)

    def forward(self, x):
        return getattr(self, self.read)(x)

    def of_enumeration(self, x):
        return x * KIND.value

    def of_variable(self, x):
        return x * VARIABLE.get()

    def of_default(self, x):
        return applied(x)

    def of_closure(self, x):
        return x * of_closure()

    def of_file(self, x):
        return read_elsewhere.scaled(x)

    def of_slot(self, x):
        return x * self.slotted.value

    def of_array(self, x):
        return x * float(self.table.sum())

    def of_partial(self, x):
        return self.clamp(x)

    def of_descriptor(self, x):
        return x * self.gain


CHANGES_AROUND = {
    ("of_enumeration", "KIND"): lambda model, patch: patch.setitem(globals(), "KIND", Kind.OTHER),
    ("of_variable", "VARIABLE"): lambda model, patch: VARIABLE.set(3.0),
    ("of_default", "applied"): lambda model, patch: patch.setattr(applied, "__defaults__", ([torch.tanh],)),
    ("of_closure", "number"): lambda model, patch: change_of_closure(),
    ("of_file", "SCALE"): lambda model, patch: patch.setattr(read_elsewhere, "SCALE", 3.0),
    ("of_file", "Rates.rate"): lambda model, patch: patch.setattr(read_elsewhere.Rates, "rate", 3.0),
    ("of_file", "scaled"): lambda model, patch: patch.setattr(read_elsewhere, "scaled", torch.tanh),
    ("of_slot", "slotted"): lambda model, patch: setattr(model.slotted, "_value", 3.0),
    ("of_array", "table"): lambda model, patch: model.table.fill(3),
    ("of_partial", "clamp"): lambda model, patch: model.clamp.keywords.update(min=-2.0),
    ("of_descriptor", "gain"): lambda model, patch: setattr(model, "gain", 3.0),
}


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize(("read", "name"), CHANGES_AROUND)
def test_a_change_around_the_model_is_told(read, name, monkeypatch):
    model, x = ReadsAround(read).eval(), torch.randn(2, 4)
    session = fxlab.Session(model, x)
    before = model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()
    CHANGES_AROUND[read, name](model, monkeypatch)
    assert not torch.equal(model(x), before)
    with pytest.warns(RuntimeWarning, match=f"changed since it was traced.*{name}"):
        session.verdict()


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_what_the_code_of_a_model_does_not_name_may_change(monkeypatch):
    session = fxlab.Session(ReadsAround("of_slot").eval(), torch.randn(2, 4))
    monkeypatch.setitem(globals(), "CHANGES", {})
    monkeypatch.setattr(Counts, "forward", Reads.forward)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_what_the_graph_shares_with_the_model_may_change():
    model, x = Reads().eval(), torch.randn(2, 4)
    session = fxlab.Session(model, x)
    with torch.no_grad():
        model.linear.weight.mul_(2)
    model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()
    assert torch.equal(session.original(x), model(x))


class Counts(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.calls, self.settings, self.linear = 0, settings, nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        self.settings.kind = self.settings.kind or "regression"
        return self.linear(x)


class CountsInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.settings, self.other = types.SimpleNamespace(kind=None), [1]
        self.part = Counts(self.settings)

    def forward(self, x):
        return self.part(x).relu() * len(self.other)


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("is_step", [False, True])
def test_what_a_run_of_the_model_sets_is_no_change(is_step):
    model, x = CountsInside(), torch.randn(2, 4)
    made = fxlab.trace_step(model, x, loss=torch.sum) if is_step else model.eval()
    session = fxlab.Session(made) if is_step else fxlab.Session(made, x)
    model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()
    model.other.append(2)
    with pytest.warns(RuntimeWarning, match="changed since it was traced: other[.] "):
        session.verdict()


def test_a_registry_of_a_package_grows_by_other_models_without_an_alarm():
    config = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    session = fxlab.Session(BertModel(BertConfig(vocab_size=50, **config)).eval())
    DistilBertModel(DistilBertConfig(vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=16))
    LlamaModel(LlamaConfig(vocab_size=50, **config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.verdict()
