"""``fxlab.bisect``: find the pass, and the rewrite in it, that breaks a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch.fx import GraphModule

from fxlab.base.results import Result
from fxlab.front_desk.sources import SessionLike, checked_session
from fxlab.models.graph_modules.copies import changed_copy
from fxlab.models.running.arguments import Inputs, given_inputs
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.journal.journal import Record
from fxlab.validation.nodes.compare_nodes import Divergence, first_divergence
from fxlab.validation.outputs.input_variants import Variants
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.result import Verdict
from fxlab.validation.verdicts.verdict import Reference

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Bisection(Result):
    """The result of :func:`fxlab.bisect`. ``str()`` gives a line for people."""

    pass_: Transformation
    """The first pass with which the model is different."""
    rewrites: tuple[str, ...]
    """Those of its rewrites that it takes, by the nodes they marked; empty if they cannot be told apart. Of
    generated code, the first node of each operator whose lowering is wrong."""
    divergence: Divergence | None
    """The first node that goes wrong with these rewrites, by its name in the stage of the pass."""
    reason: str
    """Why the model is different with these rewrites, in words."""
    runs: int
    """How many models were judged."""

    @property
    def pass_name(self) -> str:
        """The name of the pass."""
        return str(self.pass_.name)

    def __str__(self) -> str:
        rewrites = f", by rewriting {', '.join(self.rewrites)}" if self.rewrites else ""
        node = ""
        if first := self.divergence:
            module = f" in {first.module}" if first.module else ""
            node = f" The first node that goes wrong is {first.node}{module}: {first.reason}."
        return f"{self.pass_.name} makes it different{rewrites}: {self.reason}.{node}"


def bisect(
    session: SessionLike, inputs: Inputs | None = None, *, variants: Variants = False
) -> Bisection | None:
    """Find the pass, and the smallest set of its rewrites, with which a model is different.

    As with LLVM's ``-opt-bisect-limit``, the passes that are on are halved until the first is found with
    which :func:`verdict` says *different*. Then its rewrites are halved, on top of the passes below, until
    the needed ones are found. That is about ``log2`` of their number of runs for each of those (mostly one).

    Parameters
    ----------
    session
        A session with passes on, which is not changed.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those of the
        session.
    variants
        Other inputs to compare on as well, as for :func:`verdict`.

    Returns
    -------
    Bisection or None
        The pass, the rewrites and the first node that goes wrong; ``None`` if the model is the same up to
        rounding. A model that a pass has made raise counts as different.

    Raises
    ------
    TypeError
        If ``session`` is no session, or its model cannot be called with ``inputs``.
    ValueError
        If the original does not run on the inputs, or cannot be judged (see :func:`verdict`), or its outputs
        have nothing to compare: all of them are NaN, infinite or empty.

    Notes
    -----
    Single rewrites are found for each ``RewritePass``, as those of fxlab are: the
    pass is applied again, limited to some of its candidates (:meth:`Transformation.only`).

    Examples
    --------
    >>> import torch
    >>> from fxlab import ChangeTrueDivToMulByInverse, Session
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return (x / 2 + 1) / 3
    >>> class Careless(ChangeTrueDivToMulByInverse):
    ...     def rewrite(self, candidate, edit):
    ...         node = super().rewrite(candidate, edit)
    ...         node.args = (node.args[0], round(node.args[1], 2))
    ...         return node
    >>> session = Session(torch.fx.symbolic_trace(Model()), torch.randn(8), passes=[Careless()])
    >>> _ = session.apply("careless")
    >>> bisect(session).rewrites
    ('truediv_1',)
    """
    session = checked_session(session)
    applied, stages = session.applied, session.stages
    given = session.inputs if inputs is None else given_inputs(inputs)
    trials = _Trials(Reference(stages[0], given, variants=variants))
    if not trials.breaks(stages[-1]):
        return None
    first = _first(range(1, len(stages)), lambda position: trials.breaks(stages[position]))
    pass_, below, above = applied[first - 1], stages[first - 1], stages[first]
    rewrites: list[Record] = []
    if isinstance(pass_, CandidatePass):
        rewrites = pass_.rewrites(above)

        def limited(chosen: Sequence[Record]) -> CandidatePass:
            return pass_.only(*(node for record in chosen for node in record.candidate), missing_ok=True)

        def some(chosen: Sequence[Record]) -> GraphModule:
            return changed_copy(below, limited(chosen), writes_tensors=False)

        # A pass may do more in ``transform`` than rewrite its candidates; then they do not tell.
        if trials.breaks(some(rewrites)) and not trials.breaks(some([])):
            rewrites = needed_items(rewrites, lambda chosen: trials.breaks(some(chosen)))
            above = some(rewrites)
        else:
            rewrites = []
    divergence = trials.divergence(below, above)
    if divergence and rewrites:
        divergence = _as_in_the_stage(divergence, limited(rewrites).rewrites(above), rewrites)
    return Bisection(pass_, tuple(map(_name, rewrites)), divergence, trials.reason(above), trials.runs)


def _as_in_the_stage(found: Divergence, alone: Sequence[Record], rewrites: Sequence[Record]) -> Divergence:
    """Name a node as in the graph with all rewrites of a pass, where it was found with some of them alone."""
    names: dict[str, str] = {}
    whole = {record.candidate: record for record in rewrites}
    for record in alone:
        there = whole.get(record.candidate, record)
        names |= zip(record.added, there.added, strict=False)
        names |= zip(record.marked, there.marked, strict=False)
    return replace(found, node=names.get(found.node, found.node))


def _name(record: Record) -> str:
    """Return the name of a rewrite: the node that it marked, or the candidate where that is gone."""
    return (record.marked or record.candidate)[0]


class _Trials:
    """Judges models against the original."""

    def __init__(self, reference: Reference) -> None:
        self.runs = 0
        self._reference = reference
        self._inputs = next(iter(reference.inputs.values()))
        """Those that last told a difference."""
        # An original that cannot be judged is an error, not a difference.
        reference.verdict(reference.original)

    def breaks(self, module: GraphModule) -> bool:
        """Tell whether a model is different."""
        return bool(self.reason(module))

    def reason(self, module: GraphModule) -> str:
        """Return why a model is different, ``""`` if it is not."""
        self.runs += 1
        try:
            verdict: Verdict = self._reference.verdict(module)
        except ValueError as error:
            if not str(error).startswith("transformed:"):
                raise
            return str(error)
        if verdict.status is Status.NOTHING_COMPARED:
            raise ValueError(f"inputs: on these, nothing can be compared: {verdict.reason}.")
        if verdict.agrees:
            return ""
        self._inputs = self._reference.inputs[verdict.decided_by]
        return verdict.reason

    def divergence(self, below: GraphModule, above: GraphModule) -> Divergence | None:
        """Return the first node that goes wrong from one model to another, if both run."""
        try:
            return first_divergence(below, above, self._inputs)
        except ValueError:
            return None


def _first(positions: Sequence[int], breaks: Callable[[int], bool]) -> int:
    """Return the first position that breaks, where the last one does; halving, so there may be one before."""
    low, high = 0, len(positions) - 1
    while low < high:
        middle = (low + high) // 2
        if breaks(positions[middle]):
            high = middle
        else:
            low = middle + 1
    return positions[high]


def needed_items(items: list[T], breaks: Callable[[list[T]], bool]) -> list[T]:
    """Return items that break together, each of them needed, where all items break and none do not.

    The last item of the shortest prefix that breaks is needed; the search goes on with the items before it.
    """
    found: list[T] = []
    while not found or not breaks(found):
        last = _last_of_shortest_prefix(items, found, breaks)
        found.insert(0, items[last])
        items = items[:last]
    return found


def _last_of_shortest_prefix(items: list[T], found: list[T], breaks: Callable[[list[T]], bool]) -> int:
    return _first(range(len(items)), lambda last: breaks([*items[: last + 1], *found]))
