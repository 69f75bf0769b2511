"""What axe finds wrong with a part of a page, by the rules of WCAG AA."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Frame, Page

_AXE = Path(__file__).parents[1] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: Page | Frame, within: str, *, without: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each violation.

    Parameters
    ----------
    page
        The page, or a frame in it.
    within
        A selector of what is looked at.
    without
        Rules that do not hold for a part of somebody else's page.
    """
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: run `python hatch_build.py --check`.")
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        """async ([within, rules, without]) => {
            const options = {
                runOnly: rules,
                resultTypes: ["violations"],
                rules: Object.fromEntries(without.map(rule => [rule, { enabled: false }])),
            };
            const { violations } = await axe.run(within, options);
            return violations.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 160)).join(" | ")}`);
        }""",
        [within, _RULES, list(without)],
    )
    return list(found)
