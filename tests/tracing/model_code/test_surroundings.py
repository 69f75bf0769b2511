"""No tensor of a run stays around the model, wherever the model keeps what it computes."""

import copy
import ctypes
import importlib
import io
import logging
import os
import pickle
import sysconfig
import threading
import weakref
from array import array
from collections import Counter, UserDict, deque, namedtuple
from contextvars import ContextVar
from types import SimpleNamespace

import caches_elsewhere
import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import fxlab
from fxlab.tracing.shapes.fake_state import require_gone

X = torch.randn(2, 8)


class Shifts(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.linear, self.shift = nn.Linear(8, 8), shift

    def forward(self, x):
        return self.linear(x) + self.shift(x.shape[-1])


class ShiftsByName(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.linear, self.name = nn.Linear(8, 8), name

    def forward(self, x):
        return self.linear(x) + caches_elsewhere.WAYS[self.name](x.shape[-1])


@pytest.mark.often(8)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.report.TraceWarning")
@pytest.mark.parametrize(("model_class", "has_run"), [(Shifts, False), (ShiftsByName, True)])
@pytest.mark.parametrize("way", caches_elsewhere.WAYS)
def test_a_cache_is_left_without_fakes_and_the_model_as_it_was(way, model_class, has_run):
    importlib.reload(caches_elsewhere)
    shift = caches_elsewhere.WAYS[way]
    model = model_class(shift if model_class is Shifts else way).eval()
    expected = model.linear(X) + torch.arange(8).float()
    if has_run:
        model(X)
    traced = fxlab.symbolic_trace(model, X, check=False)
    assert type(shift(8)) is torch.Tensor
    assert torch.equal(model(X), expected)
    assert torch.equal(traced(X), expected)


@pytest.mark.often(4)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.report.TraceWarning")
@pytest.mark.parametrize("way", caches_elsewhere.WAYS)
def test_packages_that_are_installed_are_compared_with_what_they_were_before(way, monkeypatch):
    importlib.reload(caches_elsewhere)
    packages = sysconfig.get_paths()["purelib"]
    monkeypatch.setattr(caches_elsewhere, "__file__", f"{packages}/caches_elsewhere.py")
    model = ShiftsByName(way).eval()
    expected = model.linear(X) + torch.arange(8).float()
    for _ in range(2):
        traced = fxlab.symbolic_trace(model, X)
        assert torch.equal(traced(X), expected)
        assert torch.equal(model(X), expected)  # which leaves real tensors in the cache


def test_a_tensor_that_only_a_frame_leads_to_goes_with_the_frame():
    references = []

    def fails():
        held = {"tensor": torch.ones(1)}
        references.append(weakref.ref(held["tensor"]))
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as raised:
        fails()
    require_gone(references)
    assert references[0]() is not None
    assert raised.traceback


COUNTED = 0


class Box:
    """Counts in an attribute of its class."""

    counted = 0


BOX, PAIR = Box(), ({"counts": [0]},)
HELD = {
    "bytearray": bytearray(3),
    "array": array("d", [0.0, 0.0]),
    "ctypes": (ctypes.c_long * 2)(),
    "numpy": np.zeros((2, 3)).T,
    "view": memoryview(bytearray(3)),
    "list": [0],
    "counter": Counter({0: 0}),
    "deque": deque([0], maxlen=3),
    "user dict": UserDict({0: 0}),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:.*specialised")
@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("place", ["global", "attribute", "closure", "argument"])
def test_what_functions_of_a_model_change_is_as_it_was(kind, place):
    held = HELD[kind]

    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            if place == "attribute":
                self.own = copy.copy(held) if kind != "view" else held
            elif place == "closure":
                self.own_function = lambda: held

        def forward(self, x, given=HELD[kind] if place == "argument" else None):
            if place == "global":
                given = HELD[kind]
            elif given is None:
                given = self.own if place == "attribute" else self.own_function()
            given[0] += 1
            return x * 2

    def state():
        value = model.own if place == "attribute" else held
        return bytes(value) if kind in ("view", "ctypes") else pickle.dumps(value)

    model = Changes()
    before = state()
    findings = fxlab.symbolic_trace(model, X).meta["trace"].findings
    assert state() == before
    assert any(finding.kind == "attribute" for finding in findings)


class Meta(type):
    """Counts the questions to its classes."""

    asked = 0

    def ask(cls):
        Meta.asked += 1
        return cls


Asked = Meta("Asked", (), {})
Pair = namedtuple("Pair", "items")
PAIRED, ORDERED, REFERENCE = Pair([]), {1: 1, 2: 2}, weakref.ref(KEPT := Box())


@pytest.mark.filterwarnings("ignore:.*specialised")
def test_order_weak_references_metaclasses_and_named_tuples_are_as_they_were():
    class Changes(nn.Module):
        def forward(self, x):
            first = next(iter(ORDERED))
            ORDERED[first] = ORDERED.pop(first)
            REFERENCE().seen = Asked.ask()
            PAIRED.items.append(1)
            return x * 2

    fxlab.symbolic_trace(Changes(), X)
    assert ([*ORDERED], vars(KEPT), Meta.asked, PAIRED) == ([1, 2], {}, 0, Pair([]))


def counted_in_a_class(value):
    """A class that only the variable of a function holds, by itself or in what it holds, counts."""

    def count(x):
        owner = value["class"] if isinstance(value, dict) else value
        owner.counted += 1
        return x * owner.counted

    return count, lambda: (value["class"] if isinstance(value, dict) else value).counted


def of_the_environment():
    def count(x):
        os.environ["FXLAB_COUNTED"] = os.environ.get("FXLAB_COUNTED", "") + "1"
        return x * len(os.environ["FXLAB_COUNTED"])

    return count, lambda: os.environ.get("FXLAB_COUNTED")


def of_a_context_variable(**default):
    variable = ContextVar("counted", **default)

    def count(x):
        variable.set(variable.get(0) + 1)
        return x * variable.get()

    return count, lambda: variable.get(None)


def of_a_tensor():
    tensor = torch.zeros(2)

    def count(x):
        tensor.counted = getattr(tensor, "counted", 0) + 1
        return x * tensor.counted

    return count, lambda: vars(tensor)


def of_a_setting(setting, setter, value):
    def count(x):
        before = setting()
        setter(value)
        return x * (1 if before == value else 2)

    return count, setting


COUNTS = {
    "class": counted_in_a_class(type("Counted", (), {"counted": 0})),
    "class in a dict": counted_in_a_class({"class": type("Counted", (), {"counted": 0})}),
    "metaclass": counted_in_a_class(type("Counted", (type,), {"counted": 0})),
    "environment": of_the_environment(),
    "context variable": of_a_context_variable(),
    "context variable with a default": of_a_context_variable(default=0),
    "attribute of a tensor": of_a_tensor(),
    "threads": of_a_setting(torch.get_num_threads, torch.set_num_threads, 3),
    "precision": of_a_setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "deterministic": of_a_setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_what_a_model_changes_around_it_is_as_it_was_and_told(kind):
    count, state = COUNTS[kind]

    class Counts(nn.Module):
        def forward(self, x):
            return count(x)

    before = copy.copy(state())
    with pytest.warns(fxlab.TraceWarning, match="the model has changed what the graph has not"):
        traced = fxlab.symbolic_trace(Counts(), X)
    assert state() == before
    assert traced.meta["trace"].of_kind("attribute")


@pytest.mark.parametrize("other", [True, False])
def test_operators_that_are_not_deterministic_go_on_warning_and_raise_no_error(other):
    class Sets(nn.Module):
        def forward(self, x):
            torch.use_deterministic_algorithms(other)
            return x * 2

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        traced = fxlab.symbolic_trace(Sets(), X)
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.use_deterministic_algorithms(False)
    assert [each.what for each in traced.meta["trace"].of_kind("attribute")] == ["deterministic_debug_mode"]


@pytest.mark.parametrize(
    "holder", [torch.zeros(2), SimpleNamespace(tensor=torch.zeros(2)), nn.BatchNorm1d(8)]
)
def test_a_tensor_around_a_model_is_as_it_was_and_written_by_the_graph(holder):
    def written():
        if isinstance(holder, nn.Module):
            return holder.num_batches_tracked
        return getattr(holder, "tensor", holder)

    class Writes(nn.Module):
        def forward(self, x):
            if isinstance(holder, nn.Module):
                return holder(x)
            return x * written().add_(1)[0]

    before, x = written().clone(), torch.randn(4, 8)
    traced = fxlab.symbolic_trace(Writes(), x, check=False)
    assert torch.equal(written(), before)
    traced(x)
    assert torch.equal(written(), before + 1)


class Watches(threading.Thread):
    woken = 0


class Output(io.TextIOBase):
    """Written into a buffer that is closed and taken away, as a kernel's other thread does."""

    def __init__(self):
        self.buffer = io.StringIO()

    def write(self, text):
        self.buffer.write(text)
        full, self.buffer = self.buffer, io.StringIO()
        full.close()
        return len(text)


LOGGED = logging.StreamHandler(Output())


@pytest.mark.parametrize(
    "trace", [fxlab.symbolic_trace, lambda *args: fxlab.trace_step(*args, loss=torch.sum)]
)
def test_streams_go_on_with_the_buffers_that_they_have(trace):
    class Logs(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            LOGGED.stream.write("forward")
            return self.linear(x)

    trace(Logs(), X)
    assert LOGGED.stream.write("later") == 5


class Ways(UserDict):
    """An abstract class, as its base classes are."""


WAYS = Ways()


def test_a_set_has_no_order():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.names, self.objects = {f"name{i}" for i in range(50)}, {Watches() for _ in range(9)}

        def forward(self, x):
            return x * len(self.names) * len(self.objects)

    model = Keeps()
    assert not fxlab.symbolic_trace(model, X).meta["trace"].of_kind("attribute")


class Hides:
    """Keeps what it is given where Python cannot be asked for it: in a frame that waits."""

    def __init__(self):
        def waits():
            given = None
            while True:
                given = given, (yield)

        self.frame = waits()
        next(self.frame)

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be copied")


def test_a_tensor_that_cannot_be_taken_away_is_told_in_words():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.hides = Hides()

        def forward(self, x):
            y = x * 2
            self.hides.frame.send(y)
            return y

    with pytest.raises(fxlab.TraceError, match="generator") as raised:
        fxlab.symbolic_trace(Keeps(), X, dynamic=False, check=False)
    assert raised.value.code == "tensor-kept"


def test_an_input_may_hold_what_was_made_of_it():
    class Notes(nn.Linear):
        def forward(self, x):
            x.note = super().forward(x)  # whose history holds the input
            return x.note * 2

    model, x = Notes(4, 4), torch.randn(2, 4)
    assert torch.equal(fxlab.symbolic_trace(model, x, check=False)(x), model(x))


def test_no_fake_tensor_is_left_when_a_trace_fails():
    class Fails(nn.Module):
        def forward(self, x):
            caches_elsewhere.DICT["before it fails"] = x * 2
            raise RuntimeError("it does not run")

    with pytest.raises(fxlab.TraceError):
        fxlab.symbolic_trace(Fails(), X)
    assert not isinstance(caches_elsewhere.DICT.pop("before it fails", None), FakeTensor)


LAST = []


class Unfinished(nn.Module):
    def __init__(self):
        UNFINISHED.append(self)
        raise ValueError("no")


UNFINISHED = []


def test_a_module_whose_init_has_raised_is_no_obstacle():
    with pytest.raises(ValueError, match="no"):
        Unfinished()
    try:
        step = fxlab.trace_step(
            nn.Linear(3, 2), torch.ones(1, 3), loss=lambda output: output.sum() + len(UNFINISHED)
        )
        assert fxlab.Session(step).verdict()
    finally:
        UNFINISHED.clear()
