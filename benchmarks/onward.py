"""Graphs in the formats that lead on: ``python -m benchmarks.onward`` writes ``onward.csv``.

Tiny models with random weights are traced, all passes that change something are switched on, and the graph
goes through each format. What comes out is run on the inputs, and on a larger batch where the format follows
sizes, beside the graph in eager mode. onnx, onnxruntime and executorch are in an environment of their own,
with the versions of ``constraints-onward.txt``, which sees the development environment's packages; it is made
in ``.venv-onward`` when it is not there. AOTInductor and ``torch.compile`` need a C++ compiler.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers as hf
from torch import nn
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.environments import ROOT, python_with
from fxlab.deployment.files.export import TensorGraph, exported, tensor_graph, write_file
from fxlab.values.tensors import tensors_by_path

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 100,
}
IMAGE = {**TEXT, "image_size": 32, "patch_size": 8}
SIDES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"layers": 2, "attention_heads": 2, "ffn_dim": 48}.items()
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}

Inputs = Mapping[str, Any]


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, 100, (batch, length))


def text(batch: int) -> Inputs:
    return {"input_ids": ids(batch, 7), "attention_mask": torch.ones(batch, 7, dtype=torch.long)}


def next_token(batch: int) -> Inputs:
    """Return the inputs of a step of generation: one token, and the cache of those before."""
    cache = hf.DynamicCache()
    for layer in range(2):
        cache.update(torch.randn(batch, 1, 5, 16), torch.randn(batch, 1, 5, 16), layer)
    return {"input_ids": ids(batch, 1), "past_key_values": cache, "use_cache": True}


def both_sides(batch: int) -> Inputs:
    return {"input_ids": ids(batch, 7), "decoder_input_ids": ids(batch, 4), "use_cache": False}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Inputs]]] = {
    "BERT": (lambda: hf.BertModel(hf.BertConfig(**TEXT)), text),
    "Llama, with its cache": (
        lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**TEXT, num_key_value_heads=1)),
        next_token,
    ),
    "T5": (
        lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=100)
        ),
        both_sides,
    ),
    "ViT": (
        lambda: hf.ViTForImageClassification(hf.ViTConfig(**IMAGE)),
        lambda batch: {"pixel_values": torch.randn(batch, 3, 32, 32)},
    ),
    "ResNet": (
        lambda: hf.ResNetForImageClassification(
            hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")
        ),
        lambda batch: {"pixel_values": torch.randn(batch, 3, 32, 32)},
    ),
    "Whisper": (
        lambda: hf.WhisperForConditionalGeneration(
            hf.WhisperConfig(
                **SIDES, d_model=32, max_source_positions=20, vocab_size=100, num_mel_bins=8, **TOKENS
            )
        ),
        lambda batch: {
            "input_features": torch.randn(batch, 8, 40),
            "decoder_input_ids": ids(batch, 4),
            "use_cache": False,
        },
    ),
}


class Case:
    """A model with passes, and inputs in two sizes."""

    def __init__(self, name: str) -> None:
        build, inputs = MODELS[name]
        torch.manual_seed(0)
        self.model = build().eval()
        self.inputs, self.larger = inputs(2), inputs(3)
        self.session = fxlab.Session(self.model, self.inputs)
        for pass_ in self.session.passes:
            self.session.apply(pass_)
        self.graph = self.session.graph_module
        self.verdict = str(self.session.verdict().status)

    def tensors(self, inputs: Inputs) -> TensorGraph:
        """Return the graph with tensors alone at its border, for these inputs."""
        return tensor_graph(self.graph, inputs)


def compiled(case: Case) -> Callable[[Inputs], Any]:
    torch.compiler.reset()
    module = torch.compile(case.graph)
    return lambda inputs: module(**fresh(inputs))


def by_backend(case: Case) -> Callable[[Inputs], Any]:
    torch.compiler.reset()
    module = copy.deepcopy(case.model)
    module.compile(backend=fxlab.as_backend(case.session))
    return lambda inputs: module(**fresh(inputs))


def by_tensors(case: Case, module: Callable[..., Any]) -> Callable[[Inputs], Any]:
    return lambda inputs: module(*case.tensors(inputs).inputs)


def program(case: Case) -> Callable[[Inputs], Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_file(case.tensors(case.inputs), f"{folder}/model.pt2", dynamic=True)
        return by_tensors(case, torch.export.load(f"{folder}/model.pt2").module())


def onnx(case: Case) -> Callable[[Inputs], Any]:
    graph = case.tensors(case.inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        program = exported(graph, dynamic=True)
        given, made = graph.input_names, graph.output_names
        with torch.no_grad():
            torch.onnx.export(
                program, f=path, input_names=given, output_names=made, dynamo=True, verbose=False
            )
        return by_tensors(case, OnnxModule(path, graph))


class OnnxModule(nn.Module):
    """Runs an ONNX file in onnxruntime, on the CPU."""

    def __init__(self, path: str, graph: TensorGraph) -> None:
        super().__init__()
        import onnxruntime

        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._names, self._outputs = graph.input_names, graph.output_names

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # An exporter leaves inputs out that nothing reads.
        known = {value.name for value in self._session.get_inputs()}
        given = zip(self._names, tensors, strict=True)
        feeds = {name: tensor.numpy(force=True) for name, tensor in given if name in known}
        return tuple(map(torch.from_numpy, self._session.run(list(self._outputs), feeds)))


def aot_inductor(case: Case) -> Callable[[Inputs], Any]:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise RuntimeError("no C++ compiler here")
    folder = tempfile.mkdtemp()
    path = torch._inductor.aoti_compile_and_package(
        exported(case.tensors(case.inputs), dynamic=True), package_path=f"{folder}/model.pt2"
    )
    return by_tensors(case, torch._inductor.aoti_load_package(path))


def executorch(case: Case) -> Callable[[Inputs], Any]:
    from executorch.exir import to_edge
    from executorch.runtime import Runtime

    # Sizes are fixed: memory is planned ahead for the largest.
    buffer = to_edge(exported(case.tensors(case.inputs), dynamic=False)).to_executorch().buffer
    program = Runtime.get().load_program(buffer)
    method = program.load_method("forward")
    held = buffer, program  # the runtime reads both while it runs

    def run(*tensors: torch.Tensor) -> Any:
        assert held
        return [tensor.clone() for tensor in method.execute(tensors)]

    return by_tensors(case, run)


def jit_trace(case: Case) -> Callable[[Inputs], Any]:
    graph = case.tensors(case.inputs)
    return by_tensors(case, torch.jit.trace(graph.module, graph.inputs))


FORMATS: dict[str, Callable[[Case], Callable[[Inputs], Any]]] = {
    "torch.compile": compiled,
    "as_backend": by_backend,
    "torch.export": program,
    "ONNX": onnx,
    "AOTInductor": aot_inductor,
    "ExecuTorch": executorch,
    "torch.jit.trace": jit_trace,
}


def fresh(inputs: Inputs) -> dict[str, Any]:
    """Return copies of inputs, as a cache is changed by a call."""
    from fxlab.models.running.arguments import call_arguments

    return call_arguments(inputs)[1]


def main() -> None:
    """Try all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing the table; all by default")
    parser.add_argument("--keep", type=Path, default=Path("onward.jsonl"), help="results so far")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        logging.set_verbosity_error()
        warnings.simplefilter("ignore")
        for line in tried(options.names[0], known(options.keep)):
            with options.keep.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return
    python = python_with(".venv-onward", ["-r", str(ROOT / "constraints-onward.txt")])
    for name in tqdm(options.names or MODELS, unit="model"):
        command = [str(python), "-W", "ignore", "-m", "benchmarks.onward", name, "--one"]
        # A crash of a runtime ends the process: that format has failed, and the next process goes on.
        for _ in FORMATS:
            done = subprocess.run([*command, "--keep", str(options.keep.resolve())], check=False, cwd=ROOT)
            if done.returncode == 0:
                break
    found = known(options.keep)
    rows = table(found, options.names or [*MODELS])
    print(rows.to_string(index=False))
    if not options.names:
        write(rows, next(iter(found.values()))["versions"])


def known(file: Path) -> dict[str, dict[str, str]]:
    """Return what was found so far: model -> format -> words."""
    found: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        model, name, words = json.loads(line)
        found.setdefault(model, {})[name] = words
    return found


def tried(name: str, before: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield what comes of each format: that it was begun, and then the result."""
    done = before.get(name, {})
    rest = [format_name for format_name in FORMATS if format_name not in done]
    if not rest:
        return
    case = Case(name)
    passes = [p.name for p in case.session.applied if case.session.changes(p).rewrites]
    yield name, "passes", str(len(passes))
    yield name, "verdict", case.verdict
    yield name, "versions", versions()
    for format_name in rest:
        yield name, format_name, "refused: the process crashes"
        try:
            with torch.no_grad():
                yield name, format_name, compared(case, FORMATS[format_name](case))
        except Exception as error:
            print(f"{name}, {format_name}: {error!r}"[:3000], file=sys.stderr)
            lines = str(error).strip().splitlines() or [""]
            yield name, format_name, f"refused: {type(error).__name__}: {lines[0][:200]}"


def compared(case: Case, run: Callable[[Inputs], Any]) -> str:
    """Return the largest difference on the inputs, and what came of a larger batch."""
    words = "equal" if (found := difference(case, run, case.inputs)) == 0 else f"{found:.0e}"
    try:
        other = difference(case, run, case.larger)
    except Exception:
        return f"{words}, this size"
    return f"{words}, other sizes" if other < 1e-4 else f"wrong at other sizes ({other:.0e})"


def difference(case: Case, run: Callable[[Inputs], Any], inputs: Inputs) -> float:
    """Return the largest difference to the graph, as a part of the largest magnitude of the output."""
    expected = list(tensors_by_path(case.graph(**fresh(inputs))).values())
    actual = list(tensors_by_path(run(inputs)).values())
    worst = 0.0
    for old, new in zip(expected, actual, strict=True):
        if old.shape != new.shape or not torch.isfinite(new.double()).all():
            raise ValueError(f"an output of shape {list(new.shape)} where it is {list(old.shape)}")
        if old.numel():
            scale = max(float(old.double().abs().max()), 1e-9)
            worst = max(worst, float((old.double() - new.double()).abs().max()) / scale)
    return worst


def versions() -> str:
    """Return the versions that this runs with."""
    names = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "executorch")
    return measured.versions(*names)


def table(found: Mapping[str, Mapping[str, str]], names: list[str]) -> pd.DataFrame:
    """Return a row for each model, with a column for each format."""
    columns = ("passes", "verdict", *FORMATS)
    return pd.DataFrame(
        {"model": name, **{column: found[name].get(column, "not tried") for column in columns}}
        for name in names
    )


def write(rows: pd.DataFrame, made_with: str) -> None:
    """Write the table, and the row of the page."""
    cells = rows[[*FORMATS]].stack()
    right = ~cells.str.contains("refused|wrong|not tried")
    figure = (
        f"{right.sum()} of {len(cells)} files and compiled graphs compute what the graph computes, "
        f"{(right & cells.str.contains('other sizes')).sum()} of them at other sizes too"
    )
    measured.write("python -m benchmarks.onward", figure, {"onward": rows}, made_with=made_with)


if __name__ == "__main__":
    main()
