"""Passes of torch's compiler as transformations, by which a compile session switches and explains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch.fx import GraphModule

from fxlab.base.first_use import pd
from fxlab.base.reasons import Reason
from fxlab.compiler.compiling.stack import KEY, CompilerStack, Entries, StageOf
from fxlab.compiler.graphs.lineage import origins
from fxlab.compiler.recording.snapshot import GraphState
from fxlab.compiler.recording.steps import BORDER, Match, Step
from fxlab.transformations.base import Transformation, explanation
from fxlab.transformations.inductor_patterns import near_misses, told
from fxlab.transformations.journal.journal import Journal, NodeChange, Record
from fxlab.transformations.journal.node_state import NodeState
from fxlab.transformations.marks import KEY as MARKS
from fxlab.transformations.marks import add_mark, marks
from fxlab.transformations.rewriting.rewrite_pass import CandidatePass

CODE = "compiled code"
"""The name of the pass that generates code."""


@dataclass(frozen=True, eq=False)
class CompilerPass(Transformation):
    """A pass that torch's compiler has run, on stages of its :class:`fxlab.compiler.CompileSession` alone."""

    name: str
    fixed: str = field(default="", compare=False)

    copies_on_write = makes_new_module = True

    @property
    def description(self) -> str:
        """The place in the compiler where it runs."""
        phase, _, own = self.name.partition("/")
        words = f"{own}: runs in the {phase} phase of torch's compiler."
        if self.name == BORDER:
            words = "Decomposes functions into ATen operators, and turns writes in place into new values."
        return f"{words} It cannot be switched off: {self.fixed}." if self.fixed else words

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Return the stage that the compiler makes of a stage; ValueError for another graph."""
        stack, entries = _above(self, graph_module)
        module, step = stack.stage(entries)
        signature = self.signature
        # AOTAutograd writes all nodes anew. Its marks are in its own stage alone, as above they would hide
        # the changes of the passes after it.
        border = CompilerPass(BORDER).signature
        below = {node.name: node for node in graph_module.graph.nodes}
        changed: dict[str, bool] = {}  # the names of calls, and whether only what they read is another
        for node in module.graph.nodes:
            old = below.get(node.name)
            before, after = NodeState.of(old) if old is not None else None, NodeState.of(node)
            is_same_call = before is not None and before.is_same_call(after)
            if before is not None and is_same_call and before.inputs == after.inputs:
                if kept := set(marks(below[node.name])) - {border}:
                    node.meta[MARKS] = kept
            elif node.op.startswith("call"):
                changed[node.name] = is_same_call
        for node in module.graph.nodes:
            is_rewired = changed.get(node.name) and any(v.name in changed for v in node.all_input_nodes)
            if node.name in changed and not is_rewired:
                add_mark(node, signature)
        journal = Journal.of(graph_module).__copy__()
        if step is not None:
            journal.records += _records(signature, stack, step, graph_module, module)
        journal.keep_in(module)
        return module


@dataclass(frozen=True, eq=False)
class MatchingPass(CompilerPass):
    """A pass of torch's compiler that tries patterns; it says where they match, and where not and why."""

    def explain(self, graph_module: GraphModule) -> pd.DataFrame:
        """List the matches, which are excluded, and where a pattern begins to match and why it does not.

        Of the patterns that are tried at one node, that is the one that came furthest.
        See :meth:`fxlab.Transformation.explain`.
        """
        self._check_graph_module(graph_module)
        stack, entries = _above(self, graph_module)
        step = stack.done_by_last(entries)
        return explanation(() if step is None else _candidates(stack, step, graph_module))


@dataclass(frozen=True, eq=False)
class PatternPass(CandidatePass, MatchingPass):
    """A pass of torch's compiler that replaces matches of patterns; each match can be excluded."""

    def candidates(self, graph_module: GraphModule) -> list[tuple[str, ...]]:
        """Return the matches, each by the names of its nodes, the one that it was found at first."""
        stack, entries = _above(self, graph_module)
        step = stack.done_by_last(entries)
        return [] if step is None else [names for names, _ in _matches(stack, step)]

    explain = MatchingPass.explain


@dataclass(frozen=True, eq=False)
class CodePass(Transformation):
    """Scheduling, fusion and code generation by Inductor: calls the generated code for all of the graph."""

    name: str = CODE

    copies_on_write = makes_new_module = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Generate code for a stage, and return a graph that calls it; ValueError for another graph."""
        below = _stage_below(self, graph_module)
        stage, _ = below.stack.stage(below.entries)
        if GraphState(stage).words != GraphState(graph_module).words:
            raise ValueError(
                f"graph_module: {CODE} is generated for what torch's own passes have made. Switch off what "
                "else is on below it."
            )
        module = below.stack.code(below.entries)
        for node in module.graph.nodes:
            if getattr(node.target, "is_generated_code", False):
                self.mark_as_transformed(node)
        return module


def explain_unchanged(stack: CompilerStack, step: Step | None) -> pd.DataFrame:
    """Tell where the patterns of a pass that has changed nothing begin to match, and why they do not."""
    if step is None:  # it does not run with the passes that are on
        return explanation(())
    names = stack.names_of(step.before, [node.name for node in step.before.graph.nodes])
    return explanation(told(0, near_misses(stack.tried_by(step), set(names), ())))


def pass_of(step: Step) -> CompilerPass:
    """Return the transformation that a step of a compile is."""
    if step.matches and step.can_exclude:
        return PatternPass(step.name, step.fixed)
    kind = MatchingPass if step.matches or step.patterns else CompilerPass
    return kind(step.name, step.fixed)


def _stage_below(pass_: Transformation, graph_module: GraphModule) -> StageOf:
    """Return the stage of a compile that a pass of it receives; ``ValueError`` if the graph is none."""
    below = graph_module.meta.get(KEY)
    if not isinstance(below, StageOf):
        raise ValueError(
            f"graph_module: {pass_.name} is a pass of torch's compiler and takes stages of a CompileSession "
            "only. Make one: fxlab.compiler.compile_session(model, inputs)."
        )
    return below


def _above(pass_: CompilerPass, graph_module: GraphModule) -> tuple[CompilerStack, Entries]:
    """Return the stack of the stage below a pass, and the passes of the stage above it."""
    below = _stage_below(pass_, graph_module)
    return below.stack, (*below.entries, (str(pass_.name), getattr(pass_, "limited_to", None)))


def _matches(stack: CompilerStack, step: Step) -> Iterator[tuple[tuple[str, ...], Match]]:
    """Yield matches that changed something, or would, each with the nodes that are its own."""
    told = [match for match in step.matches if match.made or match.erased or not match.is_applied]
    counts = Counter(node for match in told for node in {match.anchor, *match.nodes})
    seen = set()
    for match in told:
        own = dict.fromkeys([match.anchor, *(node for node in match.nodes if counts[node] == 1)])
        if match.anchor not in seen:
            seen.add(match.anchor)
            yield stack.names_of(step.after, own), match


def _candidates(
    stack: CompilerStack, step: Step, below: GraphModule
) -> Iterator[tuple[str, bool, str, str, int]]:
    """Yield a row for each node of each match, and of each near miss."""
    excluded, number, taken = Reason.EXCLUDED(), -1, set()
    for number, (names, match) in enumerate(_matches(stack, step)):
        for name in names:
            taken.add(name)
            if match.is_applied:
                yield name, True, f"replaced by {match.pattern}", "", number
            else:
                yield name, False, excluded.words, excluded.code, number
    there = {node.name for node in below.graph.nodes}
    yield from told(number + 1, near_misses(stack.tried_by(step), there, taken))


def _records(
    signature: str, stack: CompilerStack, step: Step, below: GraphModule, above: GraphModule
) -> Iterator[Record]:
    """Yield a record for each match, or for each node of Dynamo's graph that became others."""
    old = {node.name: node for node in below.graph.nodes}
    new = {node.name: node for node in above.graph.nodes}

    def record(candidate: tuple[str, ...], made: Sequence[str], gone: Sequence[str]) -> Record:
        changes = [NodeChange(name, NodeState.of(old[name]), None) for name in gone if name in old]
        return Record(signature, candidate, tuple(name for name in made if name in new), changes)

    if step.name == BORDER:
        for name, became in origins(step.after.graph).items():
            (known,) = stack.names_of(step.before, [name])
            if known in old:
                yield record((known,), stack.names_of(step.after, became), [known])
        return
    for names, match in _matches(stack, step):
        if match.is_applied:
            made, gone = (stack.names_of(step.after, nodes) for nodes in (match.made, match.erased))
            yield record(names, made, gone)
