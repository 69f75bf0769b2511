"""Objects that a model holds, or that its file names, may do anything when asked; a trace does not ask."""

import sys
from collections import OrderedDict, deque
from types import ModuleType

import pytest
import torch
from agreement import assert_agree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fxlab import symbolic_trace
from fxlab.values.containers import contents, has_contents, put_back


class NotInstalled:
    """Stands for something of a package that is not there, and raises whatever is asked of it."""

    __hash__ = None

    def __getattr__(self, name):
        raise RuntimeError(f"{name}: not installed")

    def __eq__(self, other):
        raise RuntimeError("not installed")

    def __bool__(self):
        raise RuntimeError("not installed")

    @property
    def __class__(self):
        raise RuntimeError("not installed")


class Asked(type):
    def __getattribute__(cls, name):
        if name in ("__module__", "__dict__"):
            raise RuntimeError("not installed")
        return super().__getattribute__(name)


@pytest.fixture
def _hostile_file(monkeypatch):
    """Let the model be written in a file in which names stand for such objects, as lazy imports do."""
    file = ModuleType("file_of_a_model")
    vars(file).update(lazy=NotInstalled(), asked=Asked("OfAskedType", (), {}), HoldsAnything=HoldsAnything)
    monkeypatch.setitem(sys.modules, file.__name__, file)
    monkeypatch.setattr(HoldsAnything, "__module__", file.__name__)


class Frozen(OrderedDict):
    """A configuration that may not be written any more, as diffusers has them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        vars(self)["is_frozen"] = True

    def __setitem__(self, key, value):
        if vars(self).get("is_frozen"):
            raise RuntimeError("frozen")
        super().__setitem__(key, value)

    def _refused(self, *args, **kwargs):
        raise RuntimeError("frozen")

    update = copy = clear = pop = setdefault = _refused


class Unreadable(list):
    def __iter__(self):
        raise RuntimeError("not to be read")

    __getitem__ = __len__ = __iter__


class Name(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("not to be compared")


class HoldsAnything(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.frozen = Frozen(size=4)
        self.table = Frozen(scale=torch.ones(4))
        self.unreadable = Unreadable([torch.ones(4)])
        self.items = [NotInstalled()]
        self.by_name = {"lazy": NotInstalled(), "class": Asked("OfAskedType", (), {})}
        self.name = Name("a")
        vars(self)["lazy"] = NotInstalled()

    @property
    def config(self):
        raise RuntimeError("there is none")

    @property
    def base_model(self):
        raise RuntimeError("there is none")

    def forward(self, x):
        self.name = Name("a")
        return self.linear(x) * self.table["scale"] + list.__getitem__(self.unreadable, 0)


@pytest.mark.usefixtures("_hostile_file")
@pytest.mark.parametrize("dynamic", [True, False])
def test_objects_that_refuse_to_be_asked_are_harmless(dynamic):
    model = HoldsAnything().eval()
    traced = symbolic_trace(model, torch.randn(2, 4), dynamic=dynamic)
    assert traced.meta["trace"].steps_down == ()
    assert_agree(traced, model, (torch.randn(2 + dynamic, 4),))


_ITEMS = st.lists(st.integers(0, 5) | st.text(max_size=1), max_size=4)


@settings(max_examples=8)
@given(before=_ITEMS, after=_ITEMS, kind=st.sampled_from([list, deque, Frozen, dict]))
def test_what_is_put_back_is_what_was_there_in_its_order(before, after, kind):
    def made(items):
        return kind(dict.fromkeys(items, items) if issubclass(kind, dict) else items)

    value, other = made(before), made(after)
    kept = contents(value)
    put_back(value, contents(other))
    assert has_contents(value, contents(other))
    assert (list(value), dict.__len__(value) if issubclass(kind, dict) else len(value)) == (
        list(other),
        len(other),
    )
    put_back(value, kept)
    assert list(value) == list(made(before))
