"""The difference of generated code as text, as a table and as HTML."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

import fxlab

HOSTILE = "</pre><img src=x onerror='hacked = 1'>&"


class Halves(nn.Module):
    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.depth = depth
        self.add_module(HOSTILE, nn.ReLU())

    def forward(self, x):
        for _ in range(self.depth):
            x = torch.relu(x)
        return self.get_submodule(HOSTILE)(x / 2.0)


@pytest.fixture
def session() -> fxlab.Session:
    session = fxlab.Session(fx.symbolic_trace(Halves()), torch.ones(2))
    session.apply("change-true-div-to-mul-by-inverse")
    return session


def test_a_session_is_compared_with_its_original(session):
    lines = str(fxlab.code_diff(session.original, session.graph_module)).splitlines()
    assert [line for line in lines if line[0] in "-+"] == [
        "-    truediv = relu_11 / 2.0;  relu_11 = None",
        "+    truediv = relu_11 * 0.5;  relu_11 = None",
    ]
    assert "... 10 equal lines ..." in lines


def test_equal_code_says_so(session):
    same = fxlab.code_diff(session.original, session.original)
    assert not same
    assert str(same) == "The code is the same: 16 lines."
    assert "16 lines" in same._repr_html_()


def test_the_table_has_a_row_for_each_line_and_its_nodes(session):
    table = fxlab.code_diff(session.original, session.graph_module).table
    changed = table[table["change"] != "same"]
    assert changed["nodes"].tolist() == [("truediv",)]
    assert (changed["line_before"].item(), changed["line"].item()) == (14, 14)
    assert changed["after"].item() == "    truediv = relu_11 * 0.5;  relu_11 = None"
    assert len(table) == 16


def test_rows_of_removed_lines_have_no_line_after():
    before = fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Dropout(), nn.ReLU()).eval())
    after = fxlab.RemoveIdentities()(fx.symbolic_trace(before))
    table = fxlab.code_diff(before, after).table
    (removed,) = table[table["change"] == "removed"].to_dict("records")
    assert (removed["nodes"], removed["after"]) == (("_1",), None)
    assert table["line"].dropna().tolist() == list(range(1, len(after.code.strip().splitlines()) + 1))


def test_html_escapes_what_comes_from_a_model(session):
    shown = fxlab.code_diff(session.original, session.graph_module)._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
    assert shown.count("<pre") == shown.count("</pre>") == 1


def test_a_difference_of_thousands_of_lines_is_cut_as_html():
    before, after = Halves(3_000), Halves(1)
    shown = fxlab.code_diff(fx.symbolic_trace(after), fx.symbolic_trace(before))._repr_html_()
    assert shown.count("<div") == 2_000
    assert "more lines" in shown


def test_what_is_no_model_is_named(session):
    with pytest.raises(TypeError, match=r"reference: expected a torch\.nn\.Module"):
        fxlab.code_diff("model", session.graph_module)
