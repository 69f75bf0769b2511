"""Where passes pay: ``python -m benchmarks.tuning`` writes a part of ``docs/performance.md``.

Models of usual widths with random weights are tuned with ``fxlab.tune``, in several sizes and dtypes, on the
CPU, or on a GPU with ``--device cuda``. What is done is kept in a file, and a run that was interrupted goes
on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import nn
from tqdm import tqdm
from transformers.utils import logging

import fxlab

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!--- tuning: begin -->", "<!--- tuning: end -->"
BUSY = 0.75
"""The load for each core from which a machine is said to have been busy."""


def image(batch: int, size: int = 224) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


def text(batch: int, length: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 1000, (batch, length))}


def llama() -> nn.Module:
    config = hf.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8000,
    )
    return hf.LlamaForCausalLM(config)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], dict[str, Any]], list[Any]]] = {
    "BERT-base": (lambda: hf.BertModel(hf.BertConfig()), text, [(1, 16), (1, 128), (4, 128)]),
    "Llama, 8 layers of 1,024": (
        llama,
        lambda batch, length: {**text(batch, length), "use_cache": False},
        [(1, 1), (1, 64)],
    ),
    "ResNet-50": (lambda: hf.ResNetModel(hf.ResNetConfig()), lambda batch, _: image(batch), [(1, 0), (4, 0)]),
    "ViT-base": (lambda: hf.ViTModel(hf.ViTConfig()), lambda batch, _: image(batch), [(1, 0), (4, 0)]),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ONLY_FIRST_SIZE = ("bfloat16",)
"""Dtypes that are tried on the first size alone."""


def main() -> None:
    """Tune, keep each result, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to tune; all by default")
    parser.add_argument("--device", default="cpu", help="where they run (cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of torch, on the CPU (1)")
    parser.add_argument("--rounds", type=int, default=15, help="how often each stack is timed (15)")
    parser.add_argument("--keep", type=Path, default=Path("tuning.jsonl"), help="results so far")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    kept = options.keep.read_text().splitlines() if options.keep.exists() else []
    rows = {row["key"]: row for row in map(json.loads, kept)}
    wanted = [case for case in cases(options.device) if not options.names or case[0] in options.names]
    for name, dtype, batch, length in tqdm(wanted, unit="case"):
        key = f"{name}, {batch}, {length}, {dtype}, {options.device}, {options.threads}, {options.rounds}"
        if key not in rows:
            row = tuned(name, dtype, batch, length, options)
            rows[key] = {"key": key, **row}
            with options.keep.open("a") as file:
                file.write(json.dumps(rows[key]) + "\n")
    lines = report(list(rows.values()))
    print("\n".join(lines))
    if not options.names:
        write(lines)


def cases(device: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield model, dtype, batch size and length."""
    # One size of each model first: a run that is interrupted has something of all.
    for place in range(max(len(sizes) for _, _, sizes in MODELS.values())):
        for dtype in DTYPES:
            for name, (_, _, sizes) in MODELS.items():
                is_wanted = place == 0 or dtype not in ONLY_FIRST_SIZE or device != "cpu"
                if place < len(sizes) and is_wanted:
                    yield name, dtype, *sizes[place]


def tuned(name: str, dtype: str, batch: int, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what tuning came to for one model, size and dtype."""
    build, inputs_of, _ = MODELS[name]
    torch.manual_seed(0)
    model = build().eval().to(options.device, DTYPES[dtype])
    # Traced on two of each, as a graph holds sizes of one; and tuned on the size that is asked for.
    traced, given = (
        {key: placed(value, options.device, DTYPES[dtype]) for key, value in inputs_of(*size).items()}
        for size in ((max(batch, 2), max(length, 2)), (batch, length))
    )
    session = fxlab.Session(model, traced)
    # On one thread, the time of other processes does not count.
    clock = time.process_time if options.device == "cpu" and options.threads == 1 else None
    tuning = fxlab.tune(session, given, rounds=options.rounds, min_seconds=0.05, clock=clock)
    table = tuning.table()
    kept = table[table["kept"]]
    tried = (table["where"] == "everywhere") & (table["reason"] != "changes nothing")
    others = table[~table["kept"] & tried]
    return {
        "model": name,
        "inputs": f"{batch} x {length}" if length else f"{batch} image{'s' * (batch > 1)}",
        "dtype": dtype,
        "kept": [named(trial) for trial in kept.to_dict("records")],
        "ratio": [tuning.ratio, tuning.ratio_low, tuning.ratio_high],
        "verdict": "" if tuning.verdict is None else str(tuning.verdict.status),
        "others": [refusal(trial) for trial in others.to_dict("records")],
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
        "where": device_words(options),
    }


def placed(value: Any, device: str, dtype: torch.dtype) -> Any:
    """Return an input where the model is, floating point in its dtype."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype if value.is_floating_point() else None)


def named(trial: dict[str, Any]) -> str:
    """Return the name of a pass, and where it was tried."""
    return f"`{trial['pass']}`" + ("" if trial["where"] == "everywhere" else f" {trial['where']}")


def refusal(trial: dict[str, Any]) -> str:
    """Say why a pass is not kept."""
    ratio = "" if math.isnan(trial["ratio"]) else f" ({trial['ratio']:.2f})"
    return f"{named(trial)}: {trial['reason'].partition(':')[0]}{ratio}"


def device_words(options: argparse.Namespace) -> str:
    """Return what the model has run on, in words that name no host."""
    if options.device != "cpu":
        return torch.cuda.get_device_name()
    threads = "one thread (processor time)" if options.threads == 1 else f"{options.threads} threads"
    return f"{threads} of a CPU ({platform.machine()}) with {os.cpu_count()} cores"


def report(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table."""
    places = ", ".join(dict.fromkeys(row["where"] for row in rows))
    is_busy = max(row["load"] for row in rows) > BUSY
    busy = ", which others kept busy (ratios of times taken in turns stand that, their spread is wider)"
    lines = [
        f"Made by `python -m benchmarks.tuning` with torch {torch.__version__.partition('+')[0]} and "
        f"transformers {hf.__version__}, random weights, no gradients, on {places}{busy if is_busy else ''}. "
        "*Ratio* is the median of the times of the chosen stack over those of the model's own graph; nine of "
        "ten rounds are above the first number in brackets, nine of ten below the second. Parts of "
        "the candidates of a pass were tried as well, and are named where they are kept.",
        "",
        "| Model | Inputs | Dtype | Kept | Ratio | Verdict | Not kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        middle, low, high = row["ratio"]
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})" if row["kept"] else ""
        cells = [row["model"], row["inputs"], row["dtype"], ", ".join(row["kept"]) or "nothing", ratio]
        lines.append(f"| {' | '.join([*cells, row['verdict'], '; '.join(row['others'])])} |")
    return lines


def write(lines: list[str]) -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
