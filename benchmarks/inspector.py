"""How long people wait for the inspector: a script of its own, as there is no peer to compare with.

Run it with ``python -m benchmarks.inspector``. It traces Llama-3.1-405B's configuration on the meta device
and builds a graph of 100,000 nodes, and prints how long the first picture and each opening of a group take.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

import pandas as pd
import torch
from torch import fx, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import fxlab
from benchmarks.measure import seconds
from fxlab.drawing import Group, View, build_hierarchy, render, start_layout_worker

OPENINGS = 60
LLAMA_405B = LlamaConfig(
    vocab_size=128256, hidden_size=16384, intermediate_size=53248, num_hidden_layers=126,
    num_attention_heads=128, num_key_value_heads=8,
)  # fmt: skip


def graphs() -> Iterator[tuple[str, fx.GraphModule]]:
    """Yield what is drawn."""
    yield "BERT-base", fxlab.symbolic_trace(BertModel(BertConfig()).eval(), check=False)
    with torch.device("meta"):
        llama = LlamaForCausalLM(LLAMA_405B).eval()
    yield "Llama-3.1-405B on meta", fxlab.symbolic_trace(llama, check=False)
    yield "100,000 nodes", synthetic(100_000)


def synthetic(count: int, block: int = 40) -> fx.GraphModule:
    """Return a graph of blocks of calls, each of which reads the one before and a value of the start."""
    graph = fx.Graph()
    start = node = graph.placeholder("x")
    for number in itertools.count():
        stack = {f"layers.{number}": (f"layers.{number}", nn.Module)}
        for _ in range(block):
            node = graph.call_function(torch.add, (node, start))
            node.meta["nn_module_stack"] = stack
        if len(graph.nodes) >= count:
            break
    graph.output(node)
    return fx.GraphModule(nn.Module(), graph)


def waits(name: str, gm: fx.GraphModule) -> dict[str, object]:
    """Return a row of seconds."""
    first = seconds(lambda: render(View.default(build_hierarchy(gm))))
    hierarchy = build_hierarchy(gm)
    view = View.default(hierarchy)
    closed = [g for g in hierarchy.groups.values() if g.path and g.path not in view.opened]
    times = []
    for group in closed[:: max(1, len(closed) // OPENINGS)]:
        assert isinstance(group, Group)
        opened = View.default(hierarchy)
        times.append(seconds(lambda opened=opened, path=group.path: render(opened.open(path))))
    times.sort()
    return {
        "model": name,
        "nodes": len(gm.graph.nodes),
        "first picture": first,
        "opening, median": statistics.median(times),
        "opening, 95th percentile": times[int(0.95 * (len(times) - 1))],
        "most": times[-1],
        "openings": len(times),
    }


def main() -> None:
    """Measure and print."""
    start_layout_worker()
    print(pd.DataFrame([waits(name, gm) for name, gm in graphs()]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
