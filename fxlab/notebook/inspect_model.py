"""From a model to its inspector in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlab.first_use import pd
from fxlab.notebook.inspector import Inspector

if TYPE_CHECKING:
    from fxlab.overlays import Overlay
    from fxlab.session import Session
    from fxlab.sources import ModelLike
    from fxlab.transformations import Transformation


def inspect(
    model: ModelLike | Session | tuple[Any, ...],
    inputs: Any = None,
    *,
    passes: Sequence[Transformation] | None = None,
    overlay: str | os.PathLike[str] | pd.Series[Any] | pd.DataFrame | Overlay | Sequence[Any] | None = None,
    height: int | None = None,
    **arguments: Any,
) -> Inspector:
    """Show a model's graph, with a switch for each transformation and tables of their changes.

    Parameters
    ----------
    model
        A :class:`fxlab.Session`, which is shared: actions on the screen change it; or the source of one: a
        model, which is traced; a ``torch.fx.GraphModule``; an exported program or the path of one. A tuple of
        two to six models is shown side by side: each of them as :func:`fxlab.compare` aligns it with the
        first.
    inputs
        The inputs to trace and compare the model on: keyword arguments (a mapping), positional arguments (a
        tuple) or one tensor. Left out, they are made from the configuration of the model.
    passes
        The passes to offer, in the order in which they are applied. Left out, all that
        :func:`fxlab.transformations.offered` returns.
    overlay
        The values to colour the graph by at first: see ``Inspector.overlay``.
    height
        Height of the screen in CSS pixels. Left out, it follows the window of the browser.
    **arguments
        The inputs as keyword arguments, such as those of a tokenizer.

    Returns
    -------
    Inspector
        Show it as the value of a cell.

    Raises
    ------
    TypeError
        If the model is not a module, or ``inputs`` or ``passes`` are given together with a session, which has
        its own.

    Examples
    --------
    >>> import torch
    >>> from fxlab import Session
    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3)))
    >>> session = Session(traced, torch.ones(1, 2))
    >>> inspector = inspect(session)
    >>> _ = session.apply("fuse-bias-in-linear")  # shows in the inspector
    >>> "pad" in inspector.svg
    True
    >>> inspector.close()
    """
    inspector = Inspector(model, inputs, passes=passes, height=height, **arguments)
    if overlay is not None:
        inspector.overlay(overlay)
    return inspector
