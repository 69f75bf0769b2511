"""Errors of sessions."""

from fxlab.transformations import Transformation


class TransformationError(RuntimeError):
    """A transformation raised; the session that ran it is as it was before.

    Attributes
    ----------
    pass_ : Transformation
        The one that failed. What it raised is the ``__cause__``.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> def breaks(graph_module):
    ...     raise RuntimeError("halfway")
    >>> traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    >>> session = fxlab.Session(traced, passes=[fxlab.from_callable(breaks)])
    >>> session.apply("breaks")
    Traceback (most recent call last):
        ...
    fxlab.TransformationError: breaks failed and was not applied; ... RuntimeError: halfway
    """

    __module__ = "fxlab"

    def __init__(self, pass_: Transformation, cause: Exception) -> None:
        super().__init__(
            f"{pass_.name} failed and was not applied; the session is as it was. "
            f"{type(cause).__name__}: {cause}"
        )
        self.pass_ = pass_
