"""Compare the outputs of two models on several kinds of inputs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from fxlab.checks import number
from fxlab.models.running import Inputs
from fxlab.sources import Model, compared_models
from fxlab.validation.outputs.compare_outputs import compare_outputs
from fxlab.validation.outputs.compare_outputs import not_compared as table_of_not_compared
from fxlab.validation.outputs.computed_tensors import outputs_of
from fxlab.validation.outputs.input_variants import Variants, named_inputs
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.verdict import verdict

if TYPE_CHECKING:
    import pandas as pd


def compare_on_variants(
    original: Model,
    transformed: Model | None = None,
    inputs: Inputs | Iterator[Inputs] | None = None,
    *,
    variants: Variants = True,
    atol: float = 1e-5,
    rtol: float = 1e-5,
) -> "pd.DataFrame":
    """Compare the outputs of two models on several inputs, made from one.

    A pass may be right for the inputs that it was tried on and wrong for a batch of one, for a padded text or
    for large values. Those that the original does not take are not compared. Whether a difference
    matters is judged by :func:`verdict`; its own ``variants`` ask the same for one answer.

    Parameters
    ----------
    original, transformed, inputs
        As for :func:`compare_outputs`.
    variants
        ``True`` for inputs that :func:`input_variants` makes, or inputs of your own, as for :func:`verdict`.
    atol, rtol
        As for :func:`compare_outputs`, for its columns. They decide nothing.

    Returns
    -------
    pandas.DataFrame
        The rows of :func:`compare_outputs`, indexed by the name of the ``inputs`` and the ``output`` path,
        with the ``status`` of each, what :func:`verdict` says of it, and its ``reason`` in words.
        Where only the transformed model does not run, ``note`` says why. ``table.attrs["not_compared"]``
        says which inputs are not in the table, and why.

    Raises
    ------
    TypeError
        If a model is no module or session, or ``inputs`` nothing that a model can be called with.
    ValueError
        If the original runs on none of them, or a tolerance is negative or NaN.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> table = compare_on_variants(model, model, torch.randn(3, 2))
    >>> table.index.get_level_values("inputs").unique().tolist()
    ['as given', 'other values', 'batch of 1', 'batch of 7', 'batch of 25', 'large values',
     'very large values', 'zeros', 'a NaN']
    """
    import pandas as pd

    first, second, known = compared_models(original, transformed, inputs)
    trials = named_inputs(first, known, variants)
    tables, not_compared = {}, {}
    atol, rtol = number(atol, "atol", at_least=0), number(rtol, "rtol", at_least=0)
    for name, given in trials.items():
        try:
            outputs_of(first, "original", given)
        except ValueError as error:
            not_compared[name] = str(error)
            continue
        tables[name] = _table(first, second, given, atol, rtol)
    if not tables:
        reasons = "; ".join(not_compared.values())
        raise ValueError(f"inputs: there are none that the original runs on: {reasons}")
    result = pd.concat(tables, names=["inputs", "output"])
    result.attrs["not_compared"] = not_compared
    return result


def _table(
    original: torch.nn.Module, transformed: torch.nn.Module, inputs: Inputs, atol: float, rtol: float
) -> "pd.DataFrame":
    try:
        table = compare_outputs(original, transformed, inputs, atol=atol, rtol=rtol)
    except ValueError as error:
        if not str(error).startswith("transformed:"):
            raise
        table = table_of_not_compared(outputs_of(original, "original", inputs), str(error))
        return table.assign(status=str(Status.DIFFERENT), reason=str(error))
    found = verdict(original, transformed, inputs).table[["status", "reason"]]
    facts = found.index.difference(table.index, sort=False)  # about the call, and about no tensor
    return table.reindex([*table.index, *facts]).join(found) if len(facts) else table.join(found)
