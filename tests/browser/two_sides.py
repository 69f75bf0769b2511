"""What is expected of two stages side by side, in a notebook and in a report."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect


def expect_one_scale(root: Page | Locator, before: Locator, after: Locator, merged: Locator) -> None:
    """Expect a merged linear, which is selected, to be as warm as the two that it was made of together."""
    for side in (before, after):
        expect(side.locator(".fxi-layer svg .node.fxi-heat").first).to_be_visible()
    heat = "element => Number(element.style.getPropertyValue('--heat'))"
    whole = merged.and_(root.locator(".fxi-selected")).evaluate(heat)
    parts = before.locator(".node.fxi-selected")
    expect(parts).to_have_count(2)
    assert [parts.nth(i).evaluate(heat) for i in range(2)] == [pytest.approx(whole / 2, abs=0.001)] * 2
    expect(root.locator(".fxi-scale")).to_have_count(1)
    parts.first.hover()
    expect(before.get_by_role("tooltip")).to_contain_text("Parameters: 72 (")
