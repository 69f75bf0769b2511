"""The inspector as VS Code's widget manager shows it, in a page with that of VS Code's styles and listeners.

Another such page is that of Google Colab, whose outputs are frames as high as what is in them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from accessibility import violations
from first_steps import MODEL, SLOW_MODEL, START_MS, settle, use
from jupyter_lab import JupyterLab
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from webview_page import WebviewPage, build_host

pytestmark = pytest.mark.browser

THEMES = {
    "vscode-light": "#ffffff",
    "vscode-dark": "#1f1f1f",
    "vscode-high-contrast": "#000000",
    "vscode-high-contrast-light": "#ffffff",
}
VERSIONS = ["with-bridge", "without-bridge"]
FOCUSABLE = ".fxi-graph, [role=tab][aria-selected=true], .fxi-search-input, .fxi-table-scroll, [role=switch]"


@pytest.fixture(scope="module")
def host() -> None:
    build_host()


@pytest.fixture(scope="module")
def webview(browser: Browser, lab: JupyterLab, host: None) -> Iterator[WebviewPage]:
    """VS Code's page with a kernel; it must ask no host but this one, and raise no error."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    page = WebviewPage(context.new_page(), lab.url)
    page.open("vscode.html")
    yield page
    page.stop()
    context.close()
    assert page.requested_hosts == {"127.0.0.1"}
    assert page.page_errors == []


@pytest.fixture
def inspector(webview: WebviewPage) -> Locator:
    """A new inspector, with a pass that is on."""
    webview.set_theme("vscode-light")
    webview.run(MODEL)
    found = webview.inspector()
    found.get_by_role("switch", name="Merge linears").click()
    settle(found)
    webview.told()
    return found


def background(of: Locator) -> str:
    """Return the colour of the pixel beside an inspector's title."""
    red, green, blue = Image.open(io.BytesIO(of.locator(".fxi-passes").screenshot())).getpixel((3, 3))[:3]
    return f"#{red:02x}{green:02x}{blue:02x}"


@pytest.mark.parametrize(
    "theme", [pytest.param(t, marks=() if t == "vscode-light" else pytest.mark.weekly) for t in THEMES]
)
def test_it_works_in_vs_code(webview: WebviewPage, theme: str) -> None:
    webview.set_theme(theme)
    webview.run(MODEL)
    use(webview.page)
    assert webview.told() == {"keys": [], "wheels": 0, "files": []}


@pytest.mark.often(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_follows_the_theme_and_everybody_can_use_it(
    webview: WebviewPage, inspector: Locator, version: str
) -> None:
    webview.page.evaluate("version => document.documentElement.className = version", version)
    for number, (theme, colour) in enumerate(THEMES.items(), VERSIONS.index(version)):
        webview.set_theme(theme)
        assert background(inspector) == colour
        if number % 2:
            assert violations(webview.page, ".fxlab-inspector") == []


@pytest.mark.weekly
def test_nothing_white_is_seen_behind_it(webview: WebviewPage, inspector: Locator) -> None:
    webview.page.evaluate("document.documentElement.className = 'without-bridge'")
    webview.set_theme("vscode-dark")
    picture = Image.open(io.BytesIO(inspector.screenshot())).convert("L")
    corners = [(x, y) for x in (0, picture.width - 1) for y in (0, picture.height - 1)]
    assert max(picture.getpixel(corner) for corner in corners) < 64


@pytest.mark.weekly
@pytest.mark.parametrize("version", VERSIONS)
def test_what_has_the_focus_is_ringed_where_it_can_be_seen(
    webview: WebviewPage, inspector: Locator, version: str
) -> None:
    def ring() -> str:
        return str(
            webview.page.evaluate(
                "() => { const { outline, outlineOffset } = getComputedStyle(document.activeElement);"
                " return `${outline} ${outlineOffset}`; }"
            )
        )

    webview.page.evaluate("version => document.documentElement.className = version", version)
    inspector.locator(".fxi-graph").click(position={"x": 5, "y": 5})
    webview.page.keyboard.press("Tab")
    for element in inspector.locator(FOCUSABLE).all():
        element.focus()
        assert ring().startswith("rgb(26, 99, 201) solid 2px")
    inspector.locator(".fxi-graph").focus()
    assert ring().endswith(" -2px")
    inspector.locator(".fxi-table-scroll").click()
    assert "none" in ring()


def test_its_pictures_are_saved_by_vs_code(webview: WebviewPage, inspector: Locator) -> None:
    for item, name, start in (("SVG", "Sequential.svg", b"<svg"), ("PNG", "Sequential.png", b"\x89PNG")):
        inspector.get_by_text("Export", exact=True).click()
        inspector.get_by_role("button", name=f"{item} picture").click()
        saved, content = webview.saved_file()
        assert saved == name
        assert content.lstrip().startswith(start)
    # What is made in the kernel comes as data beside a message.
    inspector.get_by_text("Export", exact=True).click()
    inspector.get_by_role("button", name="PDF", exact=True).click()
    saved, content = webview.saved_file()
    assert saved == "Sequential.pdf"
    assert content.startswith(b"%PDF")


def test_keys_and_the_wheel_are_not_taken_for_those_of_the_notebook(
    webview: WebviewPage, inspector: Locator
) -> None:
    keyboard = webview.page.keyboard
    inspector.locator(".fxi-graph").press("f")
    keyboard.press("/")
    expect(inspector.get_by_role("combobox", name="Search")).to_be_focused()
    keyboard.type("dd")
    keyboard.press("Escape")
    switch = inspector.get_by_role("switch", name="Merge linears")
    webview.page.wait_for_timeout(600)  # until the extension has made buttons answer to keys, a second time
    for state in ("false", "true"):
        switch.press("Enter")
        expect(switch).to_have_attribute("aria-checked", state)
        settle(inspector)
    switch.press("F1")
    switch.press("Control+s")
    assert webview.told()["keys"] == ["F1", "Control", "s"]

    inspector.locator(".fxi-graph").click(position={"x": 5, "y": 5})
    webview.page.mouse.wheel(0, -240)
    settle(inspector)
    assert webview.told()["wheels"] == 0
    inspector.locator(".fxi-panel-head").first.hover()
    webview.page.mouse.wheel(0, 240)
    webview.page.wait_for_function("() => window.host.told.wheels === 1")


@pytest.mark.weekly
def test_where_the_page_cannot_interrupt_the_kernel_it_says_who_can(webview: WebviewPage) -> None:
    webview.run(SLOW_MODEL)
    inspector = webview.inspector()
    inspector.get_by_role("tab", name="Cost").click()
    inspector.get_by_role("button", name="Measure the cost").click()
    busy = inspector.locator(".fxi-busy")
    busy.get_by_role("button", name="Cancel").click()
    expect(busy.get_by_role("button")).to_be_hidden()
    expect(busy).to_contain_text("Interrupt the kernel to stop it.", timeout=15_000)
    webview.interrupt()
    settle(inspector)
    expect(inspector.locator(".fxi-tables")).to_contain_text("Cancelled.")


@pytest.fixture(scope="module")
def frame(browser: Browser, lab: JupyterLab, host: None) -> Iterator[Page]:
    """A page with a frame in it, in which an inspector is shown; nothing else asks for dark colours."""
    context = browser.new_context(viewport={"width": 1500, "height": 1200}, color_scheme="light")
    page = WebviewPage(context.new_page(), lab.url)
    page.open("frame.html")
    inside = page.page.frame_locator("iframe").locator(".output")
    inside.evaluate("(_, code) => window.host.run(code)", MODEL, timeout=START_MS)
    yield page.page
    inside.evaluate("() => window.host.stop()")
    context.close()
    assert page.requested_hosts == {"127.0.0.1"}
    assert page.page_errors == []


def test_a_frame_that_grows_with_it_comes_to_rest(frame: Page) -> None:
    heights = frame.locator("iframe").evaluate(
        """async (frame) => {
            const heights = [];
            for (let i = 0; i < 20; i += 1) {
                await new Promise(requestAnimationFrame);
                heights.push(frame.contentDocument.documentElement.scrollHeight);
                frame.style.height = `${heights.at(-1)}px`;
            }
            return heights;
        }"""
    )
    assert 720 < heights[0] < 900
    assert set(heights[1:]) == {heights[-1]}
    assert heights[-1] - heights[0] < 10


def test_the_theme_of_colab_is_followed(frame: Page) -> None:
    frame.locator("iframe").evaluate("(frame) => { frame.style.height = '800px'; }")
    inside = frame.frame_locator("iframe")
    inspector = inside.locator(".fxlab-inspector")
    inspector.locator(".fxi-layer svg").wait_for()
    assert background(inspector) == "#181b21"
    assert violations(frame.frames[1], ".fxlab-inspector") == []
    inside.locator("html").evaluate("(html) => html.setAttribute('theme', 'light')")
    expect(inspector).to_have_attribute("data-theme", "light")
    assert background(inspector) == "#ffffff"
    inside.locator("html").evaluate("(html) => html.setAttribute('theme', 'dark')")
