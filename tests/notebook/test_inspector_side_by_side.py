"""Two stages beside each other, as a page sees them."""

from __future__ import annotations

import pandas as pd
import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, Page

import fxlab.overlays.overlay

BESIDE = {"type": "show-stage", "stage": 2, "compared": "original", "beside": True}


@pytest.fixture
def beside(page: Page) -> Page:
    page.switches(FUSE, True)
    page.switches(MERGE, True)
    page.sends(BESIDE)
    assert page.error is None
    return page


def nodes_of(picture: dict) -> set[str]:
    return {box["node"] for box in picture["boxes"].values()} - {None}


def select(page: Page, name: str, *, before: bool, show: bool = False) -> list[dict]:
    return page.sends({"type": "select-node", "name": name, "show": show, "before": before})


def test_both_stages_are_sent_and_no_more_than_what_is_seen(beside: Page):
    after, before = beside.inspector._shown_picture, beside.inspector._shown_before["picture"]
    assert {"stem_conv", "stem_norm", "head_query"} <= nodes_of(before)
    assert "stem_norm" not in nodes_of(after)
    assert "query_key_merged" in nodes_of(after) - nodes_of(before)
    assert after["compared"]
    assert before["compared"]
    beside.sends({"type": "close", "path": "head"})
    closed = beside.inspector._shown_before["picture"]
    assert len(closed["svg"]) < len(before["svg"])
    assert "head_query" not in nodes_of(closed) | nodes_of(beside.inspector._shown_picture)


def test_selecting_on_one_side_names_the_counterparts_on_the_other(beside: Page):
    conv = beside.box_of("stem_conv")
    assert select(beside, "stem_norm", before=True) == [{"type": "done"}]
    details = beside.inspector._shown_details
    assert (details["name"], details["before"], details["counterparts"]) == ("stem_norm", True, [conv])
    select(beside, "stem_conv", before=False)
    details = beside.inspector._shown_details
    before = beside.inspector._shown_before["picture"]["boxes"]
    assert not details["before"]
    assert [before[box]["node"] for box in details["counterparts"]] == ["stem_conv", "stem_norm"]


def test_a_group_is_selected_on_both_sides(beside: Page):
    beside.sends({"type": "select-group", "path": "head", "before": True})
    details = beside.inspector._shown_details
    assert (details["path"], details["before"]) == ("head", True)
    assert details["counterparts"] == [details["box"]], "boxes of one path have one id"
    assert int(next(f["value"] for f in details["fields"] if f["label"] == "Nodes")) == 5


def test_a_row_of_a_table_leads_to_a_node_that_is_gone(beside: Page):
    focus, _ = select(beside, "stem_norm", before=False, show=True)
    assert focus == {
        "type": "focus",
        "boxes": [beside.inspector._shown_details["box"]],
        "gently": False,
        "before": True,
    }
    assert beside.error is None
    assert beside.inspector._shown_details["before"]
    assert beside.inspector.selected == "stem_norm"


def test_the_stage_beside_goes_when_its_pass_is_switched_off(beside: Page):
    select(beside, "stem_norm", before=True)
    beside.switches(FUSE, False)
    assert beside.inspector._shown_stages["beside"], "there still are two stages"
    assert nodes_of(beside.inspector._shown_before["picture"]) >= {"stem_norm", "head_query"}
    assert beside.inspector.selected == "stem_norm"
    beside.switches(MERGE, False)
    assert beside.error is None
    assert beside.inspector._shown_before == {}
    assert beside.inspector.selected is None
    assert beside.inspector._shown_details["kind"] == "model"
    select(beside, "stem_norm", before=True)
    assert "no node named 'stem_norm'" in beside.error["text"]


def test_what_a_pass_changes_is_brought_into_sight_on_both_sides(beside: Page):
    beside.sends({"type": "close", "path": "head"})
    beside.switches(MUL_TO_ADD, True)
    assert beside.inspector._shown_stages["shown"] == 3
    for picture in (beside.inspector._shown_picture, beside.inspector._shown_before["picture"]):
        marks = next(box["marks"] for box in picture["boxes"].values() if box["node"] == "mul")
        assert [picture["signatures"][mark] for mark in marks] == ["changed"]


def test_one_graph_again_forgets_what_was_selected_beside(beside: Page):
    select(beside, "stem_norm", before=True)
    beside.sends({**BESIDE, "beside": False})
    assert beside.inspector._shown_before == {}
    assert beside.inspector.selected is None
    assert "stem_norm" in nodes_of(beside.inspector._shown_picture), "the two as one graph"


def test_a_stage_alone_has_nothing_beside_it(page: Page):
    page.switches(MERGE, True)
    page.sends({"type": "show-stage", "stage": 1, "compared": "", "beside": True})
    assert "compared with" in page.error["text"]
    assert page.inspector._shown_before == {}
    page.sends({"type": "select-group", "path": "head", "before": True})
    assert "no group named 'head'" in page.error["text"]


def test_both_stages_are_coloured_each_by_its_own_values(beside: Page):
    beside.sends({"type": "show-overlay", "name": "parameters"})
    after, before = (beside.inspector._shown_overlays[side] for side in ("overlay", "before"))
    inspector = beside.inspector
    assert set(after["values"]) <= set(inspector._shown_picture["boxes"])
    assert set(before["values"]) <= set(inspector._shown_before["picture"]["boxes"])
    assert (after["total"], before["total"]) == (162, 170), "the batch norm had 8"
    beside.sends({**BESIDE, "beside": False})
    assert inspector._shown_overlays["before"] is None
    assert inspector._shown_overlays["overlay"]["total"] == 162


def test_a_stage_is_measured_once_as_long_as_it_is_on_the_screen(beside: Page, monkeypatch):
    measured = []
    profile = fxlab.overlays.overlay.profile
    monkeypatch.setattr(
        "fxlab.overlays.overlay.profile", lambda gm, *rest: measured.append(gm) or profile(gm, *rest)
    )
    stages = beside.inspector.session.stages
    for name in ("flops", "memory", "flops"):
        beside.sends({"type": "show-overlay", "name": name})
    assert measured == [stages[2], stages[0]]
    beside.sends({**BESIDE, "compared": "below"})
    assert measured == [stages[2], stages[0], stages[1]]
    beside.sends({"type": "close", "path": "head"})
    assert measured[3:] == []
    assert beside.error is None


def test_colours_that_somebody_gave_are_on_both_sides_by_name(beside: Page):
    beside.inspector.overlay(pd.Series({"stem_conv": 3, "stem_norm": 5}, name="mine"))
    after, before = (beside.inspector._shown_overlays[side]["values"] for side in ("overlay", "before"))
    assert max(after.values()) == 3
    assert set(before.values()) == {3, 5, 8}


def test_two_stages_are_shown_side_by_side_from_python(page: Page):
    page.switches(MERGE, True)
    page.inspector.show_stage(1, "original", beside=True)
    assert nodes_of(page.inspector._shown_before["picture"])
    page.inspector.close_group("head")
    assert "relu" not in nodes_of(page.inspector._shown_before["picture"])


def test_both_stages_are_exported_from_left_to_right(beside: Page):
    dot, _ = beside.sends({"type": "export-dot", "request": "1"})
    left, right = dot["text"].split('subgraph "cluster_side-1" {')
    assert ">Original<" in left
    assert "BatchNorm2d" in left
    assert ">2. " in right
    assert "query_key_merged" in right
    assert "BatchNorm2d" not in right
    beside.sends({"type": "export-pdf", "request": "2"})
    (data,) = beside.buffers
    assert data.startswith(b"%PDF-1.")
    beside.sends({"type": "show-overlay", "name": "parameters"})
    dot, _ = beside.sends({"type": "export-dot", "request": "3"})
    assert dot["text"].count(">Parameters<") == 1


def test_any_earlier_stage_is_shown_beside_or_in_one_graph(beside: Page):
    beside.switches(MUL_TO_ADD, True)
    session = beside.inspector.session
    for stage in range(4):
        for before in range(stage):
            beside.sends({**BESIDE, "stage": stage, "compared": before})
            assert beside.error is None
            state = beside.inspector._shown_stages
            assert (state["shown"], state["before"], state["compared"]) == (stage, before, before)
            assert state["comparisons"] == list(range(stage))
            known = {node.name for node in session.stages[before].graph.nodes}
            assert nodes_of(beside.inspector._shown_before["picture"]) <= known
            beside.sends({**BESIDE, "stage": stage, "compared": before, "beside": False})
            assert beside.inspector._shown_before == {}
            assert beside.inspector._shown_picture["compared"]
    beside.sends({**BESIDE, "stage": 2, "compared": 2})
    assert "Stage 2 cannot be compared with 2" in beside.error["text"]
    assert beside.inspector._shown_stages["shown"] == 3


def test_a_node_is_shown_at_its_stage_if_what_is_shown_has_it_not(page: Page):
    page.switches(FUSE, True)
    page.switches(MERGE, True)
    focus, _ = page.sends({"type": "show-node", "name": "stem_norm", "stage": 0})
    assert page.inspector._shown_stages["shown"] == 0
    assert page.inspector.selected == "stem_norm"
    assert focus["boxes"] == [page.box_of("stem_norm")]
    page.sends({"type": "show-node", "name": "query_key_merged", "stage": 2})
    assert (page.inspector._shown_stages["shown"], page.inspector.selected) == (2, "query_key_merged")
    page.sends({"type": "show-node", "name": "relu", "stage": 0})
    assert page.inspector._shown_stages["shown"] == 2, "what is shown has it"
    assert page.error is None


@pytest.mark.parametrize(("compared", "expected"), [("below", 0), (1, 0)])
def test_the_comparison_stays_when_a_node_leads_to_another_stage(
    beside: Page, compared: str | int, expected: int
):
    beside.sends({**BESIDE, "compared": compared})
    beside.sends({"type": "show-node", "name": "stem_norm", "stage": 1})
    state = beside.inspector._shown_stages
    assert (state["shown"], state["before"], state["beside"]) == (1, expected, True)
    assert beside.inspector.selected == "stem_norm"
    assert beside.inspector._shown_details["before"]


def test_a_node_of_no_stage_is_no_reason_to_leave_the_one_that_is_shown(beside: Page):
    for message in ({"name": "stem_norm", "stage": 7}, {"name": "nothing", "stage": 7}):
        beside.sends({**BESIDE, "stage": 2, "compared": 1})
        beside.sends({"type": "show-node", **message})
        assert "There is no stage 7" in beside.error["text"]
        assert beside.inspector._shown_stages["shown"] == 2
