"""``fxlab.inspect``: from a model to its inspector in one call; words in the cell until all is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fxlab.base.checks import describe
from fxlab.base.first_use import pd

if TYPE_CHECKING:
    from fxlab.front_desk.sources import Model
    from fxlab.models.running.arguments import Inputs
    from fxlab.notebook.inspector import Inspector
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

    A model is shown as soon as it is recorded. Its graph is compared with it while the kernel is idle, or at
    once when it is used: by a switch, an export, or as ``inspector.session``.

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
        That a graph is not the model is raised where it is used first.

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
    with _words_in_cell(f"fxlab: recording {describe(session)} …") as place:
        inspector = _made(session, inputs, height)
        inspector._place_of_words = place
    if overlay is not None:
        inspector.overlay(overlay)
    return inspector


def _made(session: Session | Model, inputs: Inputs | None, height: int | None) -> Inspector:
    from fxlab.notebook.inspector import Inspector
    from fxlab.session.first_look import first_look, session_of
    from fxlab.session.session import Session
    from fxlab.tracing.report import TraceError

    try:
        look = None if isinstance(session, Session) else first_look(session, inputs)
        shown = session_of(session, inputs) if look is None else look.session
    except TraceError as error:
        if error.graph_module is not None and "IPython" in sys.modules:
            from IPython.display import display

            from fxlab.drawing.drawing import draw

            display(draw(error, shapes=True))  # type: ignore[no-untyped-call]
        raise
    inspector = Inspector(shown, height=height)
    if look is not None:
        inspector._begin_with(look)
    return inspector


@contextmanager
def _words_in_cell(words: str) -> Iterator[tuple[str, int] | None]:
    """Show words in the cell that runs until the block ends, and give their place to what follows.

    The place is the identifier of the output, and the number of the cell; ``None`` outside of notebooks.
    """
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        yield None
        return
    from IPython.display import display

    handle: Any = display({"text/plain": words}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    try:
        yield handle.display_id, shell.execution_count
    finally:
        handle.update({"text/plain": ""}, raw=True)
