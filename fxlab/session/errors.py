"""The error of a pass that raises in a session, with the node that its author's code looked at."""

from contextlib import suppress

from torch.fx import Node

from fxlab.base.author_frames import author_line, local_values
from fxlab.base.words import error_words
from fxlab.transformations import Transformation


class TransformationError(RuntimeError):
    """A transformation raised; the session that ran it is unchanged.

    Attributes
    ----------
    pass_ : Transformation
        The one that failed. Its error is the ``__cause__``, whose traceback begins with the first line that
        is not fxlab's or torch's.
    pass_name : str
        Its name.
    line
        The innermost line of the pass's own code in the traceback, with ``file``, ``line`` and ``code``;
        ``None`` if there is none.
    node
        The name of the node that this line handled; empty if there is none.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> def breaks(graph_module):
    ...     raise RuntimeError("halfway")
    >>> traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    >>> session = fxlab.Session(traced, passes=[fxlab.from_callable(breaks)])
    >>> _ = session.apply("breaks")
    Traceback (most recent call last):
        ...
    fxlab.TransformationError: breaks failed and was not applied; ... RuntimeError: halfway (...:2)
    """

    __module__ = "fxlab"

    def __init__(self, pass_: Transformation, cause: BaseException) -> None:
        self.line = author_line(cause)
        place = f" ({self.line.place})" if self.line else ""
        super().__init__(
            f"{pass_.name} failed and was not applied; the session is as it was. {error_words(cause)}{place}"
        )
        self.pass_, self.pass_name = pass_, str(pass_.name)
        self.node = _node_at_hand(cause) if self.line else ""


def _node_at_hand(error: BaseException) -> str:
    """Return the name of the node in a local variable of the author, or the last node of a match."""
    values = local_values(error)
    held = [values["node"], *values.values()] if "node" in values else list(values.values())
    for value in held:
        if isinstance(value, Node):
            return value.name
        nodes: object = value
        with suppress(Exception):  # the author's objects may raise anything
            nodes = value if isinstance(value, tuple) else vars(value).get("nodes")
        if isinstance(nodes, tuple) and nodes and all(isinstance(each, Node) for each in nodes):
            return str(nodes[-1].name)
    return ""
