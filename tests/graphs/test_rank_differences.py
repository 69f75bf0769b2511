"""Graphs of several ranks whose collectives do not meet."""

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab

C10D = torch.ops._c10d_functional


def reduced(x, kind="sum", group="0"):
    return C10D.wait_tensor(C10D.all_reduce(x, kind, group))


def gathered(x, size=2, group="0"):
    return C10D.wait_tensor(C10D.all_gather_into_tensor(x, size, group))


def both(x):
    return reduced(x.sin()), gathered(x)


def test_ranks_that_agree_have_no_rows_whatever_else_they_compute():
    def other(x):
        y = gathered(x.cos()), x + 1
        return y, x

    assert fxlab.steps.compare_collectives([fx.symbolic_trace(both), fx.symbolic_trace(both)]).empty

    def elsewhere(x):
        return reduced(x * 2 + 1), gathered(x.cos())

    ranks = {3: fx.symbolic_trace(both), 5: fx.symbolic_trace(elsewhere)}
    assert fxlab.steps.compare_collectives(ranks).empty


def test_another_order_a_missing_and_an_additional_collective_are_named():
    def swapped(x):
        later = gathered(x)
        return reduced(x.sin()), later

    table = fxlab.steps.compare_collectives([fx.symbolic_trace(both), fx.symbolic_trace(swapped)])
    assert set(table["change"]) == {"missing", "additional"}
    assert table.iloc[0][["rank", "place", "group"]].tolist() == [1, 0, "group 0"]

    def fewer(x):
        return reduced(x.sin()), x

    table = fxlab.steps.compare_collectives([*[fx.symbolic_trace(both)] * 2, fx.symbolic_trace(fewer)])
    assert table.iloc[0].to_dict() == {
        "rank": 2,
        "group": "group 0",
        "place": 1,
        "change": "missing",
        "expected": "all_gather",
        "found": "",
        "node": "",
        "expected_node": "all_gather_into_tensor",
    }
    assert len(table) == 1


def test_shapes_dtypes_and_orders_across_groups_have_to_agree():
    x = torch.ones(4)
    wide = make_fx(lambda x: reduced_without_group(x), tracing_mode="fake")
    ranks = [wide(x), wide(torch.ones(5)), wide(x.double())]
    table = fxlab.steps.compare_collectives(ranks)
    assert table[["rank", "expected", "found"]].to_numpy().tolist() == [
        [1, "all_reduce (sum) of 4 f32", "all_reduce (sum) of 5 f32"],
        [2, "all_reduce (sum) of 4 f32", "all_reduce (sum) of 4 f64"],
    ]

    def first(x):
        return reduced(x, group="a"), reduced(x, group="b")

    def second(x):
        later = reduced(x, group="b")
        return reduced(x, group="a"), later

    assert not fxlab.steps.compare_collectives([fx.symbolic_trace(first), fx.symbolic_trace(second)]).empty


def reduced_without_group(x):
    return C10D.all_reduce(x, "sum", "0")


def test_groups_that_a_rank_is_not_in_are_not_asked_of_it():
    def inner(x):
        return reduced(gathered(x, 4), group="left")

    def outer(x):
        return reduced(gathered(x, 4), group="right")

    ranks = [fx.symbolic_trace(each) for each in (inner, outer, inner, outer)]
    assert fxlab.steps.compare_collectives(ranks).empty
    with pytest.raises(ValueError, match="at least two"):
        fxlab.steps.compare_collectives(ranks[:1])
    with pytest.raises(TypeError, match="a list or a mapping"):
        fxlab.steps.compare_collectives(ranks[0])


def test_ranks_stand_side_by_side_by_name_and_nothing_is_run(tmp_path):
    def maximum(x):
        return reduced(x.sin(), "max"), gathered(x)

    ranks = tuple(fx.symbolic_trace(function) for function in (both, both, maximum))
    inspector = fxlab.inspect(ranks)
    assert inspector.panes == [0, 1, 2]
    inspector.close()
    first, same, other = inspector.session.stages
    assert fxlab.graph_diff(first, same).empty
    assert fxlab.graph_diff(first, other)["change"].to_dict() == {"all_reduce": "changed"}
    assert "all_reduce (max)" in inspector.session.applied[1].description
    assert fxlab.report(ranks, path=tmp_path / "ranks.html").exists()
