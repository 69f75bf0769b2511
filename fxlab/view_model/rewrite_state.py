"""One rewrite of a pass, as a page steps through them."""

from collections.abc import Iterable

from fxlab.session import Session
from fxlab.transformations import Transformation
from fxlab.units import counted
from fxlab.view_model.protocol import ShownRewrite
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
        "after": _lines(step.after.values()),
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
