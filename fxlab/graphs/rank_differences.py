"""Collectives in which graphs of several ranks differ, so that the ranks would wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from torch import fx

from fxlab.checks import unexpected
from fxlab.first_use import pd
from fxlab.graphs.unfolded import unfolded
from fxlab.models.collectives import Collective, collectives_of
from fxlab.node_info import known_result, result_text
from fxlab.sources import Model, graph_of, resolved

_POINT_TO_POINT = ("send", "recv", "batch_p2p")
_COLUMNS = ("rank", "group", "place", "change", "expected", "found", "node", "expected_node")


def compare_collectives(ranks: Sequence[Model] | Mapping[int, Model]) -> pd.DataFrame:
    """List the collectives in which the graphs of several ranks differ. Nothing is run.

    Ranks of a group have to call the same collectives in the same order, with the same shapes, dtypes and
    reductions. If one does not, all of them wait until a time-out, or exchange the wrong elements. The first
    row of a rank is the place where that happens.

    Each rank is compared with the lowest that shares a group with it, in all groups that both use. Groups are
    the same if they have the same name in torch, as they have where all ranks make them in the same order.
    Messages between two ranks are not compared.

    Parameters
    ----------
    ranks
        The graph of each rank: graph modules, sessions or models, in the order of the ranks or by their
        numbers.

    Returns
    -------
    pandas.DataFrame
        A row for each difference, in columns ``rank``, ``group``, ``place`` (how many collectives in groups
        of both come before it), ``change`` (``changed``, ``missing`` or ``additional``), ``expected`` and
        ``found`` (the calls of the lower rank and of this one), ``node`` and ``expected_node``.
        Empty if the ranks agree.

    Raises
    ------
    TypeError, ValueError
        If there are not at least two models.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> functional = torch.ops._c10d_functional
    >>> def first(x):
    ...     return functional.wait_tensor(functional.all_reduce(x, "sum", "0"))
    >>> def second(x):
    ...     return functional.wait_tensor(functional.all_reduce(x, "max", "0"))
    >>> table = fxlab.steps.compare_collectives([torch.fx.symbolic_trace(each) for each in (first, second)])
    >>> table[["rank", "change", "expected", "found"]].values.tolist()
    [[1, 'changed', 'all_reduce (sum)', 'all_reduce (max)']]
    """
    if not isinstance(ranks, Mapping | list | tuple):
        raise unexpected("ranks", "a list or a mapping of models", ranks)
    given = dict(ranks) if isinstance(ranks, Mapping) else dict(enumerate(ranks))
    if len(given) < 2:
        raise ValueError(f"ranks: expected the models of at least two ranks, got {len(given)}.")
    called = {number: _calls(_graph(model, number)) for number, model in sorted(given.items())}
    rows = [row for number in called for row in _differences(number, called)]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


@dataclass(frozen=True)
class _Call:
    """A collective, equal to those of other ranks that it meets."""

    collective: Collective
    key: tuple[str, ...]

    @property
    def words(self) -> str:
        kind, reduction, _, shapes = self.key
        return f"{kind} ({reduction}){shapes}" if reduction else f"{kind}{shapes}"


def _graph(model: Model, number: int) -> fx.Graph:
    name = f"rank {number}"
    return unfolded(graph_of(resolved(model, name), name, None)).graph


def _calls(graph: fx.Graph) -> list[_Call]:
    found = (one for one in collectives_of(graph) if one.kind not in _POINT_TO_POINT)
    return [_Call(one, (one.kind, one.reduction, one.group.name, _shapes(one))) for one in found]


def _shapes(one: Collective) -> str:
    """Write the shapes and dtypes that all ranks have to agree on; empty where they are not known."""
    if one.kind == "all_to_all":  # each rank may send as much as it likes
        return ""
    known = [node for node in one.start.all_input_nodes if hasattr(known_result(node), "dtype")]
    return f" of {', '.join(map(result_text, known))}" if known else ""


def _differences(number: int, called: Mapping[int, list[_Call]]) -> Iterator[list[object]]:
    mine = called[number]
    lower: dict[str, int] = {}
    for other, calls in called.items():
        if other >= number:
            break
        for group in _members(number, other, mine, calls, len(called)):
            lower.setdefault(group, other)
    for other in sorted(set(lower.values())):
        shared = _members(number, other, mine, called[other], len(called))
        ours, theirs = ([c for c in calls if c.key[2] in shared] for calls in (mine, called[other]))
        for place, expected, found in _unequal(theirs, ours):
            one = found or expected
            assert one is not None
            if lower.get(one.key[2]) == other:
                change = "missing" if found is None else "additional" if expected is None else "changed"
                words = [call.words if call else "" for call in (expected, found)]
                nodes = [call.collective.start.name if call else "" for call in (found, expected)]
                yield [number, str(one.collective.group), place, change, *words, *nodes]


def _members(number: int, other: int, mine: list[_Call], theirs: list[_Call], count: int) -> set[str]:
    """Return the groups that two ranks are in, as far as their graphs tell."""
    used = [{call.key[2] for call in calls} for calls in (mine, theirs)]
    groups = {call.collective.group.name: call.collective.group for call in (*mine, *theirs)}
    everywhere = {
        name
        for name, group in groups.items()
        if {number, other} <= {*group.ranks} or (not group.ranks and group.size == count)
    }
    return (used[0] & used[1]) | everywhere


def _unequal(theirs: list[_Call], ours: list[_Call]) -> Iterator[tuple[int, _Call | None, _Call | None]]:
    matcher = SequenceMatcher(None, [c.key for c in theirs], [c.key for c in ours], autojunk=False)
    for kind, start, stop, mine, end in matcher.get_opcodes():
        if kind != "equal":
            for at, (expected, found) in enumerate(zip_longest(theirs[start:stop], ours[mine:end])):
                yield start + at, expected, found
