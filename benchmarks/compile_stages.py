"""The stages of ``torch.compile``: ``python -m benchmarks.compile_stages`` writes ``docs/compile_stages.md``.

Each tiny model is compiled for inference and with gradients, each stage is judged against the original, and
each pass against the stage below it. Mistakes are planted in passes of the user's own and in single matches
of patterns, and looked for with ``fxlab.bisect``: one that is not found by its name ends the run. Times are
ratios to one ``torch.compile`` with code generation, in the same process and without caches.
"""

from __future__ import annotations

import argparse
import operator
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
from torch.fx import Graph, Node
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks.verdict_models import tiny, tiny_of_type
from fxlab.compiler import CompileSession

PAGE = Path(__file__).parents[1] / "docs" / "compile_stages.md"
MODELS = ("bert", "gpt2", "llama", "mixtral", "vit", "resnet")
ROUNDS = 3
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
    lines = page(stages, mistakes, times)
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
            # Where what is added is a bias of zeros, its negative would be the same.
            terms = (b, b) if node.name == wrong else (b, a)
            new = node.graph.call_function(aten.add.Tensor, terms)
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)

    return patterns.apply, wrong


def times_of(name: str) -> dict[str, Any]:
    """Take the times of recording, switching and reporting, as ratios to a compile with code."""
    model = small(name)
    inputs = fxlab.example_inputs(model)
    plain = fastest(lambda: compiled(model, inputs), rounds=1)
    recorded = fastest(lambda: fxlab.compile_session(model, inputs))
    session = fxlab.compile_session(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        report = fastest(lambda: fxlab.report(session, path=f"{folder}/compile.html"), rounds=1)
    return {
        "model": name,
        "torch.compile": f"{plain:.1f} s",
        "compile_session": f"{recorded:.1f} s",
        "ratio": f"{recorded / plain:.2f}",
        "report": f"{report:.1f} s",
    }


def fastest(run: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the seconds that the fastest of some runs takes."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def compiled(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Compile with code generation, and without what was compiled before."""
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with torch.no_grad(), fresh_cache():
        torch.compile(model)(**inputs)


def page(stages: pd.DataFrame, mistakes: pd.DataFrame, times: pd.DataFrame) -> list[str]:
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
        "## Times",
        "",
        "`torch.compile` generates code, once and without caches; `compile_session` does not (the fastest "
        f"of {ROUNDS}). A report runs and judges every stage.",
        "",
        *table(times),
    ]


def table(rows: pd.DataFrame) -> list[str]:
    """Return a table in Markdown."""
    lines = [list(map(str, rows.columns)), ["---"] * len(rows.columns), *rows.astype(str).values.tolist()]
    return [f"| {' | '.join(cells)} |" for cells in lines]


if __name__ == "__main__":
    main()
