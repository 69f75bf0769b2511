"""What a page does to the stack of passes: their order, and which there are."""

from __future__ import annotations

from inspected import FUSE, MERGE, MUL_TO_ADD, RAISE, Page, make_session

from fxlab import Session
from fxlab.notebook.inspector import Inspector


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
    session.add(MUL_TO_ADD)
    assert names(page)[-1] == MUL_TO_ADD.name
    assert page.error is None


def test_candidates_are_looked_for_after_the_first_picture_and_in_parts(page: Page, monkeypatch) -> None:
    monkeypatch.setattr("fxlab.notebook.screen._LOOKS_FOR_S", -1)
    cards = page.inspector._shown_passes["passes"]
    assert all(card["isLooking"] for card in cards)
    assert page.data.others["matches"] == {}
    for left in reversed(range(len(cards))):
        is_all = page.asks({"type": "candidates"})
        looking = [card["isLooking"] for card in page.inspector._shown_passes["passes"]]
        assert (sum(looking), is_all) == (left, left == 0)
    assert page.card(FUSE)["candidates"] == "1 candidate: 1 batch norm"
    assert page.card(MERGE)["candidates"] == "1 candidate: 2 linears"
    assert page.data.others["matches"][MERGE.signature] == ["head_query", "head_key"]


def test_a_search_for_candidates_can_be_interrupted(page: Page, monkeypatch) -> None:
    def interrupt(session, p):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fxlab.notebook.screen.explain", interrupt)
        assert page.asks({"type": "candidates"})
    assert "interrupted" in page.card(FUSE)["note"]
    page.switches(FUSE, True)
    assert page.card(FUSE)["changes"] == "1 rewrite: 1 conv and 1 batch norm become 1 conv"
    assert page.card(FUSE)["note"] == ""
