"""Compare the outputs of two models on several kinds of inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.fx import Graph, GraphModule

from fxlab.checks import described, number
from fxlab.models.running import Inputs, checked_module
from fxlab.validation.arguments import inputs_or_examples
from fxlab.validation.outputs.compare_outputs import compare_outputs, not_compared
from fxlab.validation.outputs.computed_tensors import outputs_of
from fxlab.validation.outputs.input_variants import input_variants, vocabulary_of
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.verdict import verdict

if TYPE_CHECKING:
    import pandas as pd


def compare_on_variants(
    a: torch.nn.Module,
    b: torch.nn.Module,
    inputs: Inputs | None = None,
    *,
    variants: Mapping[str, Inputs] | None = None,
    atol: float = 1e-5,
    rtol: float = 1e-5,
) -> "pd.DataFrame":
    """Compare the outputs of two models on several inputs, made from one.

    A pass may be right for the inputs that it was tried on and wrong for a batch of one, for a padded text or
    for large values. Those that the first model does not take are left out, with a note. Whether a difference
    matters is judged by :func:`verdict`; its own ``variants`` ask the same for one answer.

    Parameters
    ----------
    a
        The reference.
    b
        The model compared with it.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, they are made
        from the configuration and signature of ``a`` (see :func:`fxlab.example_inputs`).
    variants
        Inputs of your own by a name; left out, those of :func:`input_variants`.
    atol, rtol
        As for :func:`compare_outputs`, for its columns. They decide nothing.

    Returns
    -------
    pandas.DataFrame
        The rows of :func:`compare_outputs`, indexed by the name of the ``inputs`` and the ``output`` path,
        with the ``status`` of each, what :func:`verdict` says of it, and its ``reason`` in words.
        Where only ``b`` does not run, ``note`` says why. ``table.attrs["left_out"]`` says why which inputs
        are not in the table.

    Raises
    ------
    TypeError
        If a model is no ``torch.nn.Module``, or ``inputs`` nothing that a model can be called with.
    ValueError
        If ``a`` runs on none of them, or a tolerance is negative or NaN.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> table = compare_on_variants(model, model, torch.randn(3, 2))
    >>> table.index.get_level_values("inputs").unique().tolist()
    ['as given', 'other values', 'batch of 1', 'batch of 7', 'batch of 25', 'large values',
     'very large values', 'zeros']
    """
    import pandas as pd

    checked_module(a, "a")
    checked_module(b, "b")
    if variants is None:
        given = inputs_or_examples(inputs, a)
        variants = input_variants(given, vocabulary=vocabulary_of(a))
    tables, left_out = {}, {}
    if not isinstance(variants, Mapping):
        raise TypeError(f"variants: expected a mapping of names to inputs, got {described(variants)}.")
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        number(tolerance, name, at_least=0)
    for name, given in variants.items():
        try:
            outputs_of(a, "a", given)
        except ValueError as error:
            left_out[name] = str(error)
            continue
        tables[name] = _table(a, b, given, atol, rtol)
    if not tables:
        reasons = "; ".join(left_out.values()) or "variants is empty"
        raise ValueError(f"inputs: there are none that the first model runs on: {reasons}")
    result = pd.concat(tables, names=["inputs", "output"])
    result.attrs["left_out"] = left_out
    return result


def _table(
    a: torch.nn.Module, b: torch.nn.Module, inputs: Inputs, atol: float, rtol: float
) -> "pd.DataFrame":
    try:
        table = compare_outputs(a, b, inputs, atol=atol, rtol=rtol)
    except ValueError as error:
        if not str(error).startswith("b:"):
            raise
        table = not_compared(outputs_of(a, "a", inputs), str(error))
        return table.assign(status=str(Status.DIFFERENT), reason=str(error))
    found = verdict(_as_graph(a, inputs), _as_graph(b, inputs), inputs).table
    return table.join(found[["status", "reason"]])


def _as_graph(model: torch.nn.Module, inputs: Inputs) -> GraphModule:
    """Return a model as a graph: itself, or a single call of it."""
    if isinstance(model, GraphModule):
        return model
    graph = Graph()
    if isinstance(inputs, Mapping):
        node = graph.call_module("model", (), {name: graph.placeholder(name) for name in inputs})
    else:
        count = 1 if isinstance(inputs, torch.Tensor) else len(inputs)
        node = graph.call_module("model", tuple(graph.placeholder(f"input_{n}") for n in range(count)))
    graph.output(node)
    return GraphModule({"model": model}, graph)
