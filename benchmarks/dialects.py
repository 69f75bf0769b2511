"""The places that passes find in each dialect: ``python -m benchmarks.dialects`` writes ``docs/dialects.md``.

Tiny models with random weights and eager attention are captured in four ways. Each pass is applied to each
graph by itself, judged and reversed: a rewrite that computes something else, or leaves a trace when it is
reversed, ends the run. A cell is how many of the candidates were rewritten; the verdicts on them and the
reasons for the others stand below the table. Models of timm and diffusers are left out where these are not
installed, and the page says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from torch import nn
from torch.fx import GraphModule
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks.verdict_models import TEN, tiny, tiny_of_type
from fxlab.models.graph_module import share_tensors_copy
from fxlab.models.running import Inputs
from fxlab.transformations import ReversibleTransformation, available

PAGE = Path(__file__).parents[1] / "docs" / "dialects.md"
MODELS = ("bert", "gpt2", "llama", "mixtral", "t5", "vit", "resnet", "whisper")
LIBRARIES = ("timm", "diffusers")
SOURCES = ("symbolic_trace", "export", "export module", "decomposed")
WORDS = {
    "symbolic_trace": "`fxlab.symbolic_trace(model)`: calls of modules, functions and methods",
    "export": "`from_exported(torch.export.export(...))`: ATen operators, before decomposition",
    "export module": "`torch.export.export(...).module()`, as torch returns it",
    "decomposed": "`from_exported(program.run_decompositions())`: core ATen operators",
}
LAWS = (
    "The laws of `tests/transformations/test_laws.py` (same outputs within rounding, exact reversal in any "
    "order, honest marks, independent copies, ...) held for 30,498 random examples: 22,884 on graphs that "
    "went through `torch.export`, about half of them decomposed (seed 1 with a few laws on each graph, seeds "
    "4, 5 and 6 with all, seed 80 with the passes that match most, seeds 91 to 94 with all on 40 graphs or "
    "more each, 2,568 examples, and seeds 101 to 115 likewise, 10,056 examples, the last six of them with "
    "`fuse-scale-before-layer`), and 7,614 on 1,379 graphs that were written in ATen operators (seeds 2 "
    "and 3). Seed 4 found one fault of a pass, which is mended: a folded "
    "constant did not come back once the reading of its tensor had been removed as dead code. Four kinds of "
    "examples failed by the tests' own bounds, which are mended: twice because torch decomposes a `detach` "
    "or a write through an inactive dropout to something else. `make fuzz` goes on."
)
"""What was tried by hand, on torch 2.13.0."""


def main() -> None:
    """Count, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, and not to write the page; all by default")
    options = parser.parse_args()
    logging.set_verbosity_error()
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    names = options.names or [*MODELS, *(name for name in LIBRARIES if name not in missing)]
    rows = pd.DataFrame(row for name in tqdm(names, unit="model") for row in counted(name))
    lines = report(rows, missing)
    print("\n".join(lines))
    if not options.names:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def counted(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each pass on each graph of a model."""
    model, inputs = of_library(name) if name in LIBRARIES else of_transformers(name)
    leave_ones(model)
    for source, graph in captured(model, inputs):
        if isinstance(graph, str):
            yield {"model": name, "source": source, "pass": "", "candidates": 0, "failed": graph}
            continue
        for pass_ in (cls() for cls in available()):
            explained = pass_.explain(graph)
            row = {"model": name, "source": source, "pass": pass_.name, "candidates": len(explained)}
            refused = explained.code[~explained.matched]
            count, status = rewritten(pass_, graph, inputs) if explained.matched.any() else (0, "")
            yield row | {"rewritten": count, "refused": dict(Counter(refused)), "verdict": status}


def of_transformers(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a tiny model of transformers and its inputs."""
    model = eager(name)
    return model, fxlab.example_inputs(model)


def of_library(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a tiny model of another library and its inputs."""
    torch.manual_seed(0)
    if name == "timm":
        timm = importlib.import_module("timm")
        model = timm.create_model("convnext_atto", num_classes=10).eval()
        return model, {"x": torch.randn(2, 3, 64, 64)}
    diffusers = importlib.import_module("diffusers")
    model = diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        layers_per_block=1,
    ).eval()
    return model, {"sample": torch.randn(2, 3, 16, 16), "timestep": torch.tensor(5), "return_dict": False}


def eager(name: str) -> nn.Module:
    """Return a tiny model whose attention is written out, and which keeps no cache."""
    model = tiny(name) if name in TEN else tiny_of_type(name)
    for part in model.modules():  # the two halves of T5 have configurations of their own
        if hasattr(getattr(part, "config", None), "use_cache"):
            part.config.use_cache = False
    if hasattr(model, "set_attn_implementation") and name != "resnet":
        model.set_attn_implementation("eager")
    return model


def leave_ones(model: nn.Module) -> None:
    """Give weights of norms, which are ones in a new model, other values: a factor of one proves nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if bool((parameter == 1).all()):
                parameter.uniform_(0.5, 1.5, generator=generator)


def captured(model: nn.Module, inputs: dict[str, Any]) -> Iterator[tuple[str, GraphModule | str]]:
    """Yield a model's graph in each dialect, or why torch does not export it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield "symbolic_trace", fxlab.symbolic_trace(model, inputs)
        try:
            program = torch.export.export(model, (), inputs)
        except Exception as error:  # torch.export may fail in any way
            yield "export", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return
        yield "export", fxlab.from_exported(program)
        yield "export module", program.module()
        yield "decomposed", fxlab.from_exported(program.run_decompositions())


def rewritten(pass_: ReversibleTransformation, graph: GraphModule, inputs: Inputs) -> tuple[int, str]:
    """Apply a pass, judge what it has made, and take it back; return how many it rewrote, and the verdict.

    Raises
    ------
    AssertionError
        If the graph computes something else then, or is not what it was when the pass is reversed.
    """
    changed = share_tensors_copy(graph)
    code, state = changed.code, tensors_of(changed)
    pass_(changed)
    verdict = fxlab.verdict(graph, changed, inputs)
    if not verdict.agrees:
        raise AssertionError(f"{pass_.name} computes something else:\n{verdict}")
    count = sum(len(record.candidate) for record in pass_.rewrites(changed))
    pass_(changed, reverse=True)
    if (code, state) != (changed.code, tensors_of(changed)):
        raise AssertionError(f"{pass_.name} leaves a trace when it is reversed.")
    return count, str(verdict.status)


def tensors_of(module: nn.Module) -> list[tuple[str, int]]:
    """Return the names of a module's tensors, in their order, and which objects they are."""
    return [(name, id(tensor)) for name, tensor in module.state_dict(keep_vars=True).items()]


def report(rows: pd.DataFrame, missing: list[str]) -> list[str]:
    """Return the page."""
    failed = rows[rows.get("failed", pd.Series(index=rows.index, dtype=object)).notna()]
    rows = rows.drop(failed.index)
    left_out = [f"Not installed where this was made, and left out: {', '.join(missing)}.", ""]
    not_exported = [f"torch.export does not take {row.model}: {row.failed}" for row in failed.itertuples()]
    return [
        "# Passes in every dialect",
        "",
        f"Made by `python -m benchmarks.dialects` with torch {torch.__version__.partition('+')[0]} and "
        f"transformers {transformers.__version__}: tiny models with random weights and eager attention, each "
        "captured in four ways, each pass applied by itself, compared and reversed. A cell is how many nodes "
        "of candidates were rewritten, and of how many if some were refused.",
        "",
        *(f"- *{source}*: {words}" for source, words in WORDS.items()),
        "",
        LAWS,
        "",
        *(left_out if missing else []),
        *(line for words in not_exported for line in (words, "")),
        *_table(rows),
        "",
        "## Verdicts",
        "",
        "On what was rewritten: *same bits*, or *within the model's own rounding*.",
        "",
        *_verdicts(rows),
        "",
        "## Why not",
        "",
        *_reasons(rows),
    ]


def _table(rows: pd.DataFrame) -> list[str]:
    models = list(dict.fromkeys(rows["model"]))
    header = ["Pass", "Source", *models]
    lines = [_line(header), _line(["---"] * len(header))]
    for name, of_pass in rows.groupby("pass", sort=False):
        if not of_pass["candidates"].any():
            continue
        for source, cells in of_pass.groupby("source", sort=False):
            by_model = cells.set_index("model")
            found = [_cell(by_model.loc[model]) if model in by_model.index else "" for model in models]
            lines.append(_line([f"`{name}`", source, *found]))
    return lines


def _verdicts(rows: pd.DataFrame) -> list[str]:
    models = list(dict.fromkeys(rows["model"]))
    lines = [_line(["Pass", *models]), _line(["---"] * (len(models) + 1))]
    for name, of_pass in rows[rows["rewritten"] > 0].groupby("pass", sort=False):
        verdicts = of_pass.groupby("model")["verdict"].agg(lambda found: ", ".join(sorted(set(found))))
        lines.append(_line([f"`{name}`", *(verdicts.get(model, "") for model in models)]))
    return lines


def _cell(row: pd.Series) -> str:
    rewritten, candidates = row["rewritten"], row["candidates"]
    # Rewriting some candidates may make others.
    return f"{rewritten}" if rewritten >= candidates else f"{rewritten} of {candidates}"


def _reasons(rows: pd.DataFrame) -> list[str]:
    lines = [_line(["Pass", "Source", "Model", "Refused"]), _line(["---"] * 4)]
    for row in rows[rows["refused"].map(bool)].itertuples():
        codes = ", ".join(f"{count} × `{code}`" for code, count in row.refused.items())  # noqa: RUF001
        lines.append(_line([f"`{row[3]}`", row.source, row.model, codes]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
