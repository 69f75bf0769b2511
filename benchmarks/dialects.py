"""The places that passes find in each dialect: ``python -m benchmarks.dialects`` writes a table.

Tiny models with random weights and eager attention are captured in four ways. Each pass is applied to each
graph by itself, judged and reversed: a rewrite that computes something else, or leaves a trace when it is
reversed, ends the run. A row counts the candidates and the rewritten ones, with the verdict on these and the
reasons for the others. Models of timm and diffusers are tried where these are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.fx import GraphModule
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.verdict_models import TEN, tiny, tiny_of_type
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.running.arguments import Inputs
from fxlab.transformations import available
from fxlab.transformations.rewriting.rewrite_pass import CandidatePass

MODELS = ("bert", "gpt2", "llama", "mixtral", "t5", "vit", "resnet", "whisper")
LIBRARIES = ("timm", "diffusers")


def main() -> None:
    """Count, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing the table; all by default")
    options = parser.parse_args()
    logging.set_verbosity_error()
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    names = options.names or [*MODELS, *installed]
    rows = pd.DataFrame(row for name in tqdm(names, unit="model") for row in counted(name))
    print(rows.to_string(index=False))
    if not options.names:
        write(rows)


def counted(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each pass on each graph of a model."""
    model, inputs = of_library(name) if name in LIBRARIES else of_transformers(name)
    leave_ones(model)
    for source, graph in captured(model, inputs):
        if isinstance(graph, str):
            yield {"model": name, "source": source, "pass": "", "candidates": 0, "refused": graph}
            continue
        for pass_ in (cls() for cls in available()):
            explained = pass_.explain(graph)
            if explained.empty:
                continue
            row = {"model": name, "source": source, "pass": pass_.name, "candidates": len(explained)}
            refused = Counter(explained.code[~explained.matched])
            count, status = rewritten(pass_, graph, inputs) if explained.matched.any() else (0, "")  # type: ignore[arg-type]
            codes = ", ".join(f"{number} {code}" for code, number in refused.items())
            yield row | {"rewritten": count, "verdict": status, "refused": codes}


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


def rewritten(pass_: CandidatePass, graph: GraphModule, inputs: Inputs) -> tuple[int, str]:
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


def write(rows: pd.DataFrame) -> None:
    """Write the table, and the row of the page."""
    found = rows[rows["pass"] != ""].groupby("source", sort=False)["rewritten"].sum()
    counts = ", ".join(f"{source} {int(count)}" for source, count in found.items())
    figure = f"nodes of candidates rewritten: {counts}; every rewrite agrees and is reversed exactly"
    measured.write("python -m benchmarks.dialects", figure, {"dialects": rows})


if __name__ == "__main__":
    main()
