"""The forward and the backward graph of AOTAutograd as one step."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from fxlab.checks import check_is
from fxlab.models.free_paths import graph_module_of
from fxlab.models.graph_module import ensure_picklable
from fxlab.models.step_record import StepInput
from fxlab.node_info import attribute_at, is_backward, known_result, known_shape, outputs_of, target_text
from fxlab.steps.places import BACKWARD

_TANGENT = "tangents"
_WITH_PATHS = ("get_attr", "call_module")


def joined_step(
    forward: fx.GraphModule, backward: fx.GraphModule, parameters: Mapping[str, str] | None = None
) -> fx.GraphModule:
    """Join the separate forward and backward graphs of AOTAutograd into one graph.

    Values that the forward graph saves for the backward graph become lines between the two. The result takes
    the inputs of the forward graph and the gradients of its outputs (``tangents_1``, ...), and returns a
    dictionary: ``output 0``, ... and ``grad of ...`` for each input with a gradient. It is shown like a step
    of :func:`fxlab.trace_step`, with its memory over both passes.

    Parameters
    ----------
    forward, backward
        The graphs of a ``fw_compiler`` and a ``bw_compiler`` for one model; neither is changed. They may have
        gone through passes that keep the order of inputs and outputs.
    parameters
        Names of inputs of the forward graph -> their parameters, which AOTAutograd does not note. They are
        then shown in their modules, and name the gradients.

    Raises
    ------
    TypeError
        If one of the two is no graph module.
    ValueError
        If they come from different compiles, or the forward graph has no input of a name.

    Examples
    --------
    >>> import torch
    >>> from functorch.compile import aot_module, make_boxed_func
    >>> import fxlab
    >>> graphs = []
    >>> def keep(graph_module, inputs):
    ...     graphs.append(graph_module)
    ...     return make_boxed_func(graph_module)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    >>> aot_module(model, fw_compiler=keep, bw_compiler=keep)(torch.ones(3, 4)).sum().backward()
    >>> names = [name for name, _ in model.named_parameters()]
    >>> inputs = [node.name for node in graphs[0].graph.find_nodes(op="placeholder")]
    >>> step = fxlab.steps.joined_step(*graphs, dict(zip(inputs, names)))
    >>> [node.name for node in step.graph.find_nodes(op="placeholder")]
    ['primals_1', 'primals_2', 'primals_3', 'tangents_1']
    >>> list(step.graph.output_node().args[0])
    ['output 0', 'grad of 0.weight', 'grad of 0.bias']
    """
    check_is(fx.GraphModule, forward, "forward")
    check_is(fx.GraphModule, backward, "backward")
    joining = _Joining()
    values = joining.copy(forward, {})
    inputs = {node.name: values[node] for node in forward.graph.find_nodes(op="placeholder")}
    for name, path in (parameters or {}).items():
        if name not in inputs:
            raise ValueError(
                f"parameters: the forward graph has no input {name!r}. It has {', '.join(inputs)}."
            )
        inputs[name].meta["desc"] = StepInput("parameter", path, path)
    returned = list(outputs_of(forward.graph))
    saved = dict(_saved(returned, backward.graph))
    count = len(returned) - len(saved)
    mine = joining.copy(backward, {place: values[node] for place, node in saved.items()})
    outputs = {f"output {at}": _of(value, values) for at, value in enumerate(returned[:count])}
    names = [target_text(node) for node in inputs.values()]
    gradients = list(outputs_of(backward.graph))
    if len(gradients) != len(names):
        names = [str(at) for at in range(len(gradients))]
    for name, gradient in zip(names, gradients, strict=True):
        if isinstance(gradient, fx.Node):
            outputs[f"grad of {name}"] = mine[gradient]
    return joining.module(outputs)


class _Joining:
    """A graph of the nodes of several, with the modules and tensors that they read."""

    def __init__(self) -> None:
        self._graph = fx.Graph()
        self._held: dict[str, Any] = {}

    def copy(self, module: fx.GraphModule, known: dict[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
        """Copy the nodes of a graph except those that are known; return the copy of each."""
        values = dict(known)
        first = next((node for node in self._graph.nodes if node.op != "placeholder"), None)
        for node in module.graph.nodes:
            if node.op == "output" or node in values:
                continue
            if node.op == "placeholder" and first is not None:
                with self._graph.inserting_before(first):
                    values[node] = self._graph.node_copy(node, values.__getitem__)
                continue
            copy = values[node] = self._graph.node_copy(node, values.__getitem__)
            if node.op in _WITH_PATHS:
                copy.target = self._path(str(node.target), attribute_at(module, str(node.target)))
            if known and node.op != "placeholder" and not is_backward(copy):
                copy.meta[BACKWARD] = True
        return values

    def module(self, outputs: dict[str, Any]) -> fx.GraphModule:
        """Return the graph as a module that returns these values."""
        self._graph.output(outputs)
        module = graph_module_of(self._held, self._graph, "JoinedStep")
        ensure_picklable(module)
        return module

    def _path(self, path: str, value: Any) -> str:
        while self._held.setdefault(path, value) is not value:
            path += "_of_backward"
        return path


def _saved(returned: list[Any], backward: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yield inputs of a backward graph that the forward graph returns, by name or else in their order."""
    wanted = [node for node in backward.find_nodes(op="placeholder") if not _is_tangent(node)]
    by_name = {node.name: node for node in returned if isinstance(node, fx.Node)}
    if all(node.name in by_name for node in wanted):
        pairs = [(node, by_name[node.name]) for node in wanted]
    else:
        last = [node for node in returned[len(returned) - len(wanted) :] if isinstance(node, fx.Node)]
        pairs = []
        for is_number in (True, False):
            ours = [node for node in last if _is_number(node) is is_number]
            theirs = [node for node in wanted if _is_number(node) is is_number]
            if len(ours) != len(theirs):
                raise ValueError(_STRANGERS.format(name=wanted[0].name))
            pairs += zip(theirs, ours, strict=True)
    for node, value in pairs:
        if known_shape(node) != known_shape(value):
            raise ValueError(_STRANGERS.format(name=node.name))
    yield from pairs


_STRANGERS = (
    "backward: its input {name!r} is no value that the forward graph returns. Give the two graphs that "
    "AOTAutograd has made of one model, the forward graph first."
)


def _is_tangent(node: fx.Node) -> bool:
    return node.name.startswith(_TANGENT) or type(node.meta.get("desc")).__name__.startswith("Tangent")


def _is_number(node: fx.Node) -> bool:
    return isinstance(known_result(node), int | float | torch.SymInt | torch.SymFloat)


def _of(value: Any, values: dict[fx.Node, fx.Node]) -> Any:
    return values[value] if isinstance(value, fx.Node) else value
