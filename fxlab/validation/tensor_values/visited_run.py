"""One run of a graph that shows each value to a visitor, for values of nodes and origins of NaN."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.interrupts import RestoringStack
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import generators_kept, gradients_for, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.operators.node_info import upstream
from fxlab.validation.arguments import check_runs_by_node
from fxlab.validation.tensor_values.statistics import readable
from fxlab.values.tensors import tensors_by_path


def visit_values(
    graph_module: GraphModule,
    inputs: Inputs,
    visit: Callable[[Node, Any], None],
    *,
    last: Node | None = None,
    name: str = "model",
) -> None:
    """Run a graph and show each value as it is right after its node; model and inputs stay as they were.

    ``graph_module``: the graph, in the mode (training or not) that it is in. ``visit``: called with each node
    but the output, and its value, which later nodes may write into. ``last``: the node after which the run
    ends; left out, all of the graph is run. ``name``: the name of the graph in errors. Raises ValueError if
    it does not run on the inputs, or not node by node.
    """
    check_runs_by_node(graph_module, name)
    arguments = placeholder_values(graph_module, inputs)
    interpreter = _Visiting(graph_module, visit, last)
    kept = generators_kept(), state_kept(graph_module)
    try:
        with RestoringStack(gradients_for(graph_module), *kept):
            seed_generators(0)
            interpreter.run(*arguments)
    except _ReachedError:
        pass
    except Exception as error:  # a model may refuse inputs with any error
        at = interpreter.at
        where = f"node {at.name!r}" if at is not None else "it"
        raise ValueError(f"{name}: {where} does not run on these inputs: {error}") from error


class _ReachedError(Exception):
    """The last node has run."""


class _Visiting(Interpreter):
    def __init__(
        self, graph_module: GraphModule, visit: Callable[[Node, Any], None], last: Node | None
    ) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.at: Node | None = None
        self._visit, self._last = visit, last

    def run_node(self, n: Node) -> Any:
        """Run one node, and show its value."""
        self.at = n
        result = super().run_node(n)
        if n.op != "output":
            self._visit(n, result)
        if n is self._last:
            raise _ReachedError
        return result


def values_at(
    graph_module: GraphModule, node: Node, inputs: Inputs, name: str = "model"
) -> dict[str, torch.Tensor]:
    """Run a graph up to a node; return the tensors in its value by path. Raises as :func:`visit_values`."""
    found: dict[str, torch.Tensor] = {}

    def note(at: Node, value: Any) -> None:
        if at is node:
            # The state that is put back after the run may overwrite tensors of the model and of inputs.
            is_own = node.op in ("placeholder", "get_attr")
            for path, tensor in tensors_by_path(value).items():
                found[path] = tensor.detach().clone() if is_own and not tensor.is_meta else tensor.detach()

    visit_values(graph_module, inputs, note, last=node, name=name)
    return found


class FirstNonFinite(NamedTuple):
    """The names of the first nodes that hold NaN and infinite elements; ``None`` if there is none."""

    nan: str | None
    inf: str | None


def first_non_finite(graph_module: GraphModule, node: Node, inputs: Inputs) -> FirstNonFinite:
    """Run a graph up to a node, and find where NaN and infinity in it come from, upstream included.

    Raises as :func:`visit_values`.
    """
    read = upstream(node)
    found: dict[str, str] = {}

    def note(at: Node, value: Any) -> None:
        if at not in read or len(found) == 2:
            return
        for tensor in tensors_by_path(value).values():
            try:
                values = readable(tensor)
            except (ValueError, RuntimeError, NotImplementedError):
                continue  # a sparse or wrapped tensor has no elements to look at
            if not values.dtype.is_floating_point or bool(values.isfinite().all()):
                continue
            for kind, test in (("nan", torch.isnan), ("inf", torch.isinf)):
                if kind not in found and bool(test(values).any()):
                    found[kind] = at.name

    visit_values(graph_module, inputs, note, last=node)
    return FirstNonFinite(found.get("nan"), found.get("inf"))
