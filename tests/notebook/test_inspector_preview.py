"""Trying a pass out, as a page sees it."""

from __future__ import annotations

import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, RAISE, Page, state_of

from fxlab import Session, TransformationError


def previews(page: Page, p) -> list[dict]:
    return page.sends({"type": "preview", "signature": p.signature})


def became(page: Page) -> dict[str, str]:
    picture = page.inspector._shown_picture
    marked = [box for box in picture["boxes"].values() if box["node"] and box["marks"]]
    return {box["node"]: picture["signatures"][box["marks"][0]] for box in marked}


def test_a_preview_is_drawn_and_the_session_is_as_it_was(page: Page, session: Session):
    before, screen = state_of(session), (page.inspector._shown_passes, page.inspector._shown_tables)
    focus, _ = previews(page, FUSE)
    assert page.error is None
    assert became(page) == {
        "evaluation_mode": "added",
        "stem_conv": "changed",
        "stem_norm": "removed",
        "mean": "rewired",
    }
    assert page.inspector._shown_picture["preview"]
    assert set(focus["boxes"]) == {page.box_of(name) for name in became(page)}
    assert page.inspector._shown_stages["preview"] == {
        "signature": FUSE.signature,
        "name": "Fuse batch norm2d in conv2d",
        "text": "1 rewrite (1 node added, 1 removed, 1 changed, 1 rewired)",
    }
    assert state_of(session) == before
    assert (page.inspector._shown_passes, page.inspector._shown_tables) == screen
    assert page.inspector._shown_status["busy"] is None


def test_a_preview_is_left_without_a_trace(page: Page, session: Session):
    before, picture = state_of(session), page.inspector._shown_picture
    previews(page, MERGE)
    page.sends({"type": "select-node", "name": "query_key_merged", "show": True, "before": False})
    assert page.inspector.selected == "query_key_merged"
    assert page.inspector._shown_details["rewrites"] == [], "there is nothing to take back yet"
    page.sends({"type": "end-preview"})
    assert page.error is None
    assert page.inspector._shown_picture == picture
    assert page.inspector._shown_stages["preview"] is None
    assert page.inspector.selected is None
    assert state_of(session) == before


def test_a_preview_ends_when_the_pass_is_applied(page: Page, session: Session):
    previews(page, MERGE)
    page.switches(MERGE, True)
    assert session.applied == (MERGE,)
    assert page.inspector._shown_stages["preview"] is None
    assert not page.inspector._shown_picture["preview"]
    assert page.inspector._shown_picture["signatures"] == [p.signature for p in session.passes]
    session.undo()
    assert not session.can_undo, "there was one change"


def test_one_preview_replaces_another(page: Page):
    previews(page, MERGE)
    previews(page, MUL_TO_ADD)
    assert became(page) == {"mul": "changed"}
    page.sends({"type": "end-preview"})
    assert not became(page)


def test_a_pass_that_raises_is_quoted_and_what_was_shown_is_shown_again(page: Page, session: Session):
    before, picture = state_of(session), page.inspector._shown_picture
    previews(page, MERGE)
    previews(page, RAISE)
    assert page.error["title"] == "Previewing Raise midway failed"
    assert "no such layer" in page.card(RAISE)["error"]
    assert page.inspector._shown_stages["preview"] is None
    assert page.inspector._shown_picture == picture
    assert state_of(session) == before


def test_an_interrupted_preview_changes_nothing(page: Page, session: Session, monkeypatch):
    before, picture = state_of(session), page.inspector._shown_picture

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "preview", interrupt)
        previews(page, MERGE)
    assert page.error["title"] == "Interrupted"
    assert page.inspector._shown_status["busy"] is None
    assert page.inspector._shown_stages["preview"] is None
    assert page.inspector._shown_picture == picture
    assert state_of(session) == before


def test_a_pass_that_is_not_offered_is_named(page: Page):
    page.sends({"type": "preview", "signature": "nothing"})
    assert "no pass with the signature 'nothing'" in page.error["text"]


def test_a_preview_is_shown_from_python(page: Page, session: Session):
    page.inspector.preview("merge-linears")
    assert became(page)["query_key_merged"] == "added"
    with pytest.raises(TransformationError, match="no such layer"):
        page.inspector.preview(RAISE)
    assert not became(page)
    page.inspector.end_preview()
    assert session.applied == ()
