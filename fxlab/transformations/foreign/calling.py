"""The forms in which other projects write passes, each called as it expects to be."""

import inspect
from typing import Any

from torch.fx import Graph, GraphModule

_GRAPHS = (Graph, "Graph", "fx.Graph", "torch.fx.Graph")
_INPUTS = ("example_inputs", "sample_inputs", "fake_inputs", "inputs")


def is_pattern_matcher(value: object) -> bool:
    """Tell whether a value is a set of Inductor's patterns, which is applied and not called."""
    return _derives_from(value, "PatternMatcherPass")


def call_pass(function: Any, graph_module: GraphModule) -> Any:
    """Call somebody's pass with what it takes: a graph module, its graph, or example inputs as well.

    Example inputs are those that the graph was made for (``meta["val"]``), as compilers pass them. Raises
    ValueError if the function takes example inputs, and the graph does not say what they are.
    """
    if is_pattern_matcher(function):
        return function.apply(graph_module)
    parameters = _parameters(function)
    if (parameters and parameters[0].annotation in _GRAPHS) or _derives_from(function, "CustomGraphPass"):
        result = function(graph_module.graph)
        graph_module.recompile()
        return None if isinstance(result, Graph) else result
    inputs = next((each for each in parameters[1:] if each.name in _INPUTS), None)
    if inputs is None or inputs.default not in (inputs.empty, None):
        return function(graph_module)
    values = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    if not any(value is None for value in values):
        return function(graph_module, **{inputs.name: values})
    if inputs.default is inputs.empty:
        raise ValueError(
            f"The pass takes {inputs.name}, and the shapes of the graph are unknown. Trace the model with "
            "fxlab.symbolic_trace, or run FakeTensorProp."
        )
    return function(graph_module)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    return [each for each in parameters if each.kind is not each.POSITIONAL_ONLY]


def _derives_from(value: object, name: str) -> bool:
    """Tell it of a class of Inductor, which need not be imported for that."""
    classes = type(value).__mro__
    return any(each.__name__ == name and each.__module__.startswith("torch._inductor") for each in classes)
