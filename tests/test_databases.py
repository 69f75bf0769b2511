"""Torch's own databases of operators, modules, optimizers and cases of export: no graph is wrong."""

import pytest

from benchmarks.databases import DATABASES, EQUAL, WRONG, rows

pytestmark = [pytest.mark.weekly, pytest.mark.slow]
SHARE = {"operators": 5, "modules": 3, "optimizers": 3, "export": 1}
"""Of how many entries one is tried; ``python -m benchmarks.databases`` tries all."""


@pytest.mark.parametrize("database", DATABASES)
def test_no_graph_is_wrong_and_most_entries_have_one(database):
    found = list(rows([database], every=SHARE[database]))
    assert [row for row in found if row["outcome"] == WRONG] == []
    assert sum(row["outcome"] == EQUAL for row in found) > len(found) * 0.6
