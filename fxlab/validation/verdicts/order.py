"""Verdicts on passes that only reorder: proved, without a run."""

from torch.fx import GraphModule
from torch.nn import Module

from fxlab.graphs.reordering import reordering
from fxlab.validation.verdicts.comparison import Verdict
from fxlab.validation.verdicts.judgement import Status


def verdict_on_order(original: Module, transformed: Module) -> Verdict | None:
    """Return the verdict on two graphs that differ in their order alone; ``None`` if that is not proved.

    Collectives have to start in the same order: ranks that run other graphs meet in them.
    """
    if not (isinstance(original, GraphModule) and isinstance(transformed, GraphModule)):
        return None
    found = reordering(original, transformed)
    return None if found is None or found.collectives else Verdict(Status.SAME_BITS, found.words, None, {})
