"""``fxlab.compare_stages``: changes of each stage of a session, in the graph and in the outputs so far."""

import math
from typing import Any

from torch.fx import GraphModule

from fxlab.base.checks import require_bool
from fxlab.base.first_use import pd
from fxlab.front_desk.sources import SessionLike, checked_session
from fxlab.graphs.changes_made import changes_made
from fxlab.models.parallel.ranks import is_in_fake_group
from fxlab.models.state.tensor_state import tensors_of
from fxlab.validation.verdicts.verdict import Reference, verdict_on_order

COLUMNS = ("changes", "nodes", "parameters", "max_abs_diff", "status", "note")


def compare_stages(session: SessionLike, *, in_float64: bool = True) -> "pd.DataFrame":
    """Tell the contents of each stage of a session, the changes of its pass, and how far its outputs moved.

    Parameters
    ----------
    session
        A :class:`fxlab.Session`. Its stages are run on its inputs, if it has any, and judged.
    in_float64
        Whether stages may be run in float64 for that. Left out, they are, where bits do not settle it.

    Returns
    -------
    pandas.DataFrame
        One row for each stage: ``original``, and the names of the passes that are on (``stage``), with

        ``changes``
            How often the pass has rewritten the stage below, and which nodes became which, as
            :meth:`fxlab.Session.changes` says it; empty for the original.
        ``nodes``
            How many there are.
        ``parameters``
            How many elements all parameters have.
        ``max_abs_diff``
            The largest difference of an output from the original's, as in :func:`fxlab.compare_outputs`; NaN
            where nothing could be compared.
        ``status``
            The status of the :func:`fxlab.verdict` on the stage; ``None`` where there is none.
        ``note``
            Why they could not, or other differences.

    Raises
    ------
    TypeError
        If ``session`` is not a session.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d, Session
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(*layers).eval())
    >>> session = Session(graph, torch.randn(4, 3, 16, 16))
    >>> _ = session.apply("fuse-batch-norm2d-in-conv2d")
    >>> compare_stages(session)[["nodes", "parameters", "status"]].values.tolist()
    [[5, 240, 'same bits'], [5, 224, "within the model's own rounding"]]
    """
    stages = checked_session(session).stages
    reference = _reference(session)
    in_float64 = require_bool(in_float64, "in_float64")
    steps = zip(stages, stages[1:], session.applied, strict=False)
    changes = ["", *(str(changes_made(below, above, pass_)) for below, above, pass_ in steps)]
    rows = []
    for words, stage in zip(changes, stages, strict=True):
        found = (
            _not_run(session, stage)
            if reference is None
            else _compared(session, reference, stage, in_float64=in_float64)
        )
        rows.append([words, len(stage.graph.nodes), sum(p.numel() for p in stage.parameters()), *found])
    index = pd.Index(["original", *(p.name for p in session.applied)], name="stage", dtype=object)
    table = pd.DataFrame(rows, index=index, columns=list(COLUMNS))
    statuses = [row[COLUMNS.index("status")] for row in rows]
    table["status"] = pd.Series(statuses, index=index, dtype=object)  # strings of pandas have NaN for None
    return table


def _reference(session: SessionLike) -> Reference | None:
    """Return the original, which is run once; ``None`` if it cannot be."""
    original = session.stages[0]
    if session.inputs is None or any(tensor.is_meta for tensor in tensors_of(original)):
        return None
    try:
        reference: Reference = session._internals.reference_run()
    except ValueError:
        if is_in_fake_group(original):  # which exchanges nothing
            return None
        raise
    return reference


def _compared(
    session: SessionLike, reference: Reference, stage: GraphModule, *, in_float64: bool
) -> list[Any]:
    """Return the difference, the status and the note of a stage beside the original."""
    try:
        # Of its present stage, a session remembers both.
        comparison = None if stage is session.graph_module else reference.compare(stage)
        table = session._internals.compare_outputs() if comparison is None else comparison.table
    except ValueError as error:
        return [math.nan, None, str(error)]
    notes = list(dict.fromkeys(note for note in table["note"] if note))
    largest = float(table["max_abs_diff"].max()) if table["compared"].any() else math.nan
    try:
        if comparison is None:
            found = session.verdict() if in_float64 else session._internals.known_verdict()
        else:
            found = comparison.verdict() if in_float64 else comparison.known_verdict()
    except ValueError as error:
        return [largest, None, "; ".join([*notes, f"there is no verdict: {error}"])]
    return [largest, None if found is None else str(found.status), "; ".join(notes)]


def _not_run(session: SessionLike, stage: GraphModule) -> list[Any]:
    """Return the same of a stage that is not run."""
    original = session.stages[0]
    if (proved := verdict_on_order(original, stage)) is not None:
        return [0.0, str(proved.status), proved.reason]
    why = "its process group is fake" if is_in_fake_group(original) else "the model has no weights"
    return [math.nan, None, "the session has no inputs" if session.inputs is None else why]
