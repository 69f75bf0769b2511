"""A place at which a pass does not apply: what fits there, what does not, and relaxed patterns."""

from torch.fx import GraphModule

from fxlab.session.near_misses import near_miss
from fxlab.transformations import Transformation
from fxlab.transformations.patterns.pattern_pass import PatternPass
from fxlab.transformations.patterns.relaxing import Relaxed, relaxed
from fxlab.transformations.rewriting.rewrite_pass import Attempt
from fxlab.view_model.protocol import Role, ShownNearMiss
from fxlab.view_model.wire import clip

_MOST_NODES = 200


def shown_near_miss(
    p: Transformation, stages: tuple[GraphModule, ...], below: int, node: str
) -> ShownNearMiss:
    """Describe why a pass does not apply at a node of the stage ``below``; ValueError if it does."""
    attempt = near_miss(p, stages[below], node)
    counted = attempt.reached < attempt.operators and "calls fit" not in attempt.reason
    words = f"{attempt.reached} of {attempt.operators} calls fit; " if counted else ""
    first = next(iter((*attempt.misfits, attempt.at)), "") or attempt.begins_at
    return {
        "words": clip(f"{words}{attempt.reason}", 1_000),
        "stage": below,
        "node": clip(first),
        "roles": {clip(name): role for name, role in _roles(attempt).items()},
        "relaxed": [
            {"words": clip(each.words, 300), "source": clip(each.source, 20_000)}
            for each in relaxations(p, stages[below], attempt)
        ],
    }


def relaxations(p: Transformation, below: GraphModule, attempt: Attempt) -> list[Relaxed]:
    """Return passes with other patterns that apply at a place, if the pass is one of a pattern."""
    return list(relaxed(p, below, attempt)) if isinstance(p, PatternPass) else []


def _roles(attempt: Attempt) -> dict[str, Role]:
    roles: dict[str, Role] = dict.fromkeys(attempt.fits[:_MOST_NODES], "fits")
    roles |= dict.fromkeys(attempt.passed[:_MOST_NODES], "passed")
    roles |= dict.fromkeys(attempt.misfits, "misfit")
    return roles
