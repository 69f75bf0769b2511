"""A backend of ``torch.compile`` that keeps the graphs it receives, as graph modules of the model's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from fxlab.base.first_use import pd
from fxlab.base.words import counted
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.generated_code import protect
from fxlab.tracing.dynamo.graph_break import GraphBreak, break_after, graph_break, reasons_noted
from fxlab.tracing.dynamo.model_graph import model_graph
from fxlab.tracing.dynamo.torch_private import running_modules
from fxlab.tracing.torch_private import FakeTensor


def runnable(graph_module: GraphModule) -> Callable[..., Any]:
    """Return the function that runs a graph, by code that torch's generator has no part in.

    Dynamo marks checkpoints; they save memory only if they are called.
    """
    result = share_tensors_copy(graph_module)
    for module in result.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.find_nodes(
                op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint
            ):
                node.target = checkpoint
            protect(module.graph, always=True)
            module.recompile()
            # Dynamo's modules write their code when they are called, which costs each call.
            assert module.code
    return result.forward


@dataclass(frozen=True)
class CapturedGraph:
    """One graph of a model that ``torch.compile`` was given; :class:`fxlab.Session` and the others take it.

    Examples
    --------
    >>> import torch
    >>> model, capture = torch.nn.Linear(4, 2), Capture()
    >>> output = torch.compile(model, backend=capture, dynamic=False)(torch.ones(3, 4))
    >>> capture.graphs[0]
    <CapturedGraph: 11 nodes, 1 input, no graph break>
    """

    graph_module: GraphModule
    """The graph, with the model's own weights under the model's own names."""
    inputs: tuple[Any, ...] | None
    """Copies of the inputs that it was captured with; ``None`` if these were fake tensors."""
    graph_break: GraphBreak | None = None
    """Why it ends where it does, and at which line; ``None`` if the function that was captured ends there."""

    def __repr__(self) -> str:
        count = len(self.inputs or ())
        ended = f"ends at {self.graph_break}" if self.graph_break else "no graph break"
        nodes = len(self.graph_module.graph.nodes)
        return f"<CapturedGraph: {counted(nodes, 'node')}, {counted(count, 'input')}, {ended}>"


class Capture:
    """A backend of ``torch.compile`` that keeps each graph with its inputs, and runs it as it is.

    Dynamo gives its backend a graph for each piece of a model between two graph breaks, and once more for
    other shapes or settings. The weights that it makes inputs of are attributes under the model's names
    again, and module paths are those of the model.

    Examples
    --------
    >>> import torch
    >>> capture = Capture()
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> output = torch.compile(model, backend=capture)(torch.ones(3, 4))
    >>> [*capture.graphs[0].graph_module.state_dict()]
    ['0.weight', '0.bias', '1.weight', '1.bias']
    >>> capture.breaks
    ()
    """

    def __init__(self) -> None:
        self._graphs: list[CapturedGraph] = []
        self._noted_before = reasons_noted()

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """The graphs, in the order in which they were captured."""
        return tuple(self._graphs)

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Graph breaks since this was made or cleared, each once, also with nothing captured before them.

        Dynamo notes them for the whole process, with those of models compiled otherwise.
        """
        before = {id(reason) for reason in self._noted_before}
        noted = (graph_break(reason) for reason in reasons_noted() if id(reason) not in before)
        # A reset of Dynamo clears its notes, and those of graphs are kept with these.
        known = (graph.graph_break for graph in self._graphs)
        return tuple(dict.fromkeys(found for found in (*known, *noted) if found))

    def clear(self) -> None:
        """Forget all graphs, their inputs and the breaks."""
        self._graphs.clear()
        self._noted_before = reasons_noted()

    @property
    def table(self) -> pd.DataFrame:
        """A row for each graph, with ``nodes``, ``inputs``, ``reason`` and ``place`` of its break."""
        rows = [
            (
                len(graph.graph_module.graph.nodes),
                len(graph.graph_module.graph.find_nodes(op="placeholder")),
                graph.graph_break.reason if graph.graph_break else "",
                graph.graph_break.place if graph.graph_break else "",
            )
            for graph in self._graphs
        ]
        index = pd.RangeIndex(len(rows), name="graph")
        return pd.DataFrame(rows, index=index, columns=["nodes", "inputs", "reason", "place"])

    def __call__(
        self, graph_module: GraphModule, example_inputs: Sequence[Any], **_: Any
    ) -> Callable[..., Any]:
        """Keep a graph; ``torch.compile`` calls this as its backend."""
        if not isinstance(graph_module, GraphModule):
            raise TypeError(
                "A capture is a backend: torch.compile(model, backend=capture)(inputs) keeps the graphs of a "
                f"model in capture.graphs. It was called with {type(graph_module).__name__}."
            )
        kept, inputs = model_graph(graph_module, example_inputs, running_modules())
        are_fake = any(isinstance(value, FakeTensor) for value in inputs)
        self._graphs.append(CapturedGraph(kept, None if are_fake else inputs, break_after(graph_module)))
        return runnable(graph_module)

    def __repr__(self) -> str:
        return f"<Capture: {len(self._graphs)} graph{'s' * (len(self._graphs) != 1)}>"
