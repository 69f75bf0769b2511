"""How long people wait in JupyterLab: a script of its own, as there is no peer.

Run it with ``python -m benchmarks.toggle``; nothing else should run beside it. It opens an inspector of
BERT-base and one of a Llama with 32 layers in a JupyterLab, and prints the milliseconds from a click on the
switch of *Merge linears* until the changed graph is painted, and until the kernel has sent it, and the boxes.
Then, in new kernels that have loaded BERT-base, those from running the cell that inspects it until its first
word and its graph are painted, and those of a script that makes the same picture.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from playwright.sync_api import Browser, sync_playwright

from benchmarks.browser import chromium
from benchmarks.page import WHEN_PAINTED

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "browser"))
from jupyter_lab import JupyterLab  # noqa: E402
from lab_page import LabPage  # noqa: E402

ROUNDS = 12
MODELS = {
    "BERT-base": "BertModel(BertConfig())",
    "Llama, 32 layers": "LlamaModel(LlamaConfig(num_hidden_layers=32, hidden_size=64, intermediate_size=64, "
    "num_attention_heads=4, vocab_size=1000))",
}
CELL = """
import torch, fxlab
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel
fxlab.inspect({}.eval(), {{"input_ids": torch.ones(1, 16, dtype=torch.int64)}})
"""
REMEMBER_MESSAGES = """
const Socket = window.WebSocket;
window.heard = 0;
window.WebSocket = class extends Socket {
    constructor(...all) {
        super(...all);
        this.addEventListener("message", ({ data }) => {
            const text = typeof data === "string" ? data : new TextDecoder().decode(data);
            if (text.includes("_shown_stages")) window.heard = performance.now();
        });
    }
};
"""
SWITCH = """async () => {
    const root = document.querySelector(".fxlab-inspector");
    const start = performance.now();
    const changed = new Promise(done => new MutationObserver((_, observer) => {
        observer.disconnect();
        done();
    }).observe(root.querySelector(".fxi-layer"), { childList: true }));
    root.querySelector("[role=switch][aria-label='Merge linears']").click();
    await changed;
    const painted = await afterPaint();
    return [painted - start, window.heard - start, root.querySelectorAll(".fxi-layer svg .node").length];
}"""
FIRST = 5
LOADED = """
import time, torch
from transformers import BertConfig, BertModel
model, inputs = BertModel(BertConfig()).eval(), {"input_ids": torch.ones(1, 16, dtype=torch.int64)}
"""
LOOK = "import fxlab; fxlab.inspect(model, inputs)"
SCRIPT = f"{LOADED}\nstart = time.perf_counter()\n{LOOK}.svg\nprint(time.perf_counter() - start)"
RUN_CELL = """number => {
    window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
    window.jupyterapp.commands.execute("notebook:run-cell");
}"""
FIRST_SEEN = """async run => {
    const until = seen => new Promise(done => {
        const look = () => seen() ? afterPaint().then(done) : requestAnimationFrame(look);
        look();
    });
    const output = () => document.querySelectorAll(".jp-CodeCell")[1].querySelector(".jp-OutputArea");
    const [start, word] = [performance.now(), until(() => output().innerText.trim())];
    eval(run)(1);
    const graph = until(() => output().querySelector(".fxi-layer svg"));
    return [await word - start, await graph - start];
}"""


def waits(name: str, model: str, browser: Browser, lab: JupyterLab) -> list[dict[str, Any]]:
    """Return a row of milliseconds for on, and one for off."""
    lab.write("toggle.ipynb", CELL.format(model))
    context = browser.new_context(viewport={"width": 1600, "height": 1050})
    page = LabPage(context.new_page(), lab.url)
    for script in (WHEN_PAINTED, REMEMBER_MESSAGES):
        page.page.add_init_script(script)
    page.open("toggle.ipynb")
    page.run_all()
    inspector = page.inspector()
    found: list[list[float]] = []
    for _ in range(2 * ROUNDS):
        # Outputs are compared, and candidates are looked for.
        page.page.wait_for_timeout(1_500)
        page.settle(inspector)
        page.wait_until_idle()
        found.append(page.page.evaluate(SWITCH))
    context.close()
    rows = []
    for what, part in (("on", found[::2]), ("off", found[1::2])):
        painted, sent, boxes = zip(*part, strict=True)
        rows.append(
            {
                "model": name,
                "switched": what,
                "painted, median": statistics.median(painted),
                "most": max(painted),
                "sent, median": statistics.median(sent),
                "boxes": boxes[-1],
            }
        )
    return rows


def first_picture(number: int, browser: Browser, lab: JupyterLab) -> tuple[float, float, float]:
    """Return the milliseconds to the first word and to the graph in a new kernel, and those of a script."""
    lab.write(f"first{number}.ipynb", LOADED, LOOK)
    context = browser.new_context(viewport={"width": 1600, "height": 1050})
    page = LabPage(context.new_page(), lab.url)
    page.page.add_init_script(WHEN_PAINTED)
    page.load(f"first{number}.ipynb")
    page.page.evaluate(RUN_CELL, 0)
    page.page.wait_for_timeout(1_500)
    page.wait_until_idle()
    word, graph = page.page.evaluate(FIRST_SEEN, RUN_CELL)
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    context.close()
    ran = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    return word, graph, 1_000 * float(ran.stdout)


def main() -> None:
    """Measure, and print the tables."""
    # Python keeps what it has compiled, as on anybody's machine.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        notebooks, state = Path(folder) / "notebooks", Path(folder) / "state"
        notebooks.mkdir()
        state.mkdir()
        browser = chromium(playwright)
        with JupyterLab(notebooks, state, (ROOT,)) as lab:
            rows = [row for name, model in MODELS.items() for row in waits(name, model, browser, lab)]
            found = [first_picture(number, browser, lab) for number in range(FIRST)]
        browser.close()
    print(pd.DataFrame(rows).round(1).to_string(index=False))
    first = pd.DataFrame(found, columns=["first word", "graph", "script"])
    first["graph / script"] = first["graph"] / first["script"]
    print(first.median().round(2).to_string())


if __name__ == "__main__":
    main()
