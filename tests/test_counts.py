"""Fixed tasks take no more work than they did: calls, operators and bytes, which no load changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.counts import TOLERANCE, counted_elsewhere, kept

pytestmark = pytest.mark.slow
COUNT = "import json; from benchmarks.counts import counts; print(json.dumps([*counts().items()]))"


@pytest.mark.weekly
def test_no_task_takes_more_work_than_was_kept():
    """After a gain, or a loss that is worth it: ``python -m benchmarks.counts write``."""
    # In a process of its own: in this one there are all tests, which are around a model.
    root = Path(__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNT], cwd=root, capture_output=True, text=True, check=True
    )
    found = {tuple(key): number for key, number in json.loads(ran.stdout)}
    # With other versions, of Python or torch, counts are others; twice as many are too many.
    most = {key: number * (1 + TOLERANCE) for key, number in kept().items()} or {
        key: number * 2 for key, number in counted_elsewhere().items()
    }
    assert found.keys() == most.keys()
    assert {key: number for key, number in found.items() if number > most[key]} == {}
