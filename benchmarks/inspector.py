"""How long the kernel keeps people waiting in the inspector: a script of its own, as there is no peer.

Run it with ``python -m benchmarks.inspector``. It traces Llama-3.1-405B's configuration on the meta device
and builds a graph of 100,000 nodes. For each it prints how long it takes until all that the first picture is
made of is written, how much is sent for it, how long the rest of the graph takes, and how long a node's
details. Opening a group asks nothing of the kernel: ``python -m benchmarks.page`` measures that. Then the
values of a node of ten million elements: until they are described, and until another index is.
"""

from __future__ import annotations

import itertools
import json
import statistics
import zlib
from collections.abc import Iterator
from functools import partial

import pandas as pd
import torch
from torch import fx, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import fxlab
from benchmarks import measured
from benchmarks.measure import seconds
from fxlab.drawing import start_layout_worker
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data import GraphData
from fxlab.view_model.graph_data.session_graphs import SessionGraphs
from fxlab.view_model.node_value import Axes, part_state

SELECTIONS = 60
LLAMA_405B = LlamaConfig(
    vocab_size=128256, hidden_size=16384, intermediate_size=53248, num_hidden_layers=126,
    num_attention_heads=128, num_key_value_heads=8,
)  # fmt: skip


def graphs() -> Iterator[tuple[str, fx.GraphModule]]:
    """Yield what is shown."""
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
    """Return a row of seconds, and of what is sent."""
    session = fxlab.Session(gm, passes=[])
    sent: list[int] = []
    made = SessionGraphs(session)

    def first() -> None:
        made.data.lay_out(made.alone(0))
        sent.append(written(made.data))

    def rest() -> None:
        while not made.data.fill(0):
            sent.append(written(made.data))
        sent.append(written(made.data))

    until_first, until_all = seconds(first), seconds(rest)
    describer = Describer(made.data.hierarchy(0), {})
    nodes = list(gm.graph.nodes)
    chosen = nodes[:: max(1, len(nodes) // SELECTIONS)]
    details = [seconds(partial(describer.node, node)) for node in chosen]
    return {
        "model": name,
        "nodes": len(nodes),
        "first picture": until_first,
        "sent for it, MB": sent[0] / 1e6,
        "the rest": until_all,
        "parts": len(sent),
        "sent in all, MB": sum(sent) / 1e6,
        "details, median": statistics.median(details),
        "most": max(details),
    }


def written(data: GraphData) -> int:
    """Write what is new as the inspector sends it, and return its bytes."""
    return len(zlib.compress(json.dumps(data.take(), separators=(",", ":")).encode(), 1))


def values_of_a_large_node() -> dict[str, object]:
    """Return a row of seconds, and of what is sent for each part."""
    values = fxlab.validation.NodeValues(
        "x", (fxlab.validation.TensorValue("value", "output", torch.randn(10, 1000, 1000)),)
    )
    sent: list[int] = []

    def describe(axes: Axes) -> None:
        sent.append(len(json.dumps(part_state(values, 0, axes))))

    return {
        "values of 10,000,000 elements": seconds(partial(describe, Axes())),
        "another index": seconds(partial(describe, Axes(1, 2, [3, 0, 0]))),
        "sent for each, MB": max(sent) / 1e6,
    }


def main() -> None:
    """Measure, print and write the table."""
    start_layout_worker()
    print(pd.DataFrame([values_of_a_large_node()]).round(3).to_string(index=False))
    table = pd.DataFrame([waits(name, gm) for name, gm in graphs()])
    print(table.round(3).to_string(index=False))
    first = ", ".join(f"{row['model']} {row['first picture']:.2g} s" for row in table.to_dict("records"))
    measured.write("python -m benchmarks.inspector", f"first picture: {first}", {"inspector": table})


if __name__ == "__main__":
    main()
