"""Trying a pass out, as a page sees it."""

from __future__ import annotations

import pytest
from inspected import FUSE, MERGE, RAISE, Page, state_of

from fxlab import Session, TransformationError


def previews(page: Page, p) -> list[dict]:
    return page.sends({"type": "preview", "signature": p.signature})


def became(page: Page) -> dict[str, str]:
    """Return what would become of which nodes."""
    return {name: change for name, (change,) in page.marked().items()}


def test_a_preview_is_sent_and_the_session_is_as_it_was(page: Page, session: Session):
    inspector = page.inspector
    before, screen = state_of(session), (inspector._shown_passes, inspector._shown_tables)
    number, looks = page.number, inspector._shown_view
    assert [message["type"] for message in previews(page, FUSE)] == ["data", "done"]
    assert page.error is None
    changes = {"stem_conv": "changed", "stem_norm": "removed", "mean": "rewired"}
    assert became(page) == {"evaluation_mode": "added", **changes}
    assert inspector._shown_stages["preview"] == {
        "signature": FUSE.signature,
        "name": "Fuse batch norm2d in conv2d",
        "text": "1 rewrite: 1 conv and 1 batch norm become 1 conv",
        "graph": page.number,
    }
    page.sends({"type": "end-preview"})
    assert inspector._shown_stages["preview"] is None
    assert page.number == number
    assert (inspector._shown_passes, inspector._shown_tables) == screen
    assert inspector._shown_view == looks, "what was looked at is looked at again"
    assert state_of(session) == before


def test_a_previewed_node_is_described_and_cannot_be_excluded_yet(page: Page):
    previews(page, MERGE)
    page.inspector.selected = "query_key_merged"
    assert page.details("query_key_merged")["rewrites"] == []
    assert page.details("mul", "node")["arguments"]
    page.sends({"type": "end-preview"})
    assert page.inspector.selected is None


def test_a_preview_ends_when_the_pass_is_applied(page: Page, session: Session):
    previews(page, MERGE)
    page.switches(MERGE, True)
    assert session.applied == (MERGE,)
    assert page.inspector._shown_stages["preview"] is None
    assert page.marked() == {"query_key_merged": [MERGE.signature]} | page.marked()
    session.undo()
    assert not session._internals.can_undo, "there was one change"


def test_a_pass_that_raises_is_quoted_and_what_was_shown_stays(page: Page, session: Session):
    before = state_of(session)
    previews(page, MERGE)
    shown = page.inspector._shown_stages
    previews(page, RAISE)
    assert page.error["title"] == "Previewing Raise midway failed"
    assert "no such layer" in page.card(RAISE)["error"]["text"]
    assert page.inspector._shown_stages == shown
    assert state_of(session) == before


def test_an_interrupted_preview_changes_nothing(page: Page, session: Session, monkeypatch):
    before, shown = state_of(session), page.inspector._shown_stages

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "preview", interrupt)
        previews(page, MERGE)
    assert page.error["title"] == "Interrupted"
    assert page.inspector._shown_status["busy"] is None
    assert page.inspector._shown_stages == shown
    assert state_of(session) == before


def test_a_preview_is_shown_from_python(page: Page, session: Session):
    page.inspector.preview("merge-linears")
    assert became(page)["query_key_merged"] == "added"
    with pytest.raises(TransformationError, match="no such layer"):
        page.inspector.preview(RAISE)
    assert became(page)["query_key_merged"] == "added"
    page.inspector.end_preview()
    assert not became(page)
    assert session.applied == ()
