"""The places of a pass that a page steps through: rewrites with their lines, near misses with reasons."""

from collections.abc import Iterable

from torch.fx import GraphModule

from fxlab.base.words import counted
from fxlab.session import Session
from fxlab.session.near_misses import near_miss
from fxlab.transformations import Transformation
from fxlab.transformations.rewriting.rewrite_pass import Attempt
from fxlab.view_model.protocol import Role, ShownNearMiss, ShownRewrite
from fxlab.view_model.wire import clip

_MOST_LINES = 12
_LONGEST_LINE = 400
_MOST_NODES = 200


def shown_rewrite(session: Session, p: Transformation, number: int) -> ShownRewrite:
    """Return a rewrite of a pass that is on, the one of the nearest number; ValueError if it has none."""
    steps = session.rewrites(p)
    if not steps:
        raise ValueError(f"{p.name} has rewritten nothing.")
    place = min(max(number, 1), len(steps)) - 1
    step = steps[place]
    others = {name for each in steps if each is not step for name in (*each.candidate, *each.after)}
    node = next((name for name in step.candidate if name not in others), step.candidate[0])
    nodes = dict.fromkeys((*step.candidate, *step.before, *step.after))
    return {
        "number": place + 1,
        "total": len(steps),
        "stage": [each.name for each in session.applied].index(p.name) + 1,
        "before": _lines(step.before.values()),
        # The lines that are new come first: they are what the others are made of.
        "after": _lines(step.after[name] for name in sorted(step.after, key=step.before.__contains__)),
        "modules": _lines(step.modules),
        "roles": {clip(name): "picked" for name in [*nodes][:_MOST_NODES]},
        "node": clip(node),
        "isExcluded": step.is_excluded,
    }


def _lines(lines: Iterable[str]) -> list[str]:
    found = [clip(line, _LONGEST_LINE) for line in lines]
    if len(found) > _MOST_LINES:
        found[_MOST_LINES:] = [f"... and {counted(len(found) - _MOST_LINES, 'line')} more"]
    return found


def shown_near_miss(
    p: Transformation, stages: tuple[GraphModule, ...], below: int, node: str
) -> ShownNearMiss:
    """Describe why a pass does not apply at a node of the stage ``below``; ValueError if it does."""
    attempt = near_miss(p, stages[below], node)
    first = next(iter((*attempt.misfits, attempt.at)), "") or attempt.begins_at
    return {
        "words": clip(attempt.reason, 1_000),
        "stage": below,
        "node": clip(first),
        "roles": {clip(name): role for name, role in _roles(attempt).items()},
    }


def _roles(attempt: Attempt) -> dict[str, Role]:
    roles: dict[str, Role] = dict.fromkeys(attempt.fits[:_MOST_NODES], "fits")
    roles |= dict.fromkeys(attempt.passed[:_MOST_NODES], "passed")
    roles |= dict.fromkeys(attempt.misfits, "misfit")
    return roles
