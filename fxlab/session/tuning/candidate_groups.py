"""Candidates of a pass in groups: those at the same place in equal layers."""

from __future__ import annotations

import itertools
import re

from torch.fx import GraphModule

from fxlab.node_info import module_path
from fxlab.session.history import Candidate
from fxlab.transformations import CandidatePass, Transformation

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def candidate_groups(
    pass_: Transformation, below: GraphModule, above: GraphModule
) -> dict[str, tuple[Candidate, ...]]:
    """Return the candidates that a pass has rewritten, by the modules that they are in.

    Parameters
    ----------
    pass_
        The pass; one that does not tell its candidates apart has no groups.
    below
        The stage that it was applied to.
    above
        The module with it.

    Returns
    -------
    dict
        The path of the modules, in which ``*`` stands for the numbers of layers -> candidates.
    """
    if not isinstance(pass_, CandidatePass):
        return {}
    nodes = {node.name: node for node in below.graph.nodes}
    found: dict[tuple[str, ...], list[Candidate]] = {}
    for record in pass_.rewrites(above):
        if not record.candidate:
            return {}
        paths = [module_path(nodes[name]) for name in record.candidate if name in nodes]
        found.setdefault(tuple(_NUMBER.sub("*", path) for path in paths), []).append(record.candidate)
    groups: dict[str, tuple[Candidate, ...]] = {}
    for starred, candidates in found.items():
        place = _common_place(starred)
        groups[place] = (*groups.get(place, ()), *candidates)
    return groups


def _common_place(paths: tuple[str, ...]) -> str:
    """Return the path of the module that holds all of these."""
    levels = zip(*(path.split(".") for path in paths), strict=False)
    shared = itertools.takewhile(lambda names: len({*names}) == 1, levels)
    return ".".join(names[0] for names in shared) or "the model itself"
