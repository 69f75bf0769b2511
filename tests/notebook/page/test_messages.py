"""Everything a page sends is checked like any input from outside."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspected import MERGE, Page, state_of
from test_interrupts import Interrupter, lines_of

from fxlab.notebook.page.messages import (
    LONGEST_LIST,
    LONGEST_OUTLINE,
    LONGEST_TEXT,
    MESSAGES,
    MessageError,
    parse_message,
)

HUGE = "x" * (LONGEST_TEXT + 1)
WRONG: list[Any] = [None, 3, 1.5, float("nan"), "text", b"bytes", [], {}, [1, 2], True, HUGE, 10**5000]

LONE = "\ud800"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS: dict[str, tuple[st.SearchStrategy[Any], set[type], list[Any]]] = {
    "str": (TEXTS, {str}, [LONE]),
    "bool": (st.booleans(), {bool}, []),
    "int": (st.integers(), {int}, []),
    "int | None": (st.none() | st.integers(), {int, type(None)}, []),
    "list[int]": (st.lists(st.integers(), max_size=3), {list}, [["x"], [1.5], [1] * (LONGEST_LIST + 1)]),
    "list[str]": (st.lists(TEXTS, max_size=3), {list}, [[3], [HUGE], [LONE], ["x"] * (LONGEST_LIST + 1)]),
}
"""By how a field is annotated: what it may hold, of which types, and what of these types it may not."""


@st.composite
def good_messages(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(MESSAGES)))
    return {"type": kind, **{name: draw(FIELDS[hint][0]) for name, hint in MESSAGES[kind].fields.items()}}


def with_a_mistake(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message with a field more, and without each field or with something else in it."""
    yield {**content, "extra": 1}
    yield from ({**content, "request": wrong} for wrong in (3, LONE, HUGE))
    for name, hint in MESSAGES[content["type"]].fields.items():
        _, types, wrong_values = FIELDS[hint]
        if type(None) not in types:
            yield {key: value for key, value in content.items() if key != name}
        too_long = ["x" * ((LONGEST_OUTLINE if name == "outline" else LONGEST_TEXT) + 1)] * (hint == "str")
        others = [value for value in WRONG if type(value) not in types]
        yield from ({**content, name: wrong} for wrong in (*others, *wrong_values, *too_long))


def short(value: object) -> str:
    """Return an id for a test; huge integers have no text."""
    if isinstance(value, dict):
        return " ".join(short(item) for item in value.values())
    return repr(value[:12]) if isinstance(value, str) else type(value).__name__


@given(good_messages(), TEXTS)
def test_a_message_is_read_into_what_answers_it_and_its_fields(content, request):
    message, fields, asked = parse_message(content)
    assert message is MESSAGES[content["type"]]
    assert {"type": content["type"], **fields} == content
    assert asked is None
    assert parse_message({**content, "request": request}) == (message, fields, request)
    inspect.signature(message.answer).bind("inspector", **fields)


@given(good_messages())
def test_a_message_with_one_mistake_is_refused_in_few_words(content):
    for wrong in with_a_mistake(content):
        with pytest.raises(MessageError) as caught:
            parse_message(wrong)
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize("content", WRONG, ids=short)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(MessageError):
        parse_message(content)


@pytest.mark.parametrize("kind", [*WRONG, "Toggle", "toggle ", "__class__", "toggle\0"], ids=short)
def test_an_unknown_kind_is_refused_in_few_words(kind):
    with pytest.raises(MessageError, match="Unknown message type") as caught:
        parse_message({"type": kind})
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
    | st.builds(lambda fields, kind: {**fields, "type": kind}, some_fields, st.sampled_from(sorted(MESSAGES)))
)
def test_any_json_is_either_a_message_or_refused(content):
    try:
        message, _, _ = parse_message(content)
    except MessageError as error:
        json.dumps(str(error))
    else:
        assert message is MESSAGES[content["type"]]


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
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


UNKNOWN = ["nobody", "\0", "\ud800", "<script>alert(1)</script>", "Ω" * 500, "x" * LONGEST_TEXT, "../../etc"]


@pytest.mark.often(20)
@pytest.mark.slow
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
def test_names_that_nothing_has_become_words_on_the_screen(page: Page, content):
    page.switches(MERGE, True)
    assert page.error is None
    before, number = state_of(page.inspector.session), len(page.inspector._shown_data)
    for errors, text in enumerate(UNKNOWN):
        filled = {key: text if value == "?" else value for key, value in content.items()}
        *answers, done = page.sends({**filled, "request": "1"})
        assert answers == [{"type": "answer", "request": "1", "failed": True}]
        assert done == {"type": "done"}
        assert page.error["number"] == errors + 1
        assert 0 < len(page.error["text"]) < 5_000
        json.dumps(page.inspector._shown_status, ensure_ascii=False).encode()
        assert state_of(page.inspector.session) == before
        assert len(page.inspector._shown_data) == number


def test_no_text_is_echoed_that_cannot_be_sent(page: Page):
    assert page.sends({"type": "page-code", "request": "\ud800"}) == [{"type": "done"}]
    assert "unpaired surrogate" in page.error["text"]


@pytest.mark.parametrize(
    ("raised", "title"),
    [(ZeroDivisionError("by zero"), "Sending the inspector failed"), (KeyboardInterrupt(), "Interrupted")],
    ids=["an error", "an interrupt"],
)
def test_a_request_is_answered_once_whatever_ends_it(page: Page, monkeypatch, raised, title):
    def fails(*given):
        raise raised

    message = {"type": "page-code", "request": "7"}
    with monkeypatch.context() as patch:
        patch.setattr(type(page.inspector._code), "css", property(fails))
        received = page.sends(message)
    assert received == [{"type": "answer", "request": "7", "failed": True}, {"type": "done"}]
    assert page.error["title"] == title
    received = page.sends(message)
    assert [m["type"] for m in received] == ["answer", "done"]
    assert "failed" not in received[0]
    assert [m["type"] for m in page.sends({"type": "page-code"})] == ["done"], "nobody waits"


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
