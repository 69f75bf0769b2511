"""Plots of the tables, and what they say where there is nothing to draw."""

import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import plot_benchmark, plot_node_differences


class Model(nn.Module):
    def forward(self, x):
        return ((x / 3).exp() / 7).sin()


@pytest.fixture(scope="module")
def compared():
    graph, changed = (
        fx.symbolic_trace(Model()),
        fxlab.ChangeTrueDivToMulByInverse()(fx.symbolic_trace(Model())),
    )
    inputs = torch.linspace(-1, 1, 1000)
    return fxlab.compare_nodes(graph, changed, inputs), fxlab.verdict(graph, changed, inputs)


def lines(figure):
    return {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}


def test_errors_are_drawn_where_there_are_any_with_the_models_own_rounding(compared):
    table, verdict = compared
    figure = plot_node_differences(table, verdict)
    drawn = lines(figure)
    for column, label in (("accumulated", "accumulated"), ("introduced", "introduced by the node")):
        np.testing.assert_array_equal(drawn[label], table[column].replace(0, np.nan))
    assert np.isnan(drawn["introduced by the node"]).any()
    assert drawn["the model's own rounding"][0] == verdict.table["own_error"].max()
    assert figure.axes[0].get_yscale() == "log"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == list(table.index)
    assert "the model's own rounding" not in lines(plot_node_differences(table))


def test_a_long_graph_names_some_of_its_nodes(compared):
    table = pd.concat([compared[0]] * 100)
    assert len(plot_node_differences(table).axes[0].get_xticklabels()) <= 16


def test_where_there_is_no_error_it_is_said(compared):
    zeros = compared[0].assign(accumulated=0.0, introduced=0.0)
    words = [text.get_text() for text in plot_node_differences(zeros).axes[0].texts]
    assert words == ["every bit is the same"]
    assert not plot_node_differences(compared[0]).axes[0].texts


@pytest.mark.slow
def test_infinite_errors_are_drawn_at_the_edge():
    table = pd.DataFrame({"accumulated": [0.0, np.inf], "introduced": [0.0, np.inf]}, index=["a", "b"])
    figure = plot_node_differences(table)
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1], [1]]
    assert figure._repr_svg_()


def test_a_notebook_shows_them_as_svg_that_asks_nobody_for_anything(compared):
    svg = plot_node_differences(*compared)._repr_svg_()
    assert "<svg" in svg
    assert "truediv" in svg
    assert 'href="http' not in svg
    assert "<script" not in svg
    assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()


def test_names_are_never_read_as_formulas_or_markup():
    names = ["$\\frac$", "<script>alert(1)</script>", "a_{b}"]
    table = pd.DataFrame({"accumulated": 1e-3, "introduced": 1e-4}, index=names)
    svg = plot_node_differences(table)._repr_svg_()
    assert "$\\frac$" in svg
    assert "<script>" not in svg


def test_the_time_of_each_combination_is_a_bar_with_its_spread():
    table = pd.DataFrame(
        {
            "time": [2e-3, 1e-3, 5e-6],
            "ratio": [1.0, 0.5, 1.5],
            "ratio_low": [1.0, 0.4, 1.2],
            "ratio_high": [1.0, 0.6, 1.9],
            "outcome": ["", "faster", "slower"],
        },
        index=["original", "merge-linears", "merge-linears + fuse"],
    )
    figure = plot_benchmark(table)
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 0.5, 1.5]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 3
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "original  2 ms",
        "merge-linears  1 ms",
        "merge-linears + fuse  5 µs",
    ]
    assert axes.get_xlim()[1] > 1.9
    assert figure._repr_svg_()


def test_a_disturbed_round_does_not_make_the_bars_too_small_to_compare():
    row = {"time": 1.0, "ratio": 1.0, "ratio_low": 0.5, "ratio_high": 90.0, "outcome": ""}
    assert plot_benchmark(pd.DataFrame([row])).axes[0].get_xlim() == (0, 2.5)


def test_long_names_keep_what_tells_them_apart():
    table = pd.DataFrame({"accumulated": 1e-3, "introduced": 1e-4}, index=["x" * 100 + "_dense"])
    (label,) = plot_node_differences(table).axes[0].get_xticklabels()
    assert label.get_text().startswith("…")
    assert label.get_text().endswith("_dense")
    assert len(label.get_text()) == 26


def test_bad_input_is_named(compared):
    table, verdict = compared
    for plot in (plot_node_differences, plot_benchmark):
        with pytest.raises(TypeError, match=r"table: expected what fxlab\..* returns, got list"):
            plot([1])
        with pytest.raises(ValueError, match="it has no column"):
            plot(pd.DataFrame({"x": [1]}))
    with pytest.raises(ValueError, match="no rows"):
        plot_node_differences(table.iloc[:0])
    with pytest.raises(TypeError, match=r"verdict: expected what fxlab\.verdict returns, got str"):
        plot_node_differences(table, str(verdict))


def test_without_matplotlib_it_is_said_what_to_install(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'fxlab\[plots\]'"):
        plot_node_differences(compared[0])
