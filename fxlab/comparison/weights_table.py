"""The weights of two models, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fxlab.comparison import weights
from fxlab.sources import Model, module_of

if TYPE_CHECKING:
    import pandas as pd


def compare_weights(reference: Model, candidate: Model) -> pd.DataFrame:
    """Tell of each parameter and buffer of a model what it is in another; nothing is run.

    Values decide, and names where values leave a choice: a weight is found under another name, transposed,
    split or merged.

    Parameters
    ----------
    reference, candidate
        Models in any form that :func:`fxlab.compare` takes.

    Returns
    -------
    pandas.DataFrame
        A row for each weight of the candidate, and for those of the reference that it does not have, indexed
        by ``weight``: ``reference`` (the names there), ``status`` and ``detail``.

    Examples
    --------
    >>> from torch import nn
    >>> linear, other = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> other.weight = linear.weight
    >>> compare_weights(linear, other)["status"].tolist()
    ['equal', 'other values']
    """
    found = weights.compare_weights(module_of(reference, "reference"), module_of(candidate, "candidate"))
    return table_of(found)


def table_of(found: Iterable[weights.Weight]) -> pd.DataFrame:
    """Return that table."""
    import pandas as pd

    rows = [(each.candidate, ", ".join(each.reference), each.status, each.detail) for each in found]
    return pd.DataFrame(rows, columns=["weight", "reference", "status", "detail"]).set_index("weight")
