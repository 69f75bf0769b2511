"""A model that is looked at first: the same session, errors and warnings as at once."""

import ctypes
import functools
import struct
import warnings

import pytest
import torch
from torch import nn

from fxlab import Session
from fxlab.session.first_look import FirstLook, first_look
from fxlab.tracing.report import DATA, REAL


class Attends(nn.Module):
    """Reads its mode, a size and a mask."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x, mask):
        x = self.inner(x) * mask.unsqueeze(-1)
        return nn.functional.dropout(x, 0.5, self.training) if x.shape[1] > 2 else x


class Counts(nn.Module):
    """Writes a buffer, and broadcasts a size of one."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x) + torch.arange(x.shape[0]).unsqueeze(-1)


class Decides(nn.Module):
    def forward(self, x):
        return x * 2 if x.max() > 0 else x


class ReadsArrays(nn.Module):
    def forward(self, x):
        return x + float(x.numpy().sum())


class Remembers(nn.Module):
    def forward(self, x):
        self.last = getattr(self, "last", 0) + 1
        return x * self.last


class ReadsMemory(nn.Module):
    """No graph is this model, whichever way it is recorded: others' data is read behind torch's back."""

    def forward(self, x):
        (first,) = struct.unpack("f", ctypes.string_at(x.data_ptr(), 4))
        return x - first


class Raises(nn.Module):
    def forward(self, x):
        return x @ x.relu()


CASES = {
    "reads": (lambda: Attends().eval(), lambda: (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))),
    "trains": (Attends, lambda: (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))),
    "one row": (lambda: Counts().eval(), lambda: (torch.randn(1, 3),)),
    "writes": (Counts, lambda: (torch.randn(5, 3),)),
    "decides": (Decides, lambda: (torch.ones(2, 3),)),
    "reads numbers": (ReadsArrays, lambda: (torch.ones(2, 3),)),
    "remembers": (Remembers, lambda: (torch.ones(2, 3),)),
    "is another": (ReadsMemory, lambda: (torch.tensor([2.0, 3.0]),)),
    "raises": (Raises, lambda: (torch.ones(2, 3),)),
    "on meta": (lambda: nn.Linear(3, 2, device="meta"), lambda: (torch.ones(4, 3, device="meta"),)),
    "no inputs": (Decides, lambda: None),
}


def _looked_at(model, inputs):
    look = first_look(model, inputs)
    assert isinstance(look, FirstLook)
    for _ in range(100):
        if look.check(in_slices=True):
            return look.session
    raise AssertionError("the check never ends")


def _outcome(make, model, inputs):
    """Return all that a person sees: the graph and its report, or the error, and the warnings."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            session = make(model(), inputs())
        except Exception as error:
            found = type(error), getattr(error, "code", None), str(error)
        else:
            original = session.original
            found = str(original.graph), original.meta["trace"], session.inputs is None
    return found, [(each.category, str(each.message)) for each in told]


@functools.cache
def _of_session(case):
    return _outcome(Session, *CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_a_first_look_ends_as_a_session_that_is_checked_at_once(case):
    assert _outcome(_looked_at, *CASES[case]) == _of_session(case)


def test_the_cases_are_of_all_kinds():
    outcomes = {case: _of_session(case)[0] for case in CASES}
    reports = {case: found[1].rung for case, found in outcomes.items() if isinstance(found[0], str)}
    assert {DATA, REAL} <= {*reports.values()}
    assert CASES.keys() - reports.keys() == {"is another", "raises", "no inputs"}


def _trains(model, inputs):
    model.train()


def _learns(model, inputs):
    with torch.no_grad():
        model.inner.weight.add_(1)


def _is_shorter(model, inputs):
    model.forward = lambda x, mask: x * 3


def _gets_other_inputs(model, inputs):
    inputs[0].fill_(3)


@pytest.mark.often(3)
@pytest.mark.parametrize("change", [_trains, _learns, _is_shorter, _gets_other_inputs])
@pytest.mark.parametrize("slices", [0, 1])
def test_a_model_that_is_changed_meanwhile_is_recorded_again(change, slices):
    model, inputs = Attends().eval(), (torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.int64))
    look = first_look(model, inputs)
    for _ in range(slices):
        assert not look.check(in_slices=True)
    change(model, inputs)
    assert look.check(in_slices=False)
    assert look.is_recorded_again
    again = Session(model, inputs)
    assert str(look.session.original.graph) == str(again.original.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the model has changed since it was traced
        assert look.session.verdict()


def test_the_check_runs_under_the_settings_of_the_recording():
    class Makes(nn.Module):
        def forward(self, x):
            return x + torch.ones(3) if torch.is_grad_enabled() else x

    with torch.no_grad():
        look = first_look(Makes(), torch.ones(2, 3))
    torch.set_default_dtype(torch.float64)
    try:
        assert look.check(in_slices=False)
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.is_grad_enabled()
    assert not look.is_recorded_again
    assert len(look.session.original.graph.find_nodes(op="call_function", target=torch.ones)) == 0
