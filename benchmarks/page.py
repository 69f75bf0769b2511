"""How long people wait for a page: a script of its own, as there is no peer to compare with.

Run it with ``python -m benchmarks.page``. It writes reports of BERT-base and of 10,000 nodes, opens them
in a headless Chromium, and prints the milliseconds from the address to the painted graph, from a click on a
box until its selection is painted, from a double click on a group until its inside is, and from a query
until what it finds is lit up. In a notebook the same code does all but the first.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from playwright.sync_api import Browser, Page, sync_playwright
from torch import fx
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import fxlab
from benchmarks import measured
from benchmarks.browser import chromium
from benchmarks.inspector import synthetic

OPENINGS, CLICKS, GROUPS = 5, 60, 20
WHEN_PAINTED = """
window.afterPaint = () => new Promise(done => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(performance.now());
    port2.postMessage(null);  // is delivered once the frame is painted
}));
"""
UNTIL_DRAWN = """() => new Promise(done => {
    const isDrawn = () => document.querySelector(".fxi-layer svg");
    const look = () => isDrawn() ? afterPaint().then(done) : setTimeout(look, 2);
    look();
})"""
REMEMBER_CLICKS = """() => {
    window.waits = [];
    window.addEventListener("pointerup", event => {
        const start = event.timeStamp;
        afterPaint().then(end => {
            const selected = document.querySelectorAll(".fxi-layer .node.fxi-selected");
            waits.push([end - start, selected.length === 1]);
        });
    });
}"""

OPEN_GROUPS = """async most => {
    const closed = document.querySelectorAll(".fxi-layer svg .node:has(.fxi-toggle-hit)");
    const groups = [...closed].map(group => group.dataset.box);
    const box = id => document.querySelector(`.fxi-layer svg [data-box="${id}"]`);
    const isOpen = id => !box(id).classList.contains("node");
    const switched = async (id, open) => {
        const start = performance.now();
        box(id).dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
        while (isOpen(id) !== open) await new Promise(done => setTimeout(done, 1));
        return (await afterPaint()) - start;
    };
    const waits = [];
    for (let i = 0; i < most && groups.length > 0; i += 1) {
        const id = groups[i % groups.length];
        waits.push(await switched(id, true));
        await switched(id, false);
    }
    return waits;
}"""

FILTER = """async queries => {
    const field = document.querySelector(".fxi-search-input");
    const bar = document.querySelector(".fxi-found-bar");
    const waits = [];
    for (const query of queries) {
        field.focus();
        field.value = query;
        field.dispatchEvent(new Event("input", { bubbles: true }));
        const start = performance.now();
        const key = { key: "Enter", shiftKey: true, bubbles: true };
        field.dispatchEvent(new KeyboardEvent("keydown", key));
        const isShown = () => !bar.hidden && bar.textContent.includes(query);
        while (!isShown()) {
            if (performance.now() - start > 5000) throw new Error(`nothing was lit up for ${query}`);
            await new Promise(done => setTimeout(done, 1));
        }
        waits.push((await afterPaint()) - start);
    }
    return waits;
}"""
QUERIES = ["op:placeholder", "class:Linear", "op:call_function", "name:output"] * 5


def graphs() -> Iterator[tuple[str, fx.GraphModule]]:
    """Yield what is opened."""
    yield "BERT-base", fxlab.symbolic_trace(BertModel(BertConfig()).eval(), check=False)
    config = LlamaConfig(num_hidden_layers=32, hidden_size=64, intermediate_size=64, num_attention_heads=4)
    with torch.device("meta"):
        llama = LlamaModel(config).eval()
    yield "Llama, 32 layers", fxlab.symbolic_trace(llama, check=False)
    yield "10,000 nodes", synthetic(10_000)


def waits(name: str, gm: fx.GraphModule, browser: Browser, folder: Path) -> dict[str, Any]:
    """Return a row of milliseconds."""
    file = fxlab.report(fxlab.Session(gm, passes=[]), path=folder / "report.html", measure=False)
    openings = []
    for _ in range(OPENINGS):
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.add_init_script(WHEN_PAINTED)
        page.goto(file.as_uri(), wait_until="commit")
        openings.append(page.evaluate(UNTIL_DRAWN))
        if len(openings) < OPENINGS:
            page.close()
    clicks, groups = sorted(click_waits(page)), sorted(page.evaluate(OPEN_GROUPS, GROUPS))
    # What finds nothing lights nothing up.
    nodes = fxlab.nodes(gm)
    known = [*("op:" + nodes["op"]), *("class:" + nodes["class"].str.split().str[-1].dropna()), "name:output"]
    filters = sorted(page.evaluate(FILTER, [query for query in QUERIES if query in known]))
    return {
        "model": name,
        "nodes": len(gm.graph.nodes),
        "file, MB": file.stat().st_size / 1e6,
        "boxes": page.locator(".fxi-layer svg .node").count(),
        "opening, median": statistics.median(openings),
        "most": max(openings),
        "click to paint, median": statistics.median(clicks),
        "click to paint, 95th percentile": clicks[int(0.95 * (len(clicks) - 1))],
        "clicks": len(clicks),
        "opening a group, median": statistics.median(groups),
        "opening a group, 95th percentile": groups[int(0.95 * (len(groups) - 1))],
        "groups": len(groups),
        "filter, median": statistics.median(filters),
        "filter, 95th percentile": filters[int(0.95 * (len(filters) - 1))],
    }


def click_waits(page: Page) -> list[float]:
    """Click on boxes that can be seen, one after the other; return what each took in milliseconds."""
    # The first click would open them, over some of the boxes.
    page.get_by_role("button", name="Details panel").click()
    page.wait_for_timeout(500)
    page.evaluate(REMEMBER_CLICKS)
    graph = page.locator(".fxi-graph").bounding_box()
    assert graph is not None
    titles = page.locator(".fxi-layer svg .node:not(.fx-chip) .fx-title").all()
    places = [area for title in titles if (area := title.bounding_box())]
    middles = [(p["x"] + p["width"] / 2, p["y"] + p["height"] / 2) for p in places]
    # Nothing else lies over this part of the graph.
    inside = [
        (x, y)
        for x, y in middles
        if graph["x"] + 20 < x < graph["x"] + graph["width"] - 160
        and graph["y"] + 20 < y < graph["y"] + graph["height"] - 160
    ]
    for number in range(CLICKS):
        page.mouse.click(*inside[number % len(inside)])
        page.wait_for_timeout(60)
    page.wait_for_timeout(500)
    found = page.evaluate("() => waits")
    assert len(found) == CLICKS, f"{len(found)} of {CLICKS} clicks were seen"
    assert all(selected for _, selected in found), "a click hit no box"
    return [wait for wait, _ in found]


def main() -> None:
    """Measure, print and write the table."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = chromium(playwright)
        rows = [waits(name, gm, browser, Path(folder)) for name, gm in graphs()]
        browser.close()
    table = pd.DataFrame(rows)
    print(table.set_index("model").T.round(1).to_string())
    click, group = table["click to paint, median"].max(), table["opening a group, median"].max()
    figure = f"a click is painted after {click:.0f} ms, an opened group after {group:.0f} ms (medians)"
    measured.write("python -m benchmarks.page", figure, {"page": table})


if __name__ == "__main__":
    main()
