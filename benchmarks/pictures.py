"""The first picture of a model, beside the viewers that people use today.

A picture of a graph is compared with ``FxGraphDrawer``, one of a model with torchview (both draw with the
Graphviz that fxlab uses as well), and a page that is opened in a real browser with torchvista's.
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from playwright.sync_api import sync_playwright
from torch.fx import GraphModule
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

import fxlab
from benchmarks.browser import LIMIT, chromium, tab_of
from benchmarks.measure import Comparison
from benchmarks.tracing import llama_3_8b
from fxlab.drawing.rendering import layout


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    without_cache()
    models = {
        "a BERT of 4 layers": BertModel(BertConfig(num_hidden_layers=4)),
        "BERT-base": BertModel(BertConfig()),
        "ResNet-50": ResNetModel(ResNetConfig()),
        "Llama 3 8B (on meta)": llama_3_8b(),
    }
    for name, model in models.items():
        inputs = fxlab.example_inputs(model.eval())
        graph_module = fxlab.symbolic_trace(model, inputs, check=False)
        yield Comparison(
            f"from the graph of {name} to a picture",
            "FxGraphDrawer and dot",
            partial(drawn, graph_module),
            partial(drawn_by_torch, graph_module),
            rounds=3,
        )
        yield Comparison(
            f"from {name} to a picture",
            "torchview and dot",
            lambda model=model, inputs=inputs: drawn(fxlab.symbolic_trace(model, inputs, check=False)),
            partial(drawn_by_torchview, model, inputs),
            rounds=3,
        )
    with opened_in_browser() as opened:
        for name, model in models.items():
            inputs = fxlab.example_inputs(model)
            yield Comparison(
                f"from {name} to a page that shows it",
                "torchvista",
                lambda model=model, inputs=inputs: opened(page(model, inputs), "svg g.node"),
                lambda model=model, inputs=inputs: opened(
                    page_by_torchvista(model, inputs), "svg g[class^='node_']"
                ),
                rounds=3,
            )


def without_cache() -> None:
    """Let no round have the layout of the one before."""
    layout.MOST_KNOWN = 0


def drawn(graph_module: GraphModule) -> str:
    """Draw by fxlab."""
    return fxlab.draw(graph_module).svg


def drawn_by_torch(graph_module: GraphModule) -> None:
    """Draw every node, by what torch has for that."""
    from torch.fx.passes.graph_drawer import FxGraphDrawer

    layout.lay_out(FxGraphDrawer(graph_module, "model").get_dot_graph().to_string(), timeout=LIMIT)


def drawn_by_torchview(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Run a model and draw its modules and functions."""
    from torchview import draw_graph

    device = next(model.parameters()).device
    graph = draw_graph(model, input_data=inputs, expand_nested=True, device=device)
    layout.lay_out(graph.visual_graph.source, timeout=LIMIT)


@contextlib.contextmanager
def opened_in_browser() -> Iterator[Callable[[str, str], None]]:
    """Open pages in a browser, and wait until one of their elements is there."""
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = chromium(playwright)
        path = Path(folder) / "page.html"

        def opened(text: str, selector: str) -> None:
            path.write_text(text, encoding="utf-8")
            with tab_of(browser) as tab:
                tab.goto(path.as_uri())
                tab.locator(selector).first.wait_for(state="visible")

        yield opened
        browser.close()


def page(model: torch.nn.Module, inputs: dict[str, Any]) -> str:
    """Return fxlab's report on a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        graph_module = fxlab.symbolic_trace(model, inputs, check=False)
        fxlab.report(fxlab.Session(graph_module), path=path, measure=False)
        return path.read_text(encoding="utf-8")


def page_by_torchvista(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> str:
    """Return the page that torchvista makes of a model."""
    from torchvista import trace_model

    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "graph.html"
        arguments = inspect.signature(model.forward).bind(**inputs).args
        trace_model(model, arguments, export_path=str(path))
        return path.read_text(encoding="utf-8")
