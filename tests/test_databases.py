"""Torch's own databases of operators, modules, optimizers and cases of export: no graph is wrong."""

import pytest

pytestmark = [pytest.mark.weekly, pytest.mark.slow]


@pytest.mark.parametrize("database", ["operators", "modules", "optimizers", "export"])
def test_no_graph_is_wrong_and_most_entries_have_one(database):
    from benchmarks.databases import EQUAL, SHARE, WRONG, rows  # takes seconds, wherever tests are collected

    found = list(rows([database], SHARE))
    assert [row for row in found if row["outcome"] == WRONG] == []
    assert sum(row["outcome"] == EQUAL for row in found) > len(found) * 0.6
