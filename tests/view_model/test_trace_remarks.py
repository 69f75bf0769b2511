"""A specialised trace says so in lines; one that holds for all inputs says nothing."""

from __future__ import annotations

import inspect
import json
import warnings

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab.html_report.report import _data
from fxlab.notebook.inspector import Inspector
from fxlab.tracing.report import Finding, Found, TraceReport
from fxlab.view_model.session_remarks import _ADVICE, trace_remarks


class DecidesOnData(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class LoopsOverRows(nn.Module):
    def forward(self, x):
        total = 0
        for row in x:
            total = total + row
        return total


class ReadsItsMode(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.1, self.training)


class ReadsASetting(nn.Module):
    def forward(self, x):
        return x + 1 if torch.is_grad_enabled() else x


class LeavesTorch(nn.Module):
    def forward(self, x):
        return x * float(x.numpy().sum())


def traced(model: nn.Module) -> fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fxlab.symbolic_trace(model.eval(), torch.ones(3, 4))


@pytest.mark.parametrize(
    ("model", "code", "what"),
    [
        (DecidesOnData(), "if x.sum() > 0:", "item == 1: the branch taken is held"),
        (LoopsOverRows(), "", "x.shape[0]: fixed at 3, though the model takes other sizes"),
        (ReadsASetting(), "return x + 1 if torch.is_grad_enabled() else x", "the graph holds for True"),
        (LeavesTorch(), "return x * float(x.numpy().sum())", "Traced on real inputs"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_remark_names_the_line_of_the_model_what_it_means_and_what_helps(model, code, what):
    remark = trace_remarks(traced(model))[0]
    assert what in remark["what"]
    assert remark["code"] == code
    if code:
        lines, first = inspect.getsourcelines(type(model))
        file, _, line = remark["place"].rpartition(":")
        assert (file, lines[int(line) - first].strip()) == (__file__, code)
    assert remark["means"]
    assert remark["advice"]


def test_a_line_that_a_finding_tells_is_not_told_again_by_the_step():
    assert len(trace_remarks(traced(DecidesOnData()))) == 1


@pytest.mark.parametrize("model", [nn.Linear(4, 4), nn.Sequential(nn.Dropout()), ReadsItsMode()])
def test_a_trace_that_holds_for_all_has_no_remarks(model):
    assert trace_remarks(traced(model)) == []


def test_a_graph_from_elsewhere_has_no_remarks():
    assert trace_remarks(fx.symbolic_trace(nn.Linear(4, 4))) == []


def test_all_limits_have_words_and_none_of_the_others_is_a_remark():
    words = ("size", "other", "dtype", "value", "shape", "mode", "reason", "error", "paths")
    details = dict.fromkeys(words, "y")
    findings = [found("x", difference="z", **details) for found in Found]
    model_takes_no_others = Found.FIXED_SIZE, Found.NARROW_SIZE
    limits = [found for found in Found if found.value[0] in _ADVICE and found not in model_takes_no_others]
    module = fx.symbolic_trace(nn.ReLU())
    module.meta["trace"] = TraceReport("dynamic shapes", tuple(findings))
    assert len(trace_remarks(module)) == len(limits)
    assert {found.value[0] for found in limits} == _ADVICE.keys()


def test_text_of_a_model_is_clipped_and_plain():
    module = fx.symbolic_trace(nn.ReLU())
    finding = Finding("branch on data", "<b>" + "x" * 10_000, "held\nfor\udc00", "no such file.py:3")
    module.meta["trace"] = TraceReport("dynamic shapes", (finding,), ("fixed shapes: why (at a",))
    step, remark = trace_remarks(module)
    assert len(remark["what"]) < 500
    assert (remark["place"], remark["code"]) == ("no such file.py:3", "")
    assert (step["what"], step["place"]) == ("Traced on dynamic shapes: why (at a", "")
    json.dumps([step, remark]).encode()


def test_the_inspector_and_a_report_have_the_remarks_once():
    session = fxlab.Session(traced(DecidesOnData()), torch.ones(3, 4))
    inspector = Inspector(session)
    sent: list[dict] = []
    inspector._send_data = lambda data, anew: sent.append(dict(data))  # type: ignore[method-assign]
    session.apply("fold-constants")
    session.revert("fold-constants")
    assert not any("remarks" in part for part in sent)
    told = _data(session, False)["data"]["remarks"]
    assert told["about"] == "The traced graph is specialised"
    assert told["remarks"] == trace_remarks(session.original)
    inspector.close()
