"""The session of a ``model`` argument: the given one, or a new one."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fxlab.checks import described
from fxlab.models.running import Inputs, check_inputs_named
from fxlab.session.session import Session
from fxlab.sources import divided
from fxlab.transformations import Transformation


def session_of(
    model: Any,
    inputs: Any = None,
    passes: Iterable[Transformation] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Session:
    """Return a given session, or make one of a model; of several models, one of their comparison.

    Inputs are also given by name, as ``arguments``. Raises TypeError if ``model`` is neither, or ``inputs``
    or ``passes`` are given with a session, which has its own.
    """
    if isinstance(model, tuple):  # in a room above, so imported on demand
        model = import_module("fxlab.comparison.compare").session_of_models(model, inputs)
        inputs = None
    if isinstance(found := getattr(model, "session", None), Session):  # of a comparison, or an inspector
        model = found
    if isinstance(model, Session):
        check_inputs_named(model.original, divided(arguments or {})[1])
        for name, value in (("inputs", inputs), ("passes", passes), *(arguments or {}).items()):
            if value is not None:
                raise TypeError(
                    f"{name}: a session has its own, got {described(value)} beside one. "
                    "Make another session: fxlab.Session(model, inputs, passes=...)."
                )
        return model
    return Session(model, inputs, passes=passes, **(arguments or {}))


def training_session(
    model: nn.Module,
    inputs: Inputs,
    *more: Any,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    passes: Iterable[Transformation] | None = None,
) -> Session:
    """Trace a training step as :func:`fxlab.trace_step` does, and return a session of it.

    Parameters
    ----------
    model, inputs, *more, loss, optimizer
        As for :func:`fxlab.trace_step`.
    passes
        The transformations on offer, as for :class:`fxlab.Session`.

    Examples
    --------
    >>> x, y = torch.randn(2, 4), torch.tensor([0, 2])
    >>> session = training_session(nn.Linear(4, 3), x, y, nn.functional.cross_entropy)
    >>> _ = session.apply("eliminate-common-subexpressions")
    >>> session.verdict().agrees
    True
    """
    from fxlab.steps import trace_step

    return Session(trace_step(model, inputs, *more, loss=loss, optimizer=optimizer), passes=passes)
