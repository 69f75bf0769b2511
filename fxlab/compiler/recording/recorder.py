"""Records a compile as steps, for sessions and scripts: the hooks call it at each phase, pass and match."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.author_frames import author_line
from fxlab.base.words import error_words
from fxlab.compiler.recording import steps
from fxlab.compiler.recording.snapshot import GraphState, NodeOrigin, Snapshot
from fxlab.compiler.recording.split_graph import joined
from fxlab.compiler.story.hooks import current_compile
from fxlab.compiler.story.story import Story
from fxlab.tracing.dynamo.graph_break import break_after
from fxlab.transformations.inductor_patterns import Attempt, Pattern

PHASES = ("pre_grad", "joint", "post_grad")
"""The phases of Inductor that run passes over an FX graph, in their order."""
_META = (
    *("nn_module_stack", "fwd_nn_module_stack", "stack_trace", "from_node"),
    *("autograd_backward", "partitioner_tag"),
)
"""The metadata that a node inherits from the nodes it replaces, if it has none of its own."""


class Recorder:
    """Hears of a compile, and writes down the change of each pass.

    ``may_run``: tells whether a pass of a kind of stack may run. ``may_match``: tells whether a match may be
    applied, by kind, pass, name of its anchor, and where nodes were made. ``runs_each``: whether each graph
    runs before the next one is captured; one that does not is captured once more.
    """

    def __init__(
        self,
        may_run: Callable[[str, str], bool] = lambda kind, name: True,
        may_match: Callable[[str, str, str, Mapping[str, NodeOrigin]], bool] = lambda *match: True,
        *,
        runs_each: bool = False,
    ) -> None:
        self.recordings: list[steps.Recording] = []
        self.crash: steps.Crash | None = None
        """The first pass that has raised."""
        self._match: steps.Match | None = None
        self.remarks: list[str] = []
        """Parts of the compile that are not known, in words."""
        self.story = Story()
        """Dynamo's events of the functions."""
        self._now: steps.Stack
        """The stack of the graph whose passes run."""
        self._waiting: GraphModule | None = None
        """The graph of Dynamo that no phase has begun with."""
        self.modules_read: Mapping[str, nn.Module] = {}
        """Those of the graph that Dynamo has captured last."""
        self._runs_each = runs_each
        self._may_run, self._may_match = may_run, may_match

    def read_modules(self, modules: Mapping[str, nn.Module], graph_module: GraphModule) -> None:
        """Note the graph that Dynamo has captured, and the modules that it reads."""
        self.modules_read, self._waiting = modules, graph_module

    def finish(self) -> None:
        """Release the compiler's graphs when the compile is over."""
        self.story.number_graphs([recording.compile for recording in self.recordings])
        for recording in self.recordings:
            for stack in recording.stacks.values():
                for snapshot in (stack.first, *(step.after for step in stack.steps)):
                    snapshot.state.finish()

    def begin_phase(self, phase: str, graph_module: GraphModule) -> None:
        """Begin with a graph of the phase before, or with one that was made of it."""
        self._names: dict[str, int] = {}
        self._enter(phase, graph_module)
        self._phase, self._previous = phase, "the beginning"

    def aliased_later(self, outputs: frozenset[int]) -> None:
        """Note the outputs that AOTAutograd makes views of inputs after its graph has run."""
        self._recording.aliased_later = outputs

    def begin_pass(self, name: str, graph_module: GraphModule, *, can_skip: bool) -> bool:
        """Note the graph before a pass, and tell whether it may run."""
        self.note_between(graph_module)
        number = self._names[name] = self._names.get(name, 0) + 1
        full = f"{self._phase}/{name}" + (f" ({number})" if number > 1 else "")
        fixed = "" if can_skip else f"the compiler runs it without a way to leave it out: {_WITH}"
        ran = not can_skip or self._may_run(self._now.kind, full)
        self._match = None
        self._step = steps.Step(full, self._now.last, self._now.last, fixed, ran=ran)
        self._state = self._step.before.state
        self._graph_module = graph_module
        return ran

    def end_pass(self, graph_module: GraphModule) -> None:
        """Note the graph after a pass."""
        step = self._step
        try:
            step.after = self._snapshot(graph_module)
        except ValueError as error:  # nodes that read one another in a circle
            self.failed_pass(error)
            return
        self._now.steps.append(step)
        self._previous = step.name.partition("/")[2]

    def failed_pass(self, error: BaseException) -> None:
        """Note the pass that has raised, and the match in which it has."""
        if self.crash is None:
            place = (len(self.recordings) - 1, self._now.kind)
            match, step = self._match, self._step
            where = (match.pattern, match.anchor) if match is not None else ("", "")
            self.crash = steps.Crash(place, step.name, not step.fixed, *where, _error_words(error))
        if self._match is not None:
            self.end_match()

    def begin_match(self, pattern: str, anchor: Node, nodes: Sequence[Node]) -> bool:
        """Note a match, and tell whether it may be applied."""
        applied = self._may_match(self._now.kind, self._step.name, anchor.name, self._made)
        match = steps.Match(pattern, anchor.name, tuple(node.name for node in nodes), applied)
        self._step.matches.append(match)
        self._match = match
        owner: Any = anchor.graph.owning_module
        inherited = {key: anchor.meta[key] for key in _META if key in anchor.meta}

        def made(node: Node) -> None:
            self._made[node.name] = NodeOrigin(self._step.name, anchor.name, len(match.made), inherited)
            match.made.append(node.name)

        def erased(node: Node) -> None:
            match.erased.append(node.name)

        self._unwatch: Callable[[], None] = lambda: None
        if hasattr(owner, "_register_create_node_hook"):
            owner._register_create_node_hook(made)
            owner._register_erase_node_hook(erased)

            def unwatch() -> None:
                owner._unregister_create_node_hook(made)
                owner._unregister_erase_node_hook(erased)

            self._unwatch = unwatch
        return applied

    def end_match(self) -> None:
        """Stop watching the nodes that a match makes."""
        self._match = None
        self._unwatch()

    def generated(self, code: Callable[..., Any]) -> None:
        """Note the code of the graph that Dynamo captured last."""
        self._recording.code = code

    def begin_patterns(self, patterns: Sequence[Pattern]) -> None:
        """Note the patterns of the pass."""
        self._step.patterns += [pattern for pattern in patterns if pattern not in self._step.patterns]

    def tried(self, attempt: Attempt) -> None:
        """Note the result of a pattern at a node."""
        self._step.attempts.append(attempt)

    def _begin_graph(self, graph_module: GraphModule) -> None:
        """Begin with a graph that Dynamo has captured."""
        if self._runs_each and self.recordings and not self.recordings[-1].has_run:
            # It was captured in vain: Dynamo captures the graph once more before it runs.
            self.recordings.pop()
        self._waiting = None
        self._recording = steps.Recording(modules=self.modules_read, compile=current_compile())
        self.recordings.append(self._recording)
        self._made: dict[str, NodeOrigin] = {}
        self._phase, self._previous, self._dialect = "", "", steps.TORCH
        known = self.story.break_of(self._recording.compile)
        self._recording.graph_break = known or break_after(graph_module)
        self._begin_stack(steps.WHOLE, graph_module)

    def _enter(self, phase: str, graph_module: GraphModule) -> None:
        """Find the stack that a phase goes on with."""
        if phase == PHASES[0]:
            self._begin_graph(graph_module)
            return
        if self._waiting is not None:  # the first phase is not seen with this torch
            self._begin_graph(self._waiting)
        self._dialect = steps.ATEN
        inputs = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
        # AOTAutograd's name for the gradients of outputs; a phase is not told which graph it gets.
        is_backward = any(name.startswith("tangents") for name in inputs)
        if phase == PHASES[1]:
            self._now.has_gradients = is_backward
            self._record_decomposition(graph_module)
        elif self._recording.stacks[steps.WHOLE].has_gradients:
            self._begin_stack("backward" if is_backward else "forward", graph_module)
        elif is_backward:  # of a joint graph that is not seen with this torch
            self._now = steps.Stack("backward", Snapshot(graph_module, self._dialect, self._made))
        else:
            self.note_between(graph_module, f"{phase}/before its passes")

    def _begin_stack(self, kind: str, graph_module: GraphModule) -> None:
        first = Snapshot(graph_module, self._dialect, self._made)
        self._now = self._recording.stacks[kind] = steps.Stack(kind, first)
        if {"forward", "backward"} <= self._recording.stacks.keys():
            self._note_split()

    def _note_split(self) -> None:
        """Take the two graphs that the joint one was split into for its last stage."""
        joint, forward, backward = (
            self._recording.stacks[kind] for kind in (steps.WHOLE, "forward", "backward")
        )
        before = joint.last
        after = joined(before, forward.first, backward.first)
        if after is None:
            self.remarks.append("The split into a forward and a backward graph is not judged: it is unknown.")
        else:
            after = before if after.state == before.state else after
            joint.steps.append(
                steps.Step(steps.SPLIT, before, after, "forward and backward are compiled apart")
            )

    def _record_decomposition(self, graph_module: GraphModule) -> None:
        """Record the ATen graph as the step after Dynamo's graph."""
        fixed = "it writes the graph in ATen operators, which all that follows works on"
        after = Snapshot(graph_module, self._dialect, self._made)
        self._now.steps.append(steps.Step(steps.BORDER, self._now.last, after, fixed))

    def note_between(self, graph_module: GraphModule, name: str = "") -> None:
        """Record the changes since the last pass, such as at the end of a phase, as a step of their own."""
        before, words = self._now.last, f"{self._phase}/between passes, after {self._previous}"
        try:
            after = self._snapshot(graph_module)
        except ValueError as error:  # nodes that read one another in a circle
            if self.crash is None:
                place = (len(self.recordings) - 1, self._now.kind)
                self.crash = steps.Crash(place, words, False, "", "", _error_words(error))
            return
        if after is not before:
            fixed = "the compiler does it outside of its passes"
            self._now.steps.append(steps.Step(name or words, before, after, fixed))

    def _snapshot(self, graph_module: GraphModule) -> Snapshot:
        last = self._now.last
        is_same = GraphState(graph_module) == last.state
        return last if is_same else Snapshot(graph_module, self._dialect, self._made)


def _error_words(error: BaseException) -> str:
    line = author_line(error) if isinstance(error, Exception) else None
    words = error_words(error).rstrip(".")
    return f"{words} ({line.place})" if line else words


_WITH = "what it does is written inside of the phase itself"
