"""Private hooks of Inductor that report each phase, pass and match of a compile to a :class:`Recorder`.

Those that report failed matches are in ``transformations/inductor_patterns/``. Each is looked up when a
compile begins. Names that this torch does not have are left out, with a remark on the parts that cannot be
seen without them; borders of phases remain. Patches hold for the whole process while something is compiled
here, and are undone on any way out.
"""

import functools
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.heard_calls import Call, Patches, attribute_of
from fxlab.base.interrupts import RestoringStack
from fxlab.compiler.recording.recorder import PHASES, Recorder
from fxlab.transformations.inductor_patterns.hooks import MatcherRecorder, pattern_name

_BORDERS = {phase: f"{phase}_{'graph_' * (phase == 'joint')}passes" for phase in PHASES}

SCRIPT_IS_HEARD = threading.Event()
"""Whether a script is listened to, whose compiles are not to be mixed with others."""


@contextmanager
def listening(listener: Recorder) -> Iterator[list[str]]:
    """Report each compile of this thread in the block to a recorder; yield remarks on parts it misses."""
    if SCRIPT_IS_HEARD.is_set():
        raise RuntimeError(
            "Nothing is compiled for a session while record_compile records; do it after its block, or "
            "without `fxlab compile -- COMMAND`, which records to the end of the process."
        )
    with PROCESS_LOCK, RestoringStack() as stack:
        patches, around = Patches(stack), _Around(listener)
        for phase in PHASES:
            border = f"torch._inductor.compile_fx:_recursive_{_BORDERS[phase]}"
            hear = functools.partial(around.phase, phase)
            patches.around(border, hear, f"The passes of {phase} are not seen")
        # Torch gives a pass to an observer's `apply_*`, or runs it in a `with` of the observer.
        observer = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
        for name, around_pass in {
            "apply_graph_pass": around.applied_pass,
            "apply_gm_pass": around.applied_pass,
            "__enter__": around.entered_pass,
            "__exit__": around.left_pass,
        }.items():
            patches.around(f"{observer}.{name}", around_pass, "Passes are not told apart")
        matcher = "torch._inductor.pattern_matcher"
        MatcherRecorder(listener.begin_patterns, listener.tried, lambda: around.is_in_pass).hear(patches)
        patches.around(
            f"{matcher}:PatternMatcherPass.apply", around.pattern_pass, "Passes are not told apart"
        )
        for entry in ("LoweringPatternEntry", "GraphPatternEntry", "ReplacementPatternEntry"):
            patches.around(f"{matcher}:{entry}.apply", around.match, "Matches are not told apart")
        yield patches.remarks


def _outputs_aliased_later() -> frozenset[int]:
    """Return the outputs that AOTAutograd makes views of inputs after the graph that it compiles has run."""
    context = getattr(torch._guards, "TracingContext", None)
    known = getattr(context and context.try_get(), "fw_metadata", None)
    kinds = [one.output_type.name for one in getattr(known, "output_info", ())]
    return frozenset(place for place, kind in enumerate(kinds) if kind in ("alias_of_input", "is_input"))


class _Around:
    """Hears of the calls of torch's functions; only those of the thread that made it."""

    def __init__(self, listener: Recorder) -> None:
        self._listener, self._thread = listener, threading.get_ident()
        self._phases = self._passes = 0
        """The number of calls around the running one: of nested ones, the outermost counts."""

    @property
    def _is_heard(self) -> bool:
        """Whether passes are reported: not those over a graph inside another."""
        return threading.get_ident() == self._thread and self._phases == 1

    @property
    def is_in_pass(self) -> bool:
        """Whether a pass runs that is reported."""
        return self._is_heard and self._passes > 0

    def phase(self, phase: str, call: Call) -> Any:
        """Hear of a phase, which changes a graph or returns another one."""
        if threading.get_ident() != self._thread:
            return call()
        graph_module = call.given(0, GraphModule)
        self._phases += 1
        try:
            if self._is_heard:
                self._listener.begin_phase(phase, graph_module)
                if phase == PHASES[1]:
                    self._listener.aliased_later(_outputs_aliased_later())
            result = call()
            if self._is_heard:
                self._listener.note_between(graph_module if result is None else result)
            return result
        finally:
            self._phases -= 1

    def applied_pass(self, call: Call) -> Any:
        """Hear of a pass that an observer applies."""
        observer, function = call.given(0), call.given(1)
        name = pass_name(attribute_of(observer, "passname"), function)
        with self._one_pass(name, attribute_of(observer, "gm")) as may_run:
            # The method of a pass of patterns as it is patched now; it may have been taken before.
            owner: Any = getattr(function, "__self__", None)
            if hasattr(owner, "patterns") and getattr(function, "__name__", "") == "apply":
                call.give(1, owner.apply)
            return call() if may_run else None

    def pattern_pass(self, call: Call) -> Any:
        """Hear of a pass of patterns."""
        patterns, graph = call.given(0), call.given(1, (Graph, GraphModule))
        graph_module: Any = graph.owning_module if isinstance(graph, Graph) else graph
        name = getattr(patterns, "pass_name", None) or "pattern_matcher"
        with self._one_pass(name, graph_module) as may_run:
            return call() if may_run else 0

    def entered_pass(self, call: Call) -> Any:
        """Hear of a pass that begins with ``with``."""
        observer = call.given(0)
        name, graph_module = attribute_of(observer, "passname"), attribute_of(observer, "gm")
        if self._is_heard:
            self._passes += 1
            if self._passes == 1:
                # The body of a `with` cannot be skipped.
                self._listener.begin_pass(name, graph_module, can_skip=False)
        return call()

    def left_pass(self, call: Call) -> Any:
        """Hear of the end of a pass that began with ``with``."""
        graph_module, error = attribute_of(call.given(0), "gm"), call.given(2)
        result = call()
        if self._is_heard:
            if self._passes == 1 and error is None:
                self._listener.end_pass(graph_module)
            elif self._passes == 1:
                self._listener.failed_pass(error)
            self._passes -= 1
        return result

    @contextmanager
    def _one_pass(self, name: str, graph_module: GraphModule) -> Iterator[bool]:
        """Tell whether a pass may run, and report it to the listener unless it runs inside another."""
        is_told = self._is_heard and not self._passes
        may_run = self._listener.begin_pass(name, graph_module, can_skip=True) if is_told else True
        self._passes += is_told
        try:
            yield may_run
        except Exception as error:
            if is_told:
                self._listener.failed_pass(error)
            raise
        finally:
            self._passes -= is_told
        # Not in the `finally`: after an error there is no result to record.
        if is_told:
            self._listener.end_pass(graph_module)

    def match(self, call: Call) -> Any:
        """Hear of a match that is about to be replaced."""
        if not self.is_in_pass:
            return call()
        entry, match, node = call.given(0), call.given(1), call.given(3, Node)
        nodes = tuple(attribute_of(match, "nodes"))
        may_apply = self._listener.begin_match(pattern_name(entry), node, nodes)
        result = call() if may_apply else None
        self._listener.end_match()
        return result


def pass_name(name: str, function: Any) -> str:
    """Return the name of a pass: a user's own by its own name, not by the place that it is put in."""
    if "custom" not in name:
        return name
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        own = getattr(owner, "pass_name", None) or type(owner).__name__
    else:
        own = getattr(function, "__name__", type(function).__name__)
    return name if own == "<lambda>" else str(own)
