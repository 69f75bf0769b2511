"""The stages of ``torch.compile``: ``python -m benchmarks.compile_stages`` writes ``docs/compile_stages.md``.

Each tiny model is compiled for inference and with gradients, each stage is judged against the original, and
each pass against the stage below it. Mistakes are planted in passes of the user's own and in single matches
of patterns, and looked for with ``fxlab.bisect``: one that is not found by its name ends the run. Times are
ratios to one ``torch.compile`` with code generation, in the same process and without caches.
"""

from __future__ import annotations

import argparse
import operator
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from torch import nn
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.passes.split_module import split_module
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks.verdict_models import tiny, tiny_of_type
from fxlab.compiler import CompileSession

PAGE = Path(__file__).parents[1] / "docs" / "compile_stages.md"
MODELS = ("bert", "gpt2", "llama", "mixtral", "vit", "resnet")
ROUNDS = 2
PARTS = 4
PLACES = (
    "pre_grad_custom_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)
aten = torch.ops.aten


def main() -> None:
    """Compile, judge, plant mistakes, take times, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, and not to write the page; all by default")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = options.names or MODELS
    warm_up()
    stages = pd.DataFrame(row for name in tqdm(names, desc="stages") for row in stages_of(name))
    mistakes = pd.DataFrame(row for name in tqdm(names, desc="mistakes") for row in mistakes_in(name))
    times = pd.DataFrame(times_of(name) for name in tqdm(names, desc="times"))
    code = pd.DataFrame(code_of(name) for name in tqdm(names, desc="code"))
    rows = [row for name in tqdm(names, desc="parts") for row in parts_of(name)]
    parts = pd.DataFrame(rows, dtype=object)
    lines = page(stages, mistakes, times, code, parts)
    print("\n".join(lines))
    if not options.names:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def small(name: str) -> nn.Module:
    """Return a tiny model in evaluation mode."""
    torch.manual_seed(0)
    return (tiny_of_type(name) if name == "mixtral" else tiny(name)).eval()


def warm_up() -> None:
    """Let torch import and initialise what it compiles with."""
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)
    fxlab.compile_session(model, inputs)
    with torch.no_grad():
        torch.compile(model)(inputs)


def stages_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each stack of passes of a model."""
    model = small(name)
    inputs = fxlab.example_inputs(model)
    for training in (False, True):
        for kind, session in fxlab.compile_session(model, inputs, training=training).graphs.items():
            changes = [session.changes(pass_) for pass_ in session.passes]
            yield {
                "model": name,
                "stack": kind,
                "stages": len(session.stages),
                "unchanged": len(session.unchanged),
                "nodes": f"{len(session.original.graph.nodes)} to {len(session.graph_module.graph.nodes)}",
                "rewrites": sum(change.rewrites or 0 for change in changes),
                "verdict": said(lambda session=session: str(session.verdict().status)),
                "passes": worst(session),
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


def mistakes_in(name: str) -> Iterator[dict[str, Any]]:
    """Plant a mistake at each place where a user's pass can stand, and in one match of a pattern."""
    model = small(name)
    inputs = fxlab.example_inputs(model)
    for place in PLACES:
        session = fxlab.compile_session(model, inputs, options={place: a_mistake})
        yield found(name, place, session, "a_mistake")
    apply, wrong = pattern_with_a_mistake(model, inputs)
    session = fxlab.compile_session(model, inputs, options={"post_grad_custom_post_pass": apply})
    row = found(name, "one match of a pattern", session, "adds")
    excluded = fxlab.bisect(session).rewrites
    session.exclude("post_grad/adds", *excluded)
    if not session.verdict().agrees:
        raise AssertionError(f"{name}: the mistake is not in {excluded}, but in {wrong}")
    yield row


def found(name: str, place: str, session: CompileSession, planted: str) -> dict[str, Any]:
    """Return a row that says what was found of a mistake.

    Raises
    ------
    AssertionError
        If it is another pass, or none.
    """
    started = time.perf_counter()
    bisection = fxlab.bisect(session)
    if bisection is None or not bisection.pass_.name.endswith(f"/{planted}"):
        raise AssertionError(f"{name}: {place} has a mistake, but bisect finds {bisection}")
    rewrites = ", ".join(bisection.rewrites)
    return {
        "model": name,
        "place": place,
        "found": bisection.pass_.name + (f": {rewrites}" if rewrites else ""),
        "runs": bisection.runs,
        "seconds": round(time.perf_counter() - started, 1),
    }


def sums(graph: Graph) -> list[Node]:
    """Return the nodes that add two tensors of floats."""
    targets = (aten.add.Tensor, torch.add, "add", operator.add, operator.iadd)
    return [
        node
        for node in graph.nodes
        if node.target in targets
        and len(node.args) == 2
        and all(isinstance(argument, Node) for argument in node.args)
        and is_float(node)
    ]


def is_float(node: Node) -> bool:
    """Tell whether a node computes floats."""
    value = node.meta.get("val", node.meta.get("example_value"))
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1


def a_mistake(graph: Graph) -> None:
    """Halve the first operand of the sum in the middle; the second may be a bias of zeros."""
    nodes = sums(graph)
    node = nodes[len(nodes) // 2]
    with graph.inserting_before(node):
        mul = torch.mul if "example_value" in node.meta else aten.mul.Tensor
        half = graph.call_function(mul, (node.args[0], 0.5))
    half.meta.update(node.args[0].meta)
    node.args = (half, node.args[1])


def pattern_with_a_mistake(model: nn.Module, inputs: Any) -> tuple[Callable[[Graph], Any], str]:
    """Return a pass that rewrites each sum, one of them wrongly, and which one that is."""
    from torch._inductor.pattern_matcher import (
        CallFunction,
        KeywordArg,
        PatternMatcherPass,
        register_graph_pattern,
    )

    names: list[str] = []
    fxlab.compile_session(
        model,
        inputs,
        options={"post_grad_custom_post_pass": lambda graph: names.extend(map(str, sums(graph)))},
    )
    wrong = names[len(names) // 2]
    patterns = PatternMatcherPass("adds")

    @register_graph_pattern(
        CallFunction(aten.add.Tensor, KeywordArg("a"), KeywordArg("b")), pass_dict=patterns
    )
    def other_way_round(match: Any, a: Any, b: Any) -> None:
        node = match.output_node()
        if not isinstance(a, Node) or not isinstance(b, Node):
            return
        with node.graph.inserting_before(node):
            new = node.graph.call_function(aten.add.Tensor, (b, a))
            if node.name == wrong:
                new = node.graph.call_function(aten.relu.default, (new,))  # a norm would hide a factor
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)

    return patterns.apply, wrong


def code_of(name: str) -> dict[str, Any]:
    """Judge the generated code of a model."""
    model = small(name)
    session = fxlab.compile_session(model, fxlab.example_inputs(model))
    session.generate_code()
    kernels = session.kernels()["kernel"]
    found, below = session.verdict(), session.verdict("compiled code")
    return {
        "model": name,
        "nodes with a kernel": len(kernels),
        "calls of kernels": len({kernel for cell in kernels for kernel in cell.split(", ")}),
        "against the model": f"{found.status} ({found.ratio or 0:.2f} times it)",
        "against the stage below": f"{below.status} ({below.ratio or 0:.2f} times it)",
    }


def parts_of(name: str) -> Iterator[dict[str, Any]]:
    """Record a backend that compiles four parts of the graph one by one, as inference servers do."""
    model = small(name)
    inputs = fxlab.example_inputs(model)
    torch._dynamo.reset()
    try:
        with fxlab.record_compile() as record, torch.no_grad():
            torch.compile(model, backend=in_parts)(**inputs)
    except (
        AssertionError
    ):  # without a record too: a part returns other strides than the next was compiled for
        yield {"model": name, "graph": "the parts do not fit together, with or without a record"}
        return
    for graph, session in record.sessions.items():
        if session.passes:
            yield {
                "model": name,
                "graph": graph,
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
    whole = split_module(graph_module, None, place.__getitem__, keep_original_order=True)

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
    model = small(name)
    inputs = fxlab.example_inputs(model)

    def listened_to() -> None:
        with fxlab.record_compile():
            compiled(model, inputs)

    both = [(seconds(lambda: compiled(model, inputs)), seconds(listened_to)) for _ in range(ROUNDS)]
    plain, listened = (min(times) for times in zip(*both, strict=True))
    recorded = fastest(lambda: fxlab.compile_session(model, inputs))
    session = fxlab.compile_session(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        report = fastest(lambda: fxlab.report(session, path=f"{folder}/compile.html"), rounds=1)
    return {
        "model": name,
        "torch.compile": f"{plain:.1f} s",
        "compile_session": f"{recorded:.1f} s",
        "ratio": f"{recorded / plain:.2f}",
        "record_compile": f"{listened:.1f} s",
        "its ratio": f"{listened / plain:.2f}",
        "report": f"{report:.1f} s",
    }


def fastest(run: Callable[[], Any], rounds: int = ROUNDS) -> float:
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


def page(
    stages: pd.DataFrame,
    mistakes: pd.DataFrame,
    times: pd.DataFrame,
    code: pd.DataFrame,
    parts: pd.DataFrame,
) -> list[str]:
    """Return the page."""
    return [
        "# Stages of torch.compile",
        "",
        f"Made by `python -m benchmarks.compile_stages` with torch {torch.__version__.partition('+')[0]} and "
        f"transformers {transformers.__version__}: tiny models with random weights, compiled for inference "
        "and with gradients. A stage is a pass that changed the graph, and the original; *unchanged* passes "
        "ran and changed nothing. *Verdict* is that of the last stage against Dynamo's graph, run by eager, "
        "*passes* how many compute what the stage below computes.",
        "",
        *table(stages),
        "",
        "## Planted mistakes",
        "",
        "In passes of a user's own at every place where one can stand, and in one match of a pattern: what "
        "`fxlab.bisect` finds, after how many runs. Without the match that was found, all models agree.",
        "",
        *table(mistakes),
        "",
        "## Compiled code",
        "",
        "Errors that scheduling, fusion and code generation add: the generated code, run on the CPU, judged "
        "against Dynamo's graph run by eager and against the last stage. *Nodes* are those of the last graph "
        "that went into a kernel.",
        "",
        *table(code),
        "",
        "## Parts compiled one by one",
        "",
        f"A backend that cuts Dynamo's graph into {PARTS} parts and compiles each, as inference servers do, "
        "recorded by `record_compile`; each part is judged on the values that it ran on.",
        "",
        *table(parts.fillna("")),
        "",
        "## Times",
        "",
        "CPU seconds, those of the C++ compiler included; the fastest of "
        f"{ROUNDS}. `torch.compile` generates code without caches, and so it does inside of "
        "`record_compile`, in turns; `compile_session` generates none. A report runs and judges every stage.",
        "",
        *table(times),
    ]


def table(rows: pd.DataFrame) -> list[str]:
    """Return a table in Markdown."""
    lines = [list(map(str, rows.columns)), ["---"] * len(rows.columns), *rows.astype(str).values.tolist()]
    return [f"| {' | '.join(cells)} |" for cells in lines]


if __name__ == "__main__":
    main()
