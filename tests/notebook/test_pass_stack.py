"""What a page does to the stack of passes: their order, and which there are."""

from __future__ import annotations

from inspected import FUSE, MERGE, MUL_TO_ADD, RAISE, Page, make_session

from fxlab import Session
from fxlab.notebook import Inspector


def names(page: Page) -> list[str]:
    return [card["key"] for card in page.inspector._shown_passes["passes"]]


def test_a_pass_is_moved(page: Page, session: Session) -> None:
    before = names(page)
    page.switches(MERGE, True)
    page.sends({"type": "move", "signature": MERGE.signature, "place": 0})
    assert names(page) == [MERGE.name, *(name for name in before if name != MERGE.name)]
    assert page.card(MERGE)["on"]
    assert page.inspector._shown_passes["canUndo"]
    page.sends({"type": "undo"})
    assert names(page) == before
    assert page.error is None


def test_a_place_that_there_is_not_becomes_words(page: Page, session: Session) -> None:
    before = session.passes
    page.sends({"type": "move", "signature": MERGE.signature, "place": 10**6})
    assert "index from 0" in page.error["text"]
    assert session.passes == before


def test_an_order_in_which_a_pass_raises_is_said_on_its_card() -> None:
    session = make_session(FUSE, RAISE)
    page = Page(Inspector(session))
    session.apply(FUSE)
    page.sends({"type": "move", "signature": RAISE.signature, "place": 0})
    assert names(page) == [RAISE.name, FUSE.name]
    page.sends({"type": "toggle", "signature": RAISE.signature, "on": True})
    assert "no such layer" in page.card(RAISE)["error"]["text"]
    assert session.applied == (FUSE,)


def test_a_pass_is_removed_and_added_again(page: Page, session: Session) -> None:
    page.switches(MUL_TO_ADD, True)
    page.sends({"type": "remove", "signature": MUL_TO_ADD.signature})
    assert MUL_TO_ADD.name not in names(page)
    assert session.graph_module is session.original
    offers = page.asks({"type": "list-offers"})
    own = f"{type(MUL_TO_ADD).__module__}.MulToAdd"
    (key,) = (offer["key"] for offer in offers if offer["key"] == own)
    page.sends({"type": "add", "key": key, "arguments": {}})
    assert names(page)[-1] == MUL_TO_ADD.name
    assert page.error is None


def test_what_cannot_be_added_becomes_words(page: Page, session: Session) -> None:
    count = len(session.passes)
    page.sends({"type": "add", "key": "no such <key>", "arguments": {}})
    assert "no such <key>" in page.error["text"]
    assert len(session.passes) == count
