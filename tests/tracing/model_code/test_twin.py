"""A model is recorded by a twin: what the run changes is the twin's, and other threads see none of it."""

import functools
import random
import threading
import weakref
from collections import ChainMap, OrderedDict, defaultdict, deque
from types import SimpleNamespace

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.report import TraceWarning


class Table:
    def __init__(self):
        self.rows, self.calls = None, 0

    def __call__(self, length):
        self.calls += 1
        if self.rows is None or len(self.rows) < length:
            self.rows = torch.arange(float(length))
        return self.rows[:length]


class Slotted:
    __slots__ = ("kept",)


class Holds(nn.Module):
    """Keeps what it computes in everything that an attribute may be."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.table, self.slotted, self.space = Table(), Slotted(), SimpleNamespace(kept=None)
        self.of_lists, self.ordered, self.default = {"kept": [None]}, OrderedDict(), defaultdict(list)
        self.recent, self.seen, self.pair = deque(maxlen=2), set(), ([], {})
        self.scaled = functools.partial(self.by, 2)
        self.added = lambda x: x + self.linear.bias
        self.parent = weakref.ref(self)
        self.numbers = random.Random(1)

    def by(self, factor, x):
        self.factor = factor
        return x * factor

    def forward(self, x):
        x = self.added(self.scaled(self.linear(x))) + self.table(x.shape[-1])
        x = x + self.parent().linear.weight[0]
        self.slotted.kept = self.space.kept = self.of_lists["kept"][0] = self.ordered["x"] = x
        self.default["x"].append(x)
        self.recent.append(x)
        self.seen.add(x)
        self.pair[0].append(x)
        return x


def test_nothing_that_a_run_writes_reaches_the_model():
    model, x = Holds(), torch.randn(2, 4)
    before = {name: repr(value) for name, value in vars(model).items()}
    traced = symbolic_trace(model, x, check=False)
    assert {name: repr(value) for name, value in vars(model).items()} == before
    assert (model.table.calls, model.table.rows, model.space.kept) == (0, None, None)
    assert not hasattr(model.slotted, "kept")
    assert_agree(traced, model, (torch.randn(3, 4),))


def test_what_leads_to_the_model_leads_to_the_twin():
    model = Holds()
    twin = Twin(model, torch.clone).model
    assert twin.parent() is twin
    assert twin.scaled.func.__self__ is twin
    assert twin.added.__closure__[0].cell_contents is twin
    assert twin.linear.weight is not model.linear.weight
    assert twin.numbers.random() == model.numbers.random()


OTHERS = nn.Linear(4, 4)


class KeepsInWhatIsShared(nn.Module):
    """Keeps results in objects that cannot be copied, or that Python's own library makes."""

    __slots__ = ("kept",)

    def __init__(self):
        super().__init__()
        self.linear, self.lock = nn.Linear(4, 4), threading.Lock()
        self.local, self.chain, self.kept = threading.local(), ChainMap({}), []

    def forward(self, x):
        with self.lock:
            self.local.last = self.chain["last"] = y = self.linear(x)
        self.kept.append(y)
        return y + 1


def test_what_cannot_be_copied_is_put_back():
    model = KeepsInWhatIsShared()
    traced = symbolic_trace(model, torch.randn(2, 4))
    assert (model.kept, model.chain) == ([], {})
    assert vars(model.local) == {}
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, (torch.randn(3, 4),))


def test_a_hook_that_each_run_adds_is_told():
    class Hooks(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            output = self.linear(x)
            self.linear.register_forward_hook(lambda module, inputs, output: output + 1)
            return output

    model = Hooks()
    with pytest.warns(TraceWarning, match="a second run the model has changed what the graph has not"):
        symbolic_trace(model, torch.randn(2, 4))
    assert not model.linear._forward_hooks
