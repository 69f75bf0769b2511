"""The first picture of a model in a browser, beside Google's Model Explorer.

Model Explorer takes what ``torch.export`` gives, turns it into JSON, and serves a page that lays it out and
draws it with WebGL. Its time ends when the page says no longer that it is processing the graph; fxlab's, when
the first box of its report is visible. Both use the same browser, which draws WebGL without a GPU.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from playwright.sync_api import Browser, sync_playwright
from transformers import BertConfig, BertModel

import fxlab
from benchmarks.browser import LIMIT, chromium, tab_of
from benchmarks.measure import Comparison
from benchmarks.pictures import without_cache
from benchmarks.tracing import llama_3_8b

PEER = "Model Explorer 0.1"
PORT = 8731


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    without_cache()
    models = {"BERT-base": BertModel(BertConfig()).eval(), "Llama 3 8B (on meta)": llama_3_8b()}
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        explorer = ModelExplorer(browser)
        for name, model in models.items():
            inputs = fxlab.example_inputs(model)
            graph_module = fxlab.symbolic_trace(model, inputs, check=False)
            yield Comparison(
                f"from the graph of {name} to a page that shows it",
                f"{PEER}, from an ExportedProgram",
                partial(shown, browser, graph_module),
                partial(explorer.show, exported(model, inputs)),
                rounds=3,
            )
            yield Comparison(
                f"from {name} to a page that shows it",
                f"torch.export and {PEER}",
                lambda model=model, inputs=inputs: shown(
                    browser, fxlab.symbolic_trace(model, inputs, check=False)
                ),
                lambda model=model, inputs=inputs: explorer.show(exported(model, inputs)),
                rounds=3,
            )
        browser.close()


def exported(model: torch.nn.Module, inputs: dict[str, Any]) -> torch.export.ExportedProgram:
    """Export a model for these sizes alone, which takes less time: Model Explorer refuses symbolic ones."""
    return torch.export.export(model, (), inputs, strict=False)


def shown(browser: Browser, graph_module: torch.fx.GraphModule) -> None:
    """Write fxlab's report on a graph and open it."""
    with TemporaryDirectory() as folder, tab_of(browser) as tab:
        path = Path(folder) / "report.html"
        fxlab.report(fxlab.Session(graph_module), path=path, measure=False)
        tab.goto(path.as_uri(), wait_until="commit")
        tab.locator("svg g.node").first.wait_for(state="visible")


class ModelExplorer:
    """Model Explorer's server, which starts when it is first needed."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._config: Any = None

    def show(self, program: torch.export.ExportedProgram) -> None:
        """Convert a program and wait until the page shows it."""
        if self._config is None:
            self._config = self._started()
        if next(iter(program.state_dict.values())).is_meta:
            # It reads the values of all weights, unless a program has no inputs; here there are none.
            program.example_inputs = None
        for forgotten in (self._config.graphs_list, self._config.model_sources):
            forgotten.clear()
        self._config.add_model_from_pytorch("model", program)
        with tab_of(self._browser) as tab:
            address = f"http://127.0.0.1:{PORT}/?data={self._config.to_url_param_value()}"
            tab.goto(address, wait_until="commit")
            tab.locator("webgl-renderer canvas.main").wait_for(state="attached")
            tab.get_by_text("Processing graph").wait_for(state="hidden")

    @staticmethod
    def _started() -> Any:
        import model_explorer
        from model_explorer import server

        # It would ask the internet for new versions.
        server._check_new_version = lambda *_: dict.fromkeys(
            ("version", "runningVersion", "releaseUrl", "desktopAppUrl"), ""
        )
        config = model_explorer.config()
        settings = {"host": "127.0.0.1", "port": PORT, "config": config, "no_open_in_browser": True}
        threading.Thread(target=partial(server.start, **settings), daemon=True).start()
        for _ in range(10 * LIMIT):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
                return config
            time.sleep(0.1)
        raise TimeoutError("Model Explorer's server did not start.")
