"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from fxlab.base.units import short_count, with_unit
from fxlab.base.words import counted


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.0, "s", "0 s"),
        (1.5, "s", "1.5 s"),
        (0.0021234, "s", "2.12 ms"),
        (3.4e-8, "s", "0.034 µs"),
        (100.0, "B", "100 B"),
        (1536.0, "B", "1.5 KiB"),
        (5 * 2.0**30, "B", "5 GiB"),
        (9999.0, "", "9999"),
        (12_345_678.0, "", "12.3 M"),
        (0.000123, "", "1.23e-04"),
        (0.5, "", "0.5"),
        (math.inf, "s", "∞"),
        (math.nan, "", "NaN"),
    ],
)
def test_numbers_are_short_and_have_units(value: float, unit: str, words: str):
    assert with_unit(value, unit) == words


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999, "999"),
        (1_000, "1.0K"),
        (99_949, "99.9K"),
        (99_950, "100K"),
        (7_087_872, "7.1M"),
        (405_853_388_800, "406B"),
        (10**12, "1.0T"),
    ],
)
def test_large_numbers_are_said_as_people_say_them(count: int, text: str) -> None:
    assert short_count(count) == text


def test_one_is_said_without_an_s():
    assert [counted(n, "node") for n in (0, 1, 1_234)] == ["0 nodes", "1 node", "1,234 nodes"]
    assert [counted(2, word) for word in ("entry", "key", "pass")] == ["2 entries", "2 keys", "2 passes"]
