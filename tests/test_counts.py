"""Fixed tasks take no more work than they did: calls, operators and bytes, which no load changes."""

import pytest

from benchmarks.counts import TOLERANCE, counted_elsewhere, counts, kept

pytestmark = pytest.mark.slow


def test_no_task_takes_more_work_than_was_kept():
    """After a gain, or a loss that is worth it: ``python -m benchmarks.counts write``."""
    found, before = counts(), kept()
    # With other versions, of Python or torch, counts are others; twice as many are too many.
    most = {key: number * (1 + TOLERANCE) for key, number in before.items()} or {
        key: number * 2 for key, number in counted_elsewhere().items()
    }
    assert found.keys() == most.keys()
    assert {key: number for key, number in found.items() if number > most[key]} == {}
