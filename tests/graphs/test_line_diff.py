"""A difference in lines leads from one text to the other, and is found in no square of their length."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from fxlab.graphs.line_diff import Run, line_runs

TEXTS = st.lists(st.sampled_from("abcdefg"), max_size=12)
NAMES = st.lists(st.sampled_from(["", "1", "2", "3", "4"]), min_size=12, max_size=12)


def applied(runs: list[Run], before: list[str], after: list[str]) -> list[str]:
    """Return the text that a difference makes of the one before, with new lines taken from the one after."""
    i = j = 0
    made: list[str] = []
    for run in runs:
        old, new = run.steps
        made += before[i : i + old] if run.kind == "same" else after[j : j + new]
        i, j = i + old, j + new
    assert (i, j) == (len(before), len(after))
    return made


@given(TEXTS, TEXTS, NAMES, NAMES)
def test_applied_to_the_text_before_it_gives_the_one_after(before, after, names_before, names_after):
    names = names_before[: len(before)], names_after[: len(after)]
    runs = line_runs(before, after, names)
    assert applied(runs, before, after) == after
    assert all(run.length > 0 for run in runs)
    assert all(a.kind != b.kind for a, b in itertools.pairwise(runs))


def test_every_second_line_changed_takes_no_square_of_time():
    count = 20_000
    names = [f"n{i}" for i in range(count)]
    before = [f"{name} = 1" for name in names]
    after = [f"{name} = {i % 2}" for i, name in enumerate(names)]
    start = time.perf_counter()
    runs = line_runs(before, after, (names, names))
    # With difflib it takes minutes.
    assert time.perf_counter() - start < 10
    assert sum(run.length for run in runs if run.kind == "changed") == count // 2
