"""From a model to its inspector in one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlab.base.first_use import pd
from fxlab.drawing.drawing import draw
from fxlab.front_desk.sources import Model
from fxlab.models.running.running import Inputs
from fxlab.notebook.inspector import Inspector
from fxlab.session.session_of import session_of
from fxlab.tracing.report import TraceError

if TYPE_CHECKING:
    from fxlab.overlays import Overlay
    from fxlab.session import Session


def inspect(
    session: Session | Model,
    inputs: Inputs | None = None,
    *,
    overlay: str | os.PathLike[str] | pd.Series[Any] | pd.DataFrame | Overlay | Sequence[Any] | None = None,
    height: int | None = None,
) -> Inspector:
    """Show a model's graph, with a switch for each transformation and tables of their changes.

    Parameters
    ----------
    session
        A :class:`fxlab.Session`, which the screen changes (of a comparison, side by side), or a model.
    inputs
        Those to trace a model on: a mapping, a tuple or one tensor; by default made from its configuration.
    overlay
        The values to colour the graph by at first: see ``Inspector.overlay``.
    height
        In CSS pixels. Left out, it follows the window of the browser.

    Returns
    -------
    Inspector
        Show it as the value of a cell.

    Raises
    ------
    TypeError, TraceError
        If ``session`` is neither, or has inputs of its own; or if the model raises: a notebook shows where.

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
    try:
        inspector = Inspector(session_of(session, inputs), height=height)
    except TraceError as error:
        if error.graph_module is not None and "IPython" in sys.modules:
            from IPython.display import display

            display(draw(error, shapes=True))  # type: ignore[no-untyped-call]
        raise
    if overlay is not None:
        inspector.overlay(overlay)
    return inspector
