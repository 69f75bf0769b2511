"""A comparison as an assertion, for tests."""

from __future__ import annotations

import os
from typing import Any

from fxlab.comparison.compare import compare
from fxlab.models.running import Inputs
from fxlab.sources import Model


def assert_same(
    reference: Model,
    candidate: Model | None = None,
    inputs: Inputs | None = None,
    *,
    report: str | os.PathLike[str] | None = None,
    **options: Any,
) -> None:
    """Raise an ``AssertionError`` that names the first difference, unless two models compute the same.

    Parameters
    ----------
    reference, candidate, inputs, **options
        As for :func:`fxlab.compare`.
    report
        The HTML file to write if they differ.

    Raises
    ------
    AssertionError
        If they differ: what differs, where that begins, and weights that are others.

    Examples
    --------
    >>> import torch
    >>> linear = torch.nn.Linear(4, 2)
    >>> assert_same(linear, lambda x: x @ linear.weight.T + linear.bias, torch.ones(3, 4))
    """
    found = compare(reference, candidate, inputs, **options)
    if not found.agrees:
        where = f"\nReport: {found.report(report)}" if report is not None else ""
        raise AssertionError(f"{found}{where}")
