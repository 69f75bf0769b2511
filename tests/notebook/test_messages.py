"""Everything a page sends is checked like any input from outside."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspected import MERGE, Page, state_of

from fxlab.notebook.messages import LONGEST_TEXT, MESSAGES, MessageError, parse_message

GOOD: list[dict[str, Any]] = [
    {"type": "toggle", "signature": "s", "on": True},
    {"type": "preview", "signature": "s"},
    {"type": "end-preview"},
    {"type": "exclude", "signature": "s", "node": "x"},
    {"type": "include", "signature": "s", "node": "x"},
    {"type": "move", "signature": "s", "place": 0},
    {"type": "list-offers", "request": "1"},
    {"type": "add", "key": "k", "arguments": {"size": "3"}},
    {"type": "remove", "signature": "s"},
    {"type": "undo"},
    {"type": "redo"},
    {"type": "reset"},
    {"type": "refresh"},
    {"type": "overview"},
    {"type": "clear-selection"},
    {"type": "judge"},
    {"type": "measure", "name": "speed"},
    {"type": "open", "path": "stem"},
    {"type": "close", "path": "stem"},
    {"type": "select-node", "name": "x", "show": False, "before": False},
    {"type": "select-group", "path": "stem", "before": True},
    {"type": "reveal-pass", "signature": "s"},
    {"type": "search", "query": "x", "request": "1"},
    {"type": "filter", "query": "x"},
    {"type": "export-dot", "request": "1"},
    {"type": "export-pdf", "request": "1"},
    {"type": "show-stage", "stage": 1, "compared": "original", "beside": True},
    {"type": "show-stage", "stage": 3, "compared": 1, "beside": False},
    {"type": "show-node", "name": "x", "stage": 2},
    {"type": "show-overlay", "name": "flops"},
]
HUGE = "x" * (LONGEST_TEXT + 1)
WRONG: list[Any] = [None, 3, 1.5, float("nan"), "text", b"bytes", [], {}, [1, 2], True, HUGE, 10**5000]


EITHER = {"compared": (str, int)}
"""Fields that may be of several types."""


def kinds(message: dict[str, Any]) -> str:
    return str(message["type"])


def short(value: object) -> str:
    """Return an id for a test; huge integers have no text."""
    if isinstance(value, dict):
        return " ".join(short(item) for item in value.values())
    return repr(value[:12]) if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize("content", GOOD, ids=kinds)
def test_a_message_is_read_into_what_answers_it_and_its_fields(content):
    message, fields = parse_message(content)
    assert message is MESSAGES[content["type"]]
    assert {"type": content["type"], **fields} == content
    inspect.signature(message.answer).bind("inspector", **fields)


def test_every_kind_of_message_is_tried_here():
    assert {content["type"] for content in GOOD} == MESSAGES.keys()


@pytest.mark.parametrize("content", WRONG, ids=short)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(MessageError):
        parse_message(content)


@pytest.mark.parametrize("kind", [*WRONG, "Toggle", "toggle ", "__class__", "select-node\0"], ids=short)
def test_an_unknown_kind_is_refused_in_few_words(kind):
    with pytest.raises(MessageError, match="Unknown message type") as caught:
        parse_message({"type": kind})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("content", GOOD, ids=kinds)
def test_a_message_with_one_field_more_is_refused(content):
    with pytest.raises(MessageError, match="no field"):
        parse_message({**content, "extra": 1})


@pytest.mark.parametrize(("content", "field"), [(m, f) for m in GOOD for f in m if f != "type"], ids=short)
def test_a_message_without_one_of_its_fields_is_refused(content, field):
    with pytest.raises(MessageError, match=f"'{field}'.* expected"):
        parse_message({key: value for key, value in content.items() if key != field})


@pytest.mark.parametrize(
    ("content", "field", "wrong"),
    [
        (message, field, wrong)
        for message in GOOD
        for field, right in message.items()
        for wrong in WRONG
        if field != "type" and (type(wrong) not in EITHER.get(field, (type(right),)) or wrong is HUGE)
    ],
    ids=short,
)
def test_a_field_of_the_wrong_type_or_size_is_refused(content, field, wrong):
    with pytest.raises(MessageError) as caught:
        parse_message({**content, field: wrong})
    assert len(str(caught.value)) < 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
some_fields = st.dictionaries(
    st.sampled_from(["signature", "on", "path", "name", "show", "query", "request", "extra"]), json_values
)


@given(
    json_values
    | st.builds(
        lambda fields, kind: {**fields, "type": kind}, some_fields, st.sampled_from([*map(kinds, GOOD)])
    )
)
def test_any_json_is_either_a_message_or_refused(content):
    try:
        message, _ = parse_message(content)
    except MessageError as error:
        json.dumps(str(error))
    else:
        assert message is MESSAGES[content["type"]]


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(json_values | some_fields.map(lambda fields: {"type": "toggle", **fields}))
def test_nonsense_becomes_words_on_the_screen_and_changes_nothing(page: Page, content):
    session = page.inspector.session
    before, number = state_of(session), (page.error or {"number": 0})["number"]
    answers = page.sends(content)
    assert answers == [{"type": "done"}]
    assert page.error["number"] == number + 1
    assert page.error["text"]
    assert len(page.error["text"]) < 5_000
    assert page.inspector._shown_status["busy"] is None
    assert state_of(session) == before


UNKNOWN = [
    "nobody",
    "\0",
    "\ud800",
    "<script>alert(1)</script>",
    "Ω" * 500,
    "x" * LONGEST_TEXT,
    "../../etc",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", UNKNOWN, ids=short)
@pytest.mark.parametrize(
    "content",
    [
        {"type": "toggle", "signature": "?", "on": True},
        {"type": "toggle", "signature": "?", "on": False},
        {"type": "open", "path": "?"},
        {"type": "close", "path": "?"},
        {"type": "preview", "signature": "?"},
        {"type": "select-node", "name": "?", "show": True, "before": False},
        {"type": "select-node", "name": "?", "show": False, "before": True},
        {"type": "select-group", "path": "?", "before": False},
        {"type": "select-group", "path": "?", "before": True},
        {"type": "reveal-pass", "signature": "?"},
    ],
    ids=short,
)
def test_names_that_nothing_has_become_words_on_the_screen(page: Page, content, text):
    page.switches(MERGE, True)
    assert page.error is None
    before, details = state_of(page.inspector.session), page.inspector._shown_details
    page.sends({key: text if value == "?" else value for key, value in content.items()})
    assert page.error is not None
    assert 0 < len(page.error["text"]) < 5_000
    json.dumps(page.inspector._shown_status, ensure_ascii=False).encode()
    assert state_of(page.inspector.session) == before
    assert page.inspector._shown_details == details


def test_no_text_is_echoed_that_cannot_be_sent(page: Page):
    assert page.sends({"type": "search", "query": "x", "request": "\ud800"}) == [{"type": "done"}]
    assert "unpaired surrogate" in page.error["text"]


@pytest.mark.parametrize("kind", ["open", "close"])
def test_the_model_itself_is_always_open(page: Page, kind):
    page.sends({"type": kind, "path": ""})
    assert page.error is None
    assert page.box_of("output")


def test_the_screen_works_after_nonsense(page: Page):
    for content in WRONG:
        page.sends(content)
    page.switches(MERGE, True)
    assert page.card(MERGE)["on"]
    assert page.error is None


def test_a_name_of_a_pass_is_no_signature(page: Page):
    page.sends({"type": "toggle", "signature": MERGE.name, "on": True})
    assert "no pass with the signature" in page.error["text"]
    assert not page.inspector.session.applied
