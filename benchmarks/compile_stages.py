"""The stages of ``torch.compile``: ``python -m benchmarks.compile_stages`` writes tables.

Each tiny model is compiled for inference and with gradients, each stage is judged against the original, and
each pass against the stage below it. Mistakes are planted in passes of the user's own, in single matches of
patterns and in the compiler's own passes, and looked for with ``fxlab.bisect``: one that is not found by its
name ends the run. Times are ratios to one ``torch.compile`` with code generation, in the same process and
without caches. The UNet takes diffusers, and all of it an hour.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx
from torch.fx import GraphModule, Interpreter
from torch.fx.passes.split_module import split_module
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.compile_mistakes import mistakes_in, mistakes_in_own_passes
from benchmarks.compile_models import MODELS, small
from fxlab.compiler import CompileSession
from fxlab.values.tensors import tensors_by_path

UNET = MODELS[-1]
ROUNDS = 2
"""Of which the fastest counts; the code of the UNet takes minutes to compile, and is compiled once."""
PARTS = 4
PARTS_WITH_GRADIENTS = "bert", "llama", "vit"
"""Those of ResNet end the process when they are trained (torch 2.13), also without a record."""


def main() -> None:
    """Compile, judge, plant mistakes, take times, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing tables; all by default")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = options.names or MODELS
    warm_up()
    stages = [row for name in tqdm(names, desc="stages") for row in stages_of(name)]
    rows = [row for name in tqdm(names, desc="mistakes") for row in mistakes_in(name)]
    rows += mistakes_in_own_passes(names[0])
    mistakes = pd.DataFrame(rows)
    times = pd.DataFrame(times_of(name) | code_of(name) for name in tqdm(names, desc="times"))
    modes = [(name, False) for name in names] + [(n, True) for n in names if n in PARTS_WITH_GRADIENTS]
    parts = [row for name, training in tqdm(modes, desc="parts") for row in parts_of(name, training=training)]
    tables = {
        "compile_stages": pd.DataFrame(stages + parts, dtype=object),
        "compile_mistakes": mistakes,
        "compile_times": times,
    }
    for table in tables.values():
        print(table.to_string(index=False))
    if not options.names:
        write(tables)


def warm_up() -> None:
    """Let torch import and initialise what it compiles with."""
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)
    fxlab.compiler.compile_session(model, inputs)
    with torch.no_grad():
        torch.compile(model)(inputs)


def stages_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each stack of passes of a model."""
    model, inputs = small(name)
    for training in (False, True):
        for kind, session in fxlab.compiler.compile_session(model, inputs, training=training).graphs.items():
            changes = [session.changes(pass_) for pass_ in session.passes]
            yield {
                "model": name,
                "stack": kind,
                "stages": len(session.stages),
                "unchanged": len(session.unchanged),
                "nodes": f"{len(session.original.graph.nodes)} to {len(session.graph_module.graph.nodes)}",
                "rewrites": sum(change.rewrites or 0 for change in changes),
                "verdict": said(lambda session=session: str(session.verdict().status)),
                "passes": worst(session),  # type: ignore[arg-type]
            }


def worst(session: CompileSession) -> str:
    """Return how many passes agree with the stage below, of how many."""
    found = [said(lambda p=p: "agrees" if session.verdict(p).agrees else p.name) for p in session.passes]
    wrong = [words for words in found if words != "agrees"]
    return f"{len(found) - len(wrong)} of {len(found)}" + (f" ({'; '.join(wrong)})" if wrong else "")


def said(verdict: Callable[[], str]) -> str:
    """Return a verdict, or why there is none."""
    try:
        return verdict()
    except ValueError as error:
        return str(error).split(". ")[0]


def code_of(name: str) -> dict[str, Any]:
    """Judge the generated code of a model."""
    session = fxlab.compiler.compile_session(*small(name))
    session.generate_code()
    found, below = session.verdict(), session.verdict("compiled code")
    return {
        "code against the model": f"{found.status} ({found.ratio or 0:.2f})",
        "code against the last graph": f"{below.status} ({below.ratio or 0:.2f})",
    }


def parts_of(name: str, *, training: bool) -> Iterator[dict[str, Any]]:
    """Record a backend that compiles four parts of the graph one by one, as inference servers do."""
    model, inputs = small(name)
    torch._dynamo.reset()
    try:
        with fxlab.compiler.record_compile() as record, torch.set_grad_enabled(training):
            outputs = torch.compile(model, backend=in_parts)(**inputs)
            if training:
                tensors = tensors_by_path(outputs).values()
                sum(tensor.sum() for tensor in tensors if tensor.requires_grad).backward()
    except AssertionError:
        # Without a record too: a part returns other strides than the next was compiled for.
        yield {"model": name, "stack": "the parts do not fit together, with or without a record"}
        return
    for graph, session in record.sessions.items():
        if session.passes:
            yield {
                "model": name,
                "stack": f"a part: {graph}",
                "stages": len(session.stages),
                "unchanged": len(session.unchanged),
                "nodes": f"{len(session.original.graph.nodes)} to {len(session.graph_module.graph.nodes)}",
                "verdict": said(lambda session=session: str(session.verdict().status)),
                "passes": worst(session),
            }


def in_parts(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Cut a graph into parts, and compile each."""
    calls = [node for node in graph_module.graph.nodes if node.op.startswith("call")]
    place = {node: number * PARTS // len(calls) for number, node in enumerate(calls)}
    whole = split_module(graph_module, None, place.__getitem__, keep_original_order=True)  # type: ignore[arg-type]

    class CompileParts(Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            part, result = self.fetch_attr(target), super().call_module(target, args, kwargs)
            del self.module._modules[target]
            vars(self.module)[target] = compile_fx.compile_fx(part, list(args))
            return result

    mode = detect_fake_mode(example_inputs)
    with mode:
        CompileParts(whole).run(*(mode.from_tensor(value) for value in example_inputs))
    return whole


def times_of(name: str) -> dict[str, Any]:
    """Take the times of recording, switching and reporting, as ratios to a compile with code."""
    model, inputs = small(name)
    rounds = 1 if name == UNET else ROUNDS

    def listened_to() -> None:
        with fxlab.compiler.record_compile():
            compiled(model, inputs)

    both = [(seconds(lambda: compiled(model, inputs)), seconds(listened_to)) for _ in range(rounds)]
    plain, listened = (min(times) for times in zip(*both, strict=True))
    recorded = fastest(lambda: fxlab.compiler.compile_session(model, inputs), rounds)
    session = fxlab.compiler.compile_session(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        report = fastest(lambda: fxlab.report(session, path=f"{folder}/compile.html"), rounds=1)
    return {
        "model": name,
        "torch.compile [s]": round(plain, 1),
        "compile_session": round(recorded / plain, 2),
        "record_compile": round(listened / plain, 2),
        "report [s]": round(report, 1),
    }


def fastest(run: Callable[[], Any], rounds: int) -> float:
    """Return the seconds that the fastest of some runs takes."""
    return min(seconds(run) for _ in range(rounds))


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds of this process and of the compilers that it starts."""
    before = sum(os.times()[:4])
    run()
    return sum(os.times()[:4]) - before


def compiled(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Compile with code generation, and without what was compiled before."""
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with torch.no_grad(), fresh_cache():
        torch.compile(model)(**inputs)


def write(tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the tables, and the row of the page."""
    stages, mistakes, times = tables.values()
    judged, ratios = stages["verdict"].dropna(), times["compile_session"]
    least, most = ratios.min(), ratios.max()
    agree = judged.isin(["same bits", "within the model's own rounding"])
    figure = (
        f"{agree.sum()} of {len(judged)} stacks of passes agree with Dynamo's graph; `fxlab.bisect` names "
        f"all {len(mistakes)} planted mistakes; `compile_session` takes {least:.2f} to {most:.2f} of "
        "`torch.compile`"
    )
    measured.write("python -m benchmarks.compile_stages", figure, tables)


if __name__ == "__main__":
    main()
