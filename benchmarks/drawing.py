"""The first picture of a graph against laying all of its nodes out flat with Graphviz."""

from collections.abc import Callable, Iterator

import pygraphviz
from torch.fx import GraphModule
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

import fxlab
from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    models = {
        "draw BERT-base": BertModel(BertConfig()),
        # Flat, a Llama of 8 layers gives no answer in minutes.
        "draw ResNet-50": ResNetModel(ResNetConfig()),
    }
    for task, model in models.items():
        gm = fxlab.symbolic_trace(model.eval(), check=False)
        yield Comparison(task, "all nodes flat, pygraphviz", lambda gm=gm: fxlab.draw(gm).svg, _flat(gm), 3)


def _flat(gm: GraphModule) -> Callable[[], bytes]:
    def run() -> bytes:
        graph = pygraphviz.AGraph(directed=True)
        for node in gm.graph.nodes:
            graph.add_node(node.name, shape="box")
            for value in node.all_input_nodes:
                graph.add_edge(value.name, node.name)
        return graph.draw(format="svg", prog="dot")

    return run
