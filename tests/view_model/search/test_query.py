"""How a query is read."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxlab.view_model.search.query import FIELDS, MOST_TERMS, QueryError, Term, parse_query

FRONTEND = Path(__file__).parents[3] / "frontend" / "src"


def test_each_example_is_one_term_of_its_field():
    assert {name: [term.field for term in parse_query(example)] for name, example in FIELDS.items()} == {
        name: [name] for name in FIELDS
    }


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \t ", []),
        ('""', []),
        ("Linear", [("", "Linear", False)]),
        ("a -b", [("", "a", False), ("", "b", True)]),
        ("a a", [("", "a", False)]),
        ("-", [("", "-", False)]),
        ("OP:call_module", [("op", "call_module", False)]),
        ("-op:get_attr", [("op", "get_attr", True)]),
        ('source:"x = y"', [("source", "x = y", False)]),
        ('"two words', [("", "two words", False)]),
        ("shape:(2, 12)", [("shape", "(2, 12)", False)]),
        ("shape:[2, 12] x", [("shape", "[2, 12]", False), ("", "x", False)]),
        ("shape:(2, 1", [("shape", "(2, 1", False)]),
        ("aten::add", [("", "aten::add", False)]),
        ("model.py:12", [("", "model.py:12", False)]),
        ("source:model.py:12", [("source", "model.py:12", False)]),
        ("path:a..b", [("path", "a..b", False)]),
    ],
)
def test_terms_are_words_or_have_a_field(text: str, terms: list[tuple[str, str, bool]]) -> None:
    assert parse_query(text) == [Term(*term) for term in terms]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("opp:call_module", 'There is no field "opp". Fields are name, op,'),
        ("op:", "op: needs a value, such as op:call_module"),
        ('by:""', "by: needs a value"),
        (" ".join(map(str, range(MOST_TERMS + 1))), "at most"),
        (f"{'x' * 10_000}:1", "There is no field"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(text: str, words: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(text)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


some_text = st.text(st.sampled_from('ab:-"()[]. \t\n×x2op') | st.characters(), max_size=40)  # noqa: RUF001


@given(some_text)
def test_any_text_is_read_or_refused_in_a_line(text: str) -> None:
    terms = []
    with contextlib.suppress(QueryError):
        terms = parse_query(text)
    assert all(term.value and (term.field == "" or term.field in FIELDS) for term in terms)


@given(
    st.sampled_from(["", *FIELDS]), st.from_regex(r"[a-z0-9_. ]*[a-z0-9_.]", fullmatch=True), st.booleans()
)
def test_a_term_in_quotes_is_read_as_it_was_meant(field: str, value: str, negated: bool) -> None:
    text = f'{"-" * negated}{field}{":" * bool(field)}"{value}"'
    assert parse_query(f"x {text}")[-1] == Term(field, value, negated)


def test_the_page_offers_the_same_fields() -> None:
    offered = re.findall(
        r'field: "(\w+)", example: "([^"]+)"', (FRONTEND / "panels" / "query_help.ts").read_text()
    )
    assert dict(offered) == FIELDS
