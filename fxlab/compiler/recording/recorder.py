"""A compile as a list of steps: hooks of torch call the recorder at each phase, and listeners beside it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.author_frames import author_line, error_words
from fxlab.compiler.recording.snapshot import Made, Snapshot, State, joined
from fxlab.compiler.story.hooks import current_compile
from fxlab.compiler.story.story import Story
from fxlab.models.running.autocast import AutocastState, autocast_state
from fxlab.tracing.dynamo.hooks import GraphBreak, break_after
from fxlab.transformations.inductor_patterns import Attempt, Pattern

PHASES = ("pre_grad", "joint", "post_grad")
"""The phases of Inductor that run passes over an FX graph, in their order."""
TORCH, ATEN = "torch", "aten"
"""Dialects: functions of torch, as Dynamo captures them, and ATen operators."""
WHOLE = "whole"
BORDER = "AOTAutograd"
"""The step from Dynamo's graph to that of ATen operators."""
SPLIT = "AOTAutograd/partition"
"""The step from the joint graph to forward and backward graphs, one after the other."""

_META = (
    *("nn_module_stack", "fwd_nn_module_stack", "stack_trace", "from_node"),
    *("autograd_backward", "partitioner_tag"),
)
"""The metadata that a node inherits from the nodes it replaces, if it has none of its own."""


@dataclass
class Match:
    """A match of a pattern, and the rewrite made there."""

    pattern: str
    """The name of the pattern, or of the function that replaces its matches."""
    anchor: str
    """The node at which it was found."""
    nodes: tuple[str, ...]
    """All nodes that it has matched."""
    is_applied: bool
    made: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Crash:
    """A pass that has raised, or has left a graph that cannot run."""

    graph: tuple[int, str]
    """The number of the graph, and the kind of the stack."""
    pass_: str
    can_skip: bool
    """Whether it can be compiled without the pass."""
    pattern: str
    """The pattern whose match was being replaced, if it was one."""
    node: str
    """The node at which it was found."""
    error: str

    def __str__(self) -> str:
        match = f", where {self.pattern} replaces {self.node}" if self.pattern else ""
        return f"{self.pass_} has failed{match}: {self.error}"


@dataclass
class Step:
    """A pass, or the change between two passes."""

    name: str
    """The phase and the compiler's own name of the pass."""
    before: Snapshot
    after: Snapshot
    fixed: str = ""
    """Why it cannot be switched off; empty if it can."""
    matches: list[Match] = field(default_factory=list)
    ran: bool = True
    can_exclude: bool = True
    """Whether it can be compiled again without one of its matches."""
    patterns: list[Pattern] = field(default_factory=list)
    """Those that it has tried."""
    attempts: list[Attempt] = field(default_factory=list)
    """Their results."""

    @property
    def is_change(self) -> bool:
        """Whether it has changed the graph."""
        return self.before is not self.after


@dataclass
class Stack:
    """The steps that one graph went through, from when it was made."""

    kind: str
    """``whole`` from Dynamo's captured graph on; ``forward`` or ``backward`` from the split on."""
    first: Snapshot
    steps: list[Step] = field(default_factory=list)
    has_gradients: bool = False
    """Whether it ends with the graph of outputs and gradients, which is then split."""

    @property
    def name(self) -> str:
        """Its name for people."""
        return ("joint" if self.has_gradients else "inference") if self.kind == WHOLE else self.kind

    @property
    def last(self) -> Snapshot:
        """The graph as it is after all steps."""
        return self.steps[-1].after if self.steps else self.first


@dataclass
class Recording:
    """All graphs of one compile of a graph that Dynamo has captured."""

    stacks: dict[str, Stack] = field(default_factory=dict)
    values: tuple[Any, ...] = ()
    """The values of the placeholders of Dynamo's graph when it ran."""
    copies: tuple[Any, ...] = ()
    """Copies of their contents then; parameters are not copied."""
    graph_break: GraphBreak | None = None
    """Why Dynamo has ended the graph, if that is not the end of the model."""
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    """The outermost modules that it reads, by the function's expressions for them."""
    autocast: AutocastState = field(default_factory=autocast_state)
    """The autocast regions around the call."""
    compile: str = ""
    """Dynamo's number of the compile."""
    has_run: bool = False
    aliased_later: frozenset[int] = frozenset()
    """The outputs of Dynamo's graph that AOTAutograd makes views of inputs after its graph has run."""
    code: Callable[..., Any] | None = None
    """The backend's result for Dynamo's graph, where code was generated."""

    def note_values(self, values: Sequence[Any]) -> None:
        """Note the values of the placeholders."""
        self.has_run, self.values, self.copies = True, tuple(values), tuple(map(_copied, values))


class Recorder:
    """Hears of a compile, and writes down the change of each pass.

    ``may_run``: tells whether a pass of a kind of stack may run. ``may_match``: tells whether a match may be
    applied, by kind, pass, name of its anchor, and where nodes were made. ``runs_each``: whether each graph
    runs before the next one is captured; one that does not is captured once more.
    """

    def __init__(
        self,
        may_run: Callable[[str, str], bool] = lambda kind, name: True,
        may_match: Callable[[str, str, str, Mapping[str, Made]], bool] = lambda *match: True,
        *,
        runs_each: bool = False,
    ) -> None:
        self.recordings: list[Recording] = []
        self.crash: Crash | None = None
        """The first pass that has raised."""
        self._match: Match | None = None
        self.remarks: list[str] = []
        """Parts of the compile that are not known, in words."""
        self.story = Story()
        """Dynamo's events of the functions."""
        self._now: Stack
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
        self._step = Step(full, self._now.last, self._now.last, fixed, ran=ran)
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
            self.crash = Crash(place, step.name, not step.fixed, *where, _error_words(error))
        if self._match is not None:
            self.end_match()

    def begin_match(self, pattern: str, anchor: Node, nodes: Sequence[Node]) -> bool:
        """Note a match, and tell whether it may be applied."""
        applied = self._may_match(self._now.kind, self._step.name, anchor.name, self._made)
        match = Match(pattern, anchor.name, tuple(node.name for node in nodes), applied)
        self._step.matches.append(match)
        self._match = match
        owner: Any = anchor.graph.owning_module
        inherited = {key: anchor.meta[key] for key in _META if key in anchor.meta}

        def made(node: Node) -> None:
            self._made[node.name] = Made(self._step.name, anchor.name, len(match.made), inherited)
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
        self._recording = Recording(modules=self.modules_read, compile=current_compile())
        self.recordings.append(self._recording)
        self._made: dict[str, Made] = {}
        self._phase, self._previous, self._dialect = "", "", TORCH
        known = self.story.break_of(self._recording.compile)
        self._recording.graph_break = known or break_after(graph_module)
        self._begin_stack(WHOLE, graph_module)

    def _enter(self, phase: str, graph_module: GraphModule) -> None:
        """Find the stack that a phase goes on with."""
        if phase == PHASES[0]:
            self._begin_graph(graph_module)
            return
        if self._waiting is not None:  # the first phase is not seen with this torch
            self._begin_graph(self._waiting)
        self._dialect = ATEN
        inputs = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
        # AOTAutograd's name for the gradients of outputs; a phase is not told which graph it gets.
        is_backward = any(name.startswith("tangents") for name in inputs)
        if phase == PHASES[1]:
            self._now.has_gradients = is_backward
            self._record_decomposition(graph_module)
        elif self._recording.stacks[WHOLE].has_gradients:
            self._begin_stack("backward" if is_backward else "forward", graph_module)
        elif is_backward:  # of a joint graph that is not seen with this torch
            self._now = Stack("backward", Snapshot(graph_module, self._dialect, self._made))
        else:
            self.note_between(graph_module, f"{phase}/before its passes")

    def _begin_stack(self, kind: str, graph_module: GraphModule) -> None:
        first = Snapshot(graph_module, self._dialect, self._made)
        self._now = self._recording.stacks[kind] = Stack(kind, first)
        if {"forward", "backward"} <= self._recording.stacks.keys():
            self._note_split()

    def _note_split(self) -> None:
        """Take the two graphs that the joint one was split into for its last stage."""
        joint, forward, backward = (self._recording.stacks[kind] for kind in (WHOLE, "forward", "backward"))
        before = joint.last
        after = joined(before, forward.first, backward.first)
        if after is None:
            self.remarks.append("The split into a forward and a backward graph is not judged: it is unknown.")
        else:
            after = before if after.state == before.state else after
            joint.steps.append(Step(SPLIT, before, after, "forward and backward are compiled apart"))

    def _record_decomposition(self, graph_module: GraphModule) -> None:
        """Record the ATen graph as the step after Dynamo's graph."""
        fixed = "it writes the graph in ATen operators, which all that follows works on"
        after = Snapshot(graph_module, self._dialect, self._made)
        self._now.steps.append(Step(BORDER, self._now.last, after, fixed))

    def note_between(self, graph_module: GraphModule, name: str = "") -> None:
        """Record the changes since the last pass, such as at the end of a phase, as a step of their own."""
        before, words = self._now.last, f"{self._phase}/between passes, after {self._previous}"
        try:
            after = self._snapshot(graph_module)
        except ValueError as error:  # nodes that read one another in a circle
            if self.crash is None:
                place = (len(self.recordings) - 1, self._now.kind)
                self.crash = Crash(place, words, False, "", "", _error_words(error))
            return
        if after is not before:
            fixed = "the compiler does it outside of its passes"
            self._now.steps.append(Step(name or words, before, after, fixed))

    def _snapshot(self, graph_module: GraphModule) -> Snapshot:
        last = self._now.last
        is_same = State(graph_module) == last.state
        return last if is_same else Snapshot(graph_module, self._dialect, self._made)


def _error_words(error: BaseException) -> str:
    line = author_line(error) if isinstance(error, Exception) else None
    words = error_words(error).rstrip(".")
    return f"{words} ({line.place})" if line else words


def _copied(value: Any) -> Any:
    # Inputs are copied, as the model may write into them; parameters are restored elsewhere.
    is_held = not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter)
    return value if is_held else value.detach().clone().requires_grad_(value.requires_grad)


_WITH = "what it does is written inside of the phase itself"


class Guarded:
    """Forwards calls to a listener. After its first exception, records a remark and returns ``answers``."""

    def __init__(self, listener: Any, remarks: list[str], answers: Mapping[str, Any]) -> None:
        self._listener, self._remarks, self._answers = listener, remarks, answers
        self._has_raised = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, getattr(self._listener, name), self._answers.get(name))

    def _call(self, method: Callable[..., Any], answer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._has_raised:
            return answer
        try:
            result = method(*args, **kwargs)
        except Exception as error:
            self._has_raised = True
            self._remarks.append(f"Nothing was recorded any more when this was raised: {error_words(error)}")
            return answer
        return functools.partial(self._call, result, None) if callable(result) else result
