"""Make the pictures and the table of ``first_sight.md``: ``python docs/make_first_sight.py``.

Names of models or steps as arguments make only theirs anew. Each is shown as somebody sees it who opens it
and touches nothing, in a report of its session in headless Chromium. The UNet needs ``diffusers``;
``python docs/make_first_sight.py --others`` shows three models in other tools, and needs ``torchvista`` and
``ai-edge-model-explorer``. None of them is pinned.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import transformers as hf
from first_sight_steps import STEPS
from make_pictures import IMAGES, ROOT, launched
from PIL import Image
from playwright.sync_api import Browser, Page
from torch import nn

import fxlab

FOLDER = IMAGES / "first_sight"
PAGE = ROOT / "docs" / "first_sight.md"
WIDTH, OTHERS_WIDTH, QUALITY, MOST_BYTES = 1100, 900, 72, 2_000_000
WINDOW = {"width": 1280, "height": 800}
MARKERS = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.DOTALL)
MEASURE = """() => {
    const area = r => r.width * r.height;
    const inspector = document.querySelector(".fxlab-inspector").getBoundingClientRect();
    const graph = document.querySelector(".fxi-graph").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".fxi-layer .node:not(.fx-chip)")];
    const isInside = box => {
        const r = box.getBoundingClientRect();
        const isBeside = r.left < graph.left || r.right > graph.right;
        return !isBeside && r.top >= graph.top && r.bottom <= graph.bottom;
    };
    const served = boxes.filter(box => box.classList.contains("fx-bookkeeping"));
    const total = some => some.reduce((sum, box) => sum + area(box.getBoundingClientRect()), 0);
    const titles = boxes.map(box => box.querySelector(":scope > .fx-title")).filter(title => title);
    return {
        graph: area(graph) / area(inspector),
        boxes: boxes.length,
        bookkeeping: served.length,
        served: total(served) / total(boxes),
        inside: boxes.filter(isInside).length / boxes.length,
        title: Math.min(...titles.map(title => parseFloat(getComputedStyle(title).fontSize)
            * title.getScreenCTM().a)),
    };
}"""
"""What is to be seen: shares of the inspector and of the boxes, numbers of boxes, letters in pixels."""


sys.setrecursionlimit(20_000)  # torchvista needs it for 32 layers.
OTHERS = ("BERT-base", "Mixtral, 8 layers", "ResNet-50")
OTHERS_MS = 15_000
"""For how long another tool may lay a graph out before it is looked at."""
PORT = 8391

Inputs = dict[str, torch.Tensor] | tuple[torch.Tensor, ...]


class Row(NamedTuple):
    """What was measured of a model."""

    name: str
    graph: str
    boxes: int
    bookkeeping: int
    served: str
    inside: str
    title: str


def save(png: bytes, file: Path, width: int, quality: int) -> None:
    """Keep a picture in the size of a page of the docs."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    size = width, picture.height * width // picture.width
    picture.resize(size, Image.Resampling.LANCZOS).save(file, quality=quality, method=6)


def main(names: list[str]) -> None:
    """Record and measure all models and steps, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        rows = []
        for name in names or (*MODELS, *STEPS):
            rows.append(record(name, Path(folder), browser))
            print(*rows[-1], sep=" | ", flush=True)
    page = PAGE.read_text()
    kept = [Row(*line.strip("| ").split(" | ")) for line in MARKERS.findall(page)[0].splitlines()[2:]]
    places = {name: place for place, name in enumerate((*MODELS, *STEPS))}
    rows += [row for row in kept if row.name not in {new.name for new in rows} and row.name in places]
    text = table(sorted(rows, key=lambda row: places[row.name]))
    PAGE.write_text(MARKERS.sub(lambda _: text, page))
    if not names:
        assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES


def record(name: str, folder: Path, browser: Browser) -> Row:
    """Show a model, keep the picture, and measure it."""
    torch.manual_seed(0)
    if name in STEPS:
        session = fxlab.Session(STEPS[name]())
    else:
        model, inputs = MODELS[name]()
        session = fxlab.Session(model.eval(), inputs)
    report = fxlab.report(session, path=folder / f"{file_name(name)}.html", measure=False)
    page = browser.new_page(viewport=WINDOW)
    page.goto(report.as_uri())
    page.locator(".fxi-layer .node").first.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    row = measured(name, page)
    save(page.screenshot(), FOLDER / f"{file_name(name)}-light.webp", WIDTH, QUALITY)
    page.close()
    return row


def record_others(names: list[str]) -> None:
    """Show three models, or those that are named, in two other tools, as they show them by themselves."""
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        for number, name in enumerate(names or OTHERS):
            torch.manual_seed(0)
            model, given = MODELS[name]()
            inputs = given or fxlab.example_inputs(model)
            for tool, show in (("torchvista", in_torchvista), ("model-explorer", in_model_explorer)):
                try:
                    address = show(name, model.eval(), inputs, Path(folder), number)
                except Exception as error:
                    print(name, tool, type(error).__name__, str(error)[:200], flush=True)
                    continue
                page = browser.new_page(viewport=WINDOW)
                page.goto(address, wait_until="commit")
                page.wait_for_timeout(OTHERS_MS)
                save(page.screenshot(), FOLDER / f"{file_name(name)}-{tool}.webp", OTHERS_WIDTH, QUALITY)
                page.close()
                print(name, tool, flush=True)


def in_torchvista(name: str, model: nn.Module, inputs: Inputs, folder: Path, number: int) -> str:
    """Return the address of a model's page in torchvista."""
    import torchvista

    file = folder / f"torchvista-{number}.html"
    if isinstance(inputs, dict):  # It takes arguments by place only.
        names = list(inspect.signature(model.forward).parameters)
        last = max(map(names.index, inputs))
        inputs = tuple(inputs.get(name) for name in names[: last + 1])
    torchvista.trace_model(model, inputs, export_format="html", export_path=str(file))
    return file.as_uri()


def in_model_explorer(name: str, model: nn.Module, inputs: Inputs, folder: Path, number: int) -> str:
    """Return the address of a model's page in Model Explorer, which is served until the program ends."""
    import model_explorer

    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    for module in model.modules():
        if hasattr(module, "config"):
            module.config.use_cache = False  # torch.export does not return a cache.
    config = model_explorer.config()
    config.add_model_from_pytorch(file_name(name), torch.export.export(model, args, kwargs))
    port = PORT + number
    serve = partial(model_explorer.visualize_from_config, config, port=port, no_open_in_browser=True)
    threading.Thread(target=serve, daemon=True).start()
    return f"http://localhost:{port}/?data={config.to_url_param_value()}"


def measured(name: str, page: Page) -> Row:
    """Measure what is to be seen."""
    found = page.evaluate(MEASURE)
    return Row(
        name,
        f"{found['graph']:.0%}",
        found["boxes"],
        found["bookkeeping"],
        f"{found['served']:.0%}",
        f"{found['inside']:.0%}",
        f"{found['title']:.1f}",
    )


def table(rows: list[Row]) -> str:
    """Return what was measured as a table of the page."""
    heading = (
        "Model",
        "Graph",
        "Boxes",
        "Bookkeeping",
        "Its area",
        "In the window",
        "Smallest title (px)",
    )
    lines = [heading, ("---", *["---:"] * (len(heading) - 1)), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def file_name(name: str) -> str:
    """Return how the files of a model begin."""
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def llama() -> nn.Module:
    """Return a narrow Llama of as many layers as one of seven billion parameters has."""
    config = hf.LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=32,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return hf.LlamaForCausalLM(config)


def mixtral() -> nn.Module:
    """Return a narrow Mixtral of eight layers with eight experts each."""
    config = hf.MixtralConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return hf.MixtralForCausalLM(config)


def whisper() -> nn.Module:
    """Return a narrow Whisper with the four and four layers of its smallest one."""
    config = hf.WhisperConfig(
        encoder_layers=4,
        decoder_layers=4,
        d_model=128,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
    )
    return hf.WhisperForConditionalGeneration(config)


def unet() -> nn.Module:
    """Return a narrow UNet with the blocks of Stable Diffusion."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=32, block_out_channels=(64, 128, 256, 256), norm_num_groups=16, cross_attention_dim=128
    )


def of_unet() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a picture of noise, its time step, and the text that it is to become."""
    return torch.randn(2, 4, 32, 32), torch.tensor([7, 7]), torch.randn(2, 9, 128)


MODELS: dict[str, Callable[[], tuple[nn.Module, object]]] = {
    "BERT-base": lambda: (hf.BertModel(hf.BertConfig()), None),
    "GPT-2": lambda: (hf.GPT2LMHeadModel(hf.GPT2Config()), None),
    "Llama, 32 layers": lambda: (llama(), None),
    "Mixtral, 8 layers": lambda: (mixtral(), None),
    "ViT-base": lambda: (hf.ViTForImageClassification(hf.ViTConfig()), None),
    "ResNet-50": lambda: (hf.ResNetForImageClassification(hf.ResNetConfig()), None),
    "UNet": lambda: (unet(), of_unet()),
    "Whisper, 4 + 4 layers": lambda: (whisper(), None),
    "CLIP": lambda: (hf.CLIPModel(hf.CLIPConfig()), None),
    "T5, 6 + 6 layers": lambda: (hf.T5ForConditionalGeneration(hf.T5Config(num_layers=6)), None),
}
"""Models with random weights, and what they are called with where fxlab cannot tell by itself."""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--others"]:
        record_others(sys.argv[2:])
    else:
        main(sys.argv[1:])
