"""Everything a page sends is checked like any input from outside."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspected import MERGE, Page, state_of
from test_interrupts import Interrupter, lines_of

from fxlab.notebook.page.messages import LONGEST_TEXT, MESSAGES, MessageError, parse_message

GOOD: list[dict[str, Any]] = [
    {"type": "toggle", "signature": "s", "on": True},
    {"type": "preview", "signature": "s"},
    {"type": "end-preview"},
    {"type": "set-option", "name": "dce", "on": True},
    {"type": "exclude", "signature": "s", "node": "x"},
    {"type": "include", "signature": "s", "node": "x"},
    {"type": "rewrite", "signature": "s", "number": 1},
    {"type": "apply-up-to", "signature": "s", "count": 1},
    {"type": "near-miss", "signature": "s", "node": "x"},
    {"type": "move", "signature": "s", "place": 0},
    {"type": "list-offers"},
    {"type": "add", "key": "k", "arguments": {"size": "3"}},
    {"type": "remove", "signature": "s"},
    {"type": "undo"},
    {"type": "redo"},
    {"type": "reset"},
    {"type": "refresh"},
    {"type": "judge"},
    {"type": "measure", "name": "speed"},
    {"type": "open-batch", "number": 3},
    {"type": "graph", "version": 1, "stage": 1, "before": 0, "beside": True},
    {"type": "graph", "version": 1, "stage": 1, "before": None, "beside": False},
    {"type": "code", "version": 1, "stage": 1, "before": None},
    {"type": "rest", "graph": 0},
    {"type": "candidates"},
    {"type": "details", "graph": 0, "kind": "node", "name": "x"},
    {"type": "overlay", "graph": 0, "name": "flops"},
    {"type": "value", "graph": 0, "name": "x", "before": 0, "inputs": ""},
    {
        "type": "value-part",
        "graph": 0,
        "name": "x",
        "before": None,
        "inputs": "",
        "tensor": 0,
        "rows": 1,
        "columns": None,
        "index": [3],
    },
    {"type": "lay-out", "outline": "digraph {"},
    {"type": "file", "suffix": "pdf"},
    {"type": "page-code"},
    {"type": "place", "name": "k2j4-1", "on": True},
    {"type": "all-data"},
]
HUGE = "x" * (LONGEST_TEXT + 1)
WRONG: list[Any] = [None, 3, 1.5, float("nan"), "text", b"bytes", [], {}, [1, 2], True, HUGE, 10**5000]


EITHER = {
    **dict.fromkeys(("before", "rows", "columns"), (int, type(None))),
    "index": (list,),
}
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
    message, fields, request = parse_message(content)
    assert message is MESSAGES[content["type"]]
    assert {"type": content["type"], **fields} == content
    assert request is None
    assert parse_message({**content, "request": "7"}) == (message, fields, "7")
    inspect.signature(message.answer).bind("inspector", **fields)


def test_every_kind_of_message_is_tried_here():
    assert {content["type"] for content in GOOD} == MESSAGES.keys()


@pytest.mark.parametrize("content", WRONG, ids=short)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(MessageError):
        parse_message(content)


@pytest.mark.parametrize("kind", [*WRONG, "Toggle", "toggle ", "__class__", "toggle\0"], ids=short)
def test_an_unknown_kind_is_refused_in_few_words(kind):
    with pytest.raises(MessageError, match="Unknown message type") as caught:
        parse_message({"type": kind})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("content", GOOD, ids=kinds)
def test_a_message_with_one_field_more_is_refused(content):
    with pytest.raises(MessageError, match="no field"):
        parse_message({**content, "extra": 1})


@pytest.mark.parametrize(
    ("content", "field"), [(m, f) for m in GOOD for f in m if f not in ("type", *EITHER)], ids=short
)
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
        if field != "type"
        and (type(wrong) not in EITHER.get(field, (type(right),)) or wrong is HUGE)
        and (field, wrong) != ("outline", HUGE)
    ],
    ids=short,
)
def test_a_field_of_the_wrong_type_or_size_is_refused(content, field, wrong):
    with pytest.raises(MessageError) as caught:
        parse_message({**content, field: wrong})
    assert len(str(caught.value)) < 600


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
some_fields = st.dictionaries(
    st.sampled_from(["signature", "on", "graph", "name", "kind", "outline", "request", "extra"]), json_values
)


@pytest.mark.slow
@given(
    json_values
    | st.builds(
        lambda fields, kind: {**fields, "type": kind}, some_fields, st.sampled_from([*map(kinds, GOOD)])
    )
)
def test_any_json_is_either_a_message_or_refused(content):
    try:
        message, _, _ = parse_message(content)
    except MessageError as error:
        json.dumps(str(error))
    else:
        assert message is MESSAGES[content["type"]]


@pytest.mark.slow
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(json_values | some_fields.map(lambda fields: {"type": "toggle", **fields}))
def test_nonsense_becomes_words_on_the_screen_and_changes_nothing(page: Page, content):
    session = page.inspector.session
    before, number = state_of(session), (page.error or {"number": 0})["number"]
    *answers, done = page.sends(content)
    assert done == {"type": "done"}
    request = content.get("request") if isinstance(content, dict) else None
    failed = [{"type": "answer", "request": request, "failed": True}] if isinstance(request, str) else []
    assert answers == failed
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
        {"type": "preview", "signature": "?"},
        {"type": "measure", "name": "?"},
        {"type": "details", "graph": 0, "kind": "node", "name": "?"},
        {"type": "details", "graph": 0, "kind": "group", "name": "?"},
        {"type": "details", "graph": 0, "kind": "?", "name": "mul"},
        {"type": "overlay", "graph": 0, "name": "?"},
        {"type": "lay-out", "outline": "?"},
    ],
    ids=short,
)
def test_names_that_nothing_has_become_words_on_the_screen(page: Page, content, text):
    page.switches(MERGE, True)
    assert page.error is None
    before, number = state_of(page.inspector.session), len(page.inspector._shown_data)
    filled = {key: text if value == "?" else value for key, value in content.items()}
    *answers, done = page.sends({**filled, "request": "1"})
    assert answers == [{"type": "answer", "request": "1", "failed": True}]
    assert done == {"type": "done"}
    assert page.error is not None
    assert 0 < len(page.error["text"]) < 5_000
    json.dumps(page.inspector._shown_status, ensure_ascii=False).encode()
    assert state_of(page.inspector.session) == before
    assert len(page.inspector._shown_data) == number


def test_no_text_is_echoed_that_cannot_be_sent(page: Page):
    assert page.sends({"type": "list-offers", "request": "\ud800"}) == [{"type": "done"}]
    assert "unpaired surrogate" in page.error["text"]


@pytest.mark.parametrize(
    ("raised", "title"),
    [(ZeroDivisionError("by zero"), "Listing the passes failed"), (KeyboardInterrupt(), "Interrupted")],
    ids=["an error", "an interrupt"],
)
def test_a_request_is_answered_once_whatever_ends_it(page: Page, monkeypatch, raised, title):
    def fails(session):
        raise raised

    message = {"type": "list-offers", "request": "7"}
    with monkeypatch.context() as patch:
        patch.setattr("fxlab.view_model.pass_offer.offers", fails)
        received = page.sends(message)
    assert received == [{"type": "answer", "request": "7", "failed": True}, {"type": "done"}]
    assert page.error["title"] == title
    received = page.sends(message)
    assert [m["type"] for m in received] == ["answer", "done"]
    assert "failed" not in received[0]
    assert [m["type"] for m in page.sends({"type": "list-offers"})] == ["done"], "nobody waits"


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.97])
def test_wherever_an_answer_is_interrupted_the_page_is_told_once(page: Page, share: float):
    page.looks_for_candidates()

    def ask():
        page.sends({"type": "details", "graph": 0, "kind": "node", "name": "mul", "request": "7"})

    with Interrupter(int(share * lines_of(ask))):
        ask()
    assert [m["type"] for m in page.received] == ["answer", "done"]
    assert page.inspector._shown_status["busy"] is None


def test_a_text_that_is_too_long_is_answered_too(page: Page):
    message = {"type": "details", "graph": 0, "kind": "node", "name": HUGE, "request": "7"}
    assert page.sends(message)[0] == {"type": "answer", "request": "7", "failed": True}
    assert "too long" in page.error["text"]


def test_a_page_that_opens_late_is_sent_all_of_the_graphs(page: Page):
    page.switches(MERGE, True)
    parts = list(page.inspector._shown_data)
    *sent, done = page.sends({"type": "all-data"})
    assert sent == [{"type": "data", "number": number} for number in range(len(parts))]
    assert page.buffers == parts
    assert len(parts) > 1
    assert done == {"type": "done"}


def test_a_page_that_cannot_read_what_widgets_share_is_sent_its_code(page: Page):
    code = page.asks({"type": "page-code"})
    assert code.keys() == {"code", "css", "worker"}
    assert "Graphviz" in code["worker"]


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
