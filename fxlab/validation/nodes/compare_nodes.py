"""``fxlab.compare_nodes`` and ``first_divergence``: where along the graph values begin to differ."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from fxlab.base.checks import require_bool
from fxlab.base.first_use import pd
from fxlab.base.results import Result
from fxlab.front_desk.sources import Model
from fxlab.graphs.lineage import are_mostly_alike, is_made_of
from fxlab.models.running.arguments import Inputs
from fxlab.models.running.running import generators_kept, takes_derivatives
from fxlab.operators.node_info import module_path, shape_and_dtype, target_text
from fxlab.validation.alignment.align import Alignment, aligned, matched_by_values
from fxlab.validation.arguments import CompiledCodeError, graphs_to_run
from fxlab.validation.nodes.lockstep_run import Pair, SideBySide
from fxlab.validation.tensor_values.visited_run import values_at
from fxlab.validation.verdicts.judgement import (
    Judgement,
    Status,
    Versions,
    distances,
    judged,
    judged_by_bits,
    with_difference,
)
from fxlab.validation.verdicts.result import Verdict
from fxlab.validation.verdicts.verdict import verdict
from fxlab.values.tensors import same_bits, tensors_by_path

COLUMNS = (
    "original", "op", "target", "module_path", "shape", "dtype", "accumulated", "max_accumulated",
    "introduced", "max_introduced",
)  # fmt: skip
JUDGED = "status", "hidden", "reason"


def compare_nodes(
    reference: Model, candidate: Model, inputs: Inputs | None = None, *, judge: bool = False
) -> "pd.DataFrame":
    """Run two graphs in step and compare the values of their nodes.

    Nodes of a graph and of its transformed copy match by name; a fused convolution matches the batch norm
    that it now stands for, and the slices of a merged linear match the linears they replace. Nodes of graphs
    that were captured apart match by their values, as in :func:`fxlab.compare`.

    Each pair has two differences: the one *accumulated* up to the node, and the one that the
    node itself *introduces*. For that it is run once more on the original's values, together with the new
    nodes before it; unchanged nodes introduce nothing and are not run again. Both graphs run in step, and
    values are dropped after their last use.

    Parameters
    ----------
    reference, candidate, inputs
        As for :func:`compare_outputs`. A module that is not traced yet is traced on the inputs.
    judge
        Whether to judge if each node differs by more than rounding, as :func:`fxlab.first_divergence`
        does of the first. Nodes that introduce something run in float64 as well.

    Returns
    -------
    pandas.DataFrame
        One row for each pair of nodes that compute tensors, in the order of the transformed graph, indexed by
        its ``node``: the ``original`` node, ``op``, ``target``, ``module_path``, and ``shape`` and ``dtype``
        where known, of the transformed one. A call of bodies, such as ``torch.cond``, is one node. The other
        columns are

        ``accumulated``, ``max_accumulated``
            The difference when both graphs run by themselves: its norm relative to the original's, and the
            largest absolute difference of an element.
        ``introduced``, ``max_introduced``
            The same where the node runs on the original's values.
        ``status``, ``hidden``, ``reason``
            With ``judge``: the :func:`verdict` on the node by itself, and the largest relative mistake of it
            that could be taken for rounding (missing where every bit is the same).

        Elements that are NaN or infinite in one of the two only make a difference infinite.

    Raises
    ------
    TypeError
        If a model is neither a module nor a session, or no model can be called with ``inputs``.
    ValueError
        If a node does not run on the inputs, or a module has no weights (the meta device); with ``judge``
        also if a node does not run in float64.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(*layers).eval())
    >>> fused = FuseBatchNorm2dInConv2d()(torch.fx.symbolic_trace(graph))
    >>> table = compare_nodes(graph, fused, torch.randn(1, 3, 8, 8))
    >>> table["original"].tolist(), (table["introduced"] < 1e-6).all().item()
    (['input_1', '_1', '_2'], True)
    """
    first, second, given = graphs_to_run(reference, candidate, inputs)
    by_name = is_made_of(first, second)
    if by_name is False or (by_name is None and not are_mostly_alike(first, second)):
        first, second = matched_by_values(aligned(first, second, given))
    pairs = SideBySide(first, second, given, in_float64=require_bool(judge, "judge"))
    with generators_kept():
        rows = {
            pair.node.name: _row(pair) + (_judged_row(pair) if judge else [])
            for pair in pairs.pairs()
            if tensors_by_path(pair.expected)
        }
    columns = [*COLUMNS, *(JUDGED if judge else ())]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("node")


@dataclass(frozen=True, repr=False)
class Divergence(Result):
    """The node that :func:`fxlab.first_divergence` found. ``str()`` gives one line for people."""

    node: str
    """Its name in the transformed graph."""
    original: str
    """The name of the node of the original that it does not agree with."""
    judgement: Judgement
    """The findings about it, with the reason in words."""
    module: str = ""
    """Path of the module that it belongs to, in the transformed graph; empty for none."""

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.judgement.reason

    @property
    def max_abs_diff(self) -> float:
        """The largest absolute difference of an element of both values; infinite if shapes differ."""
        return self.judgement.max_abs_diff

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


def first_divergence(reference: Model, candidate: Model, inputs: Inputs | None = None) -> Divergence | None:
    """Find the first node that differs by more than rounding, on the values that the original gives it.

    Of two graphs that were captured apart, such as a port by hand and its model, nodes match by their values,
    and it is the first node at which the two part; see :func:`fxlab.compare`.

    The question and the bounds are those of :func:`verdict`, asked of each node by itself: it runs on the
    original's values, as it is and in float64, so that rounding before it does not count, and a mistake
    that the rounding after it drowns is found as well.

    Parameters
    ----------
    reference, candidate, inputs
        As for :func:`compare_nodes`.

    Returns
    -------
    Divergence or None
        The node and the reason; ``None`` if all nodes that match agree. Where one graph takes gradients at
        once and the other node by node, or a model runs compiled code, it is an output at last.

    Raises
    ------
    TypeError
        If a model is neither a module nor a session, or no model can be called with ``inputs``.
    ValueError
        If a node does not run on the inputs, or not in float64, or a module has no weights.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    >>> import copy
    >>> wrong = copy.deepcopy(graph)
    >>> with torch.no_grad():
    ...     _ = wrong.get_submodule("1").weight.mul_(1.01)
    >>> first_divergence(graph, wrong, torch.ones(1, 4)).node
    '_1'
    """
    try:
        first, second, given = graphs_to_run(reference, candidate, inputs)
    except CompiledCodeError:
        return _of_outputs(verdict(reference, candidate, inputs))
    by_name = is_made_of(first, second)
    if by_name is False:
        return _where_they_part(aligned(first, second, given), given)
    found = _first_of(first, second, given)
    take = [any(map(takes_derivatives, graph_module.graph.nodes)) for graph_module in (first, second)]
    if found is None and (by_name is None or take[0] is not take[1]):
        # Nodes of one graph, or all, may have no partners in the other: the outputs do.
        outputs = _of_outputs(verdict(first, second, given))
        if outputs is None or by_name is not None:
            return outputs
        return _where_they_part(aligned(first, second, given), given) or outputs
    if found is not None and by_name is None:  # names of two captures prove nothing
        by_values = _where_they_part(aligned(first, second, given), given)
        return found if by_values is not None and by_values.node == found.node else by_values
    return found


def _of_outputs(found: Verdict) -> Divergence | None:
    """Return the worst output of two models, of which one may have no nodes to look at."""
    if not found.different:
        return None
    worst = next(path for path, one in found.outputs.items() if one.status is Status.DIFFERENT)
    return Divergence(worst, worst, found.outputs[worst])


def _first_of(first: GraphModule, second: GraphModule, inputs: Inputs) -> Divergence | None:
    pairs = SideBySide(first, second, inputs, in_float64=True)
    with generators_kept():
        for pair in pairs.pairs():
            judgement = _worst(_judgements(pair))
            if judgement is not None and judgement.status is Status.DIFFERENT:
                return Divergence(pair.node.name, pair.original.name, judgement, module_path(pair.node))
    return None


def _where_they_part(alignment: Alignment, inputs: Inputs) -> Divergence | None:
    if alignment.agrees:
        return None
    node = next(iter((*alignment.parted, *alignment.parted_original)), None)
    others = ", ".join(other.name for other in alignment.parted_original)
    name, module = ("output", "") if node is None else (node.name, module_path(node))
    judgement = Judgement(Status.DIFFERENT, str(alignment), 0)
    if alignment.parted and alignment.parted_original:
        sides = (alignment.original, alignment.parted_original), (alignment.transformed, alignment.parted)
        found = [values_at(side.module, nodes[0], inputs) for side, nodes in sides]
        ours, theirs = (next(iter(each.values()), None) for each in found)
        judgement = with_difference(judgement, ours, theirs)
    return Divergence(name, others, judgement, module)


def _judgements(pair: Pair) -> list[Judgement]:
    """Judge each tensor of a pair, if the node introduces anything."""
    # The very object: the node is unchanged, and was not run again.
    if pair.introduced is pair.expected:
        return []
    ours, theirs = tensors_by_path(pair.expected), tensors_by_path(pair.introduced)
    found = {path: judged_by_bits(ours.get(path), theirs.get(path)) for path in {**ours, **theirs}}
    result = [
        with_difference(judgement, ours.get(path), theirs.get(path))
        for path, judgement in found.items()
        if judgement is not None
    ]
    if len(result) < len(found):
        exact = pair.exact()
        if all(exact.is_rounded):
            reason = "neither has a float64 run"
            return [*result, Judgement(Status.NOTHING_COMPARED, reason, len(found) - len(result))]
        original, transformed = tensors_by_path(exact.original), tensors_by_path(exact.transformed)
        anew = [tensors_by_path(value) for value in exact.rounded_anew]
        versions = {
            path: Versions(
                ours[path],
                theirs[path],
                original[path],
                transformed[path],
                [tensors[path] for tensors in anew],
                lacks_float64=any(exact.is_rounded),
            )
            for path, judgement in found.items()
            if judgement is None
        }
        result += [
            with_difference(
                judged(each.exchanged() if exact.is_rounded == (True, False) else each),
                ours[path],
                theirs[path],
            )
            for path, each in versions.items()
        ]
    return result


def _worst(judgements: list[Judgement]) -> Judgement | None:
    return max(judgements, key=lambda judgement: judgement.status.rank, default=None)


def _judged_row(pair: Pair) -> list[Any]:
    """Return the status, the hidden error and the reason; of all the tensors of a node the worst."""
    judgements = _judgements(pair)
    worst = _worst(judgements)
    if worst is None:
        return [str(Status.SAME_BITS), None, ""]
    known = [judgement.hidden for judgement in judgements if judgement.hidden is not None]
    is_known = worst.status is Status.WITHIN_ROUNDING
    return [str(worst.status), max(known, default=None) if is_known else None, worst.reason]


def _row(pair: Pair) -> list[Any]:
    shape, dtype = shape_and_dtype(pair.node)
    return [
        pair.original.name,
        pair.node.op,
        target_text(pair.node),
        module_path(pair.node),
        shape,
        dtype,
        *_difference(pair.expected, pair.accumulated),
        *_difference(pair.expected, pair.introduced),
    ]


def _difference(expected: Any, value: Any) -> tuple[float, float]:
    """Return the norm of a difference relative to the expected one's, and its largest element."""
    squares = total = largest = 0.0
    ours, theirs = tensors_by_path(expected), tensors_by_path(value)
    if value is expected or all(same_bits(ours[path], theirs[path]) for path in ours):
        return 0.0, 0.0
    for path, tensor in ours.items():
        difference = distances(tensor, theirs[path])
        squares += float(difference.square().sum())
        size = distances(tensor, torch.zeros_like(tensor))
        total += float(size.nan_to_num(posinf=0.0).square().sum())
        largest = max(largest, float(difference.max()) if difference.numel() else 0.0)
    if squares == 0:
        return 0.0, 0.0
    return math.sqrt(squares / total) if total else math.inf, largest
