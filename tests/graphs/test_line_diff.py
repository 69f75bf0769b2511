"""A difference in lines leads from one text to the other, and is found in no square of their length."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from fxlab.graphs.line_diff import Run, in_order, line_runs

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


@given(TEXTS)
def test_equal_texts_have_no_difference(lines):
    assert line_runs(lines, lines, (lines, lines)) == ([Run("same", len(lines))] if lines else [])


@given(
    st.lists(st.integers(), unique=True, max_size=30).map(lambda found: [str(n) for n in found]), st.data()
)
def test_of_unique_lines_in_one_order_only_those_that_differ_are_told(lines, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    after = [line for line, is_kept in zip(lines, kept, strict=True) if is_kept]
    runs = line_runs(lines, after, ([""] * len(lines), [""] * len(after)))
    assert {run.kind for run in runs} <= {"same", "removed"}


def test_lines_of_one_name_are_a_pair_that_has_changed():
    names = ["def", "x", "y", "out"], ["def", "x", "z", "y", "out"]
    runs = line_runs(["d", "x = 1", "y = x", "o"], ["d", "x = 2", "z = x", "y = z", "o"], names)
    assert runs == [Run("same", 1), Run("changed", 1), Run("added", 1), Run("changed", 1), Run("same", 1)]


def test_no_line_is_matched_twice():
    assert line_runs(["a", "b"], ["a", "a", "b"], (["", ""], ["", "", ""])) == [
        Run("same", 1),
        Run("added", 1),
        Run("same", 1),
    ]


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


def test_unique_values_correspond_as_far_as_they_keep_their_order():
    assert in_order("abcde", "cabed") == [(0, 1), (1, 2), (4, 3)]
