"""A read of the mode that decides nothing is none, and one that gives a number decides: one run tells."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fxlab
from fxlab.tracing.model_code.mode_reads import decides_nothing
from fxlab.tracing.recording import recorder


class Reader:
    """Has a flag, of which it asks whether its reads decide anything."""

    zero, half, nothing, name = 0.0, 0.5, None, "a"

    def __init__(self, flag):
        self.value, self.idle, self.ran = flag, [], False

    @property
    def flag(self):
        self.idle.append(decides_nothing(sys._getframe(1)))
        return self.value

    @property
    def computed(self):
        self.ran = True
        return 0.0


def function(line):
    """Return a function of a reader, with more before and after a line than the compiler would copy."""
    lines = [
        "def function(m, two=2):",
        " x = [None]",
        f" {line}",
        " while len(x) < 2: x.append(x)",
        " return x[0]",
    ]
    names = {}
    exec("\n".join(lines), names)
    return names["function"]


IDLE = [
    "x[0] = dict(p=0.0 if not m.flag else m.zero)",
    "x[0] = dict(p=m.zero if m.flag else 0.0)",
    "x[0] = dict(p=0.5 if m.flag and m.half > 1 else 0.5)",
    "if m.flag and m.zero > 0.0: x[0] = 1",
    "if m.flag is True and m.half <= m.zero: x[0] = 1",
    "if not (m.flag or two != 3): x[0] = 1",
]
NOT_IDLE = [
    "x[0] = dict(p=0.0 if not m.flag else m.half)",
    "x[0] = dict(p=0 if not m.flag else m.zero)",
    "x[0] = dict(p=0.0 if not m.flag else -0.0)",
    "x[0] = dict(p=0.0 if not m.flag else m.computed)",
    "x[0] = dict(p=0.0 if not m.flag else m.missing)",
    "x[0] = dict(p=[] if m.flag else [])",
    "x[0] = m.flag",
    "x[0] = dict(p=0.0) if m.flag else dict(p=0.0)",
    "if m.flag and x: x[0] = 1",
    "if m.flag: x[0] = None",
    "while m.flag: m.value = False",
    "x[0] = getattr(m, 'flag')",
]


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("line", IDLE + NOT_IDLE)
def test_a_read_is_idle_if_both_ways_meet_with_the_same_values(line, flag):
    reader = Reader(flag)
    if flag and "missing" in line:
        with pytest.raises(AttributeError):
            function(line)(reader)
    else:
        function(line)(reader)
    assert reader.idle[0] is (line in IDLE)
    assert reader.ran is (flag and "computed" in line)


VALUES = st.sampled_from(
    ["0.0", "0.5", "None", "True", "m.zero", "m.half", "m.nothing", "m.name", "two", "x"]
)
CONDITIONS = st.recursive(
    st.sampled_from(["m.flag", "m.zero > 0.0", "m.half < 1", "m.nothing is None", "two == 2"]),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | inner.map("not {}".format)
    ),
    max_leaves=4,
)


@given(
    condition=CONDITIONS,
    one=VALUES,
    other=VALUES,
    line=st.sampled_from(
        ["x[0] = dict(p={one} if {condition} else {other})", "if {condition}: x[0] = {one}"]
    ),
)
def test_what_is_idle_gives_the_same_for_both_values(condition, one, other, line):
    run = function(line.format(condition=condition, one=one, other=other))
    readers = Reader(False), Reader(True)
    results = [repr(run(reader)) for reader in readers]
    if any(reader.idle and all(reader.idle) for reader in readers):
        assert results[0] == results[1]


class Attention(nn.Module):
    """Chooses a probability as the layers of transformers do."""

    def __init__(self, probability):
        super().__init__()
        self.linear, self.probability = nn.Linear(4, 4), probability

    def forward(self, x):
        x = self.linear(x)
        return nn.functional.dropout(x, p=0.0 if not self.training else self.probability, training=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_a_model_whose_reads_are_idle_or_give_a_number_is_recorded_once(training, probability, monkeypatch):
    recorded, record = [], recorder.record

    def counting(*args, **kwargs):
        recorded.append(1)
        return record(*args, **kwargs)

    monkeypatch.setattr(recorder, "record", counting)
    x = torch.randn(3, 4)
    model = Attention(probability).train(training)
    traced = fxlab.symbolic_trace(model, x, check=False)
    assert len(recorded) == 1
    if probability == 0:
        for mode in (False, True):
            assert torch.equal(traced.train(mode)(x), model.train(mode)(x))
    else:
        with pytest.raises(AssertionError, match="mode"):
            traced.train(not training)(x)
