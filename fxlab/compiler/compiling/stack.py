"""The passes that one graph of a session goes through, each on or off; results of compiles are kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch.fx import GraphModule

from fxlab.compiler.compiling.compiler import Compile, Compiler
from fxlab.compiler.compiling.hooks import values, why_no_code
from fxlab.compiler.recording.snapshot import Snapshot
from fxlab.compiler.recording.steps import WHOLE, Recording, Stack, Step
from fxlab.models.graph_modules.graph_module import SharedByCopies, ensure_picklable
from fxlab.models.graph_modules.parts import give_naming, new_naming
from fxlab.models.running.call_record import DRAWS_OTHERWISE
from fxlab.transformations.candidate_filter import Limit
from fxlab.transformations.inductor_patterns import PatternAttempts
from fxlab.transformations.journal.name_order import merged_order

KEY = "fxlab.compiler"
"""Where in ``graph_module.meta`` a stage of a compile says which one it is."""

Entries: TypeAlias = tuple[tuple[str, Limit | None], ...]
"""The passes that a stage has gone through, lowest first, and to which of its matches each is limited."""


@dataclass(frozen=True)
class StageOf(SharedByCopies):
    """The compile and the stage that a graph module belongs to."""

    stack: CompilerStack
    entries: Entries


class CompilerStack:
    """The passes that one of the model's graphs goes through, any of them on or off."""

    def __init__(self, compiler: Compiler, number: int, kind: str) -> None:
        self.compiler, self._number, self._kind = compiler, number, kind
        self._frame = compiler.frames[number]
        self._compiles = [compiler.first]
        self._with_code = [compiler.first] if self.recorded.code is not None else []
        self._names = new_naming()
        self._order: list[str] = []
        self._changing: dict[str, Step] = {}
        self._learn(compiler.first)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of all stages, by name."""
        return {slot.name: slot.value for slot in self._frame.inputs(self._kind)}

    @property
    def recorded(self) -> Recording:
        """The recording of the graph in the first compile."""
        return self.compiler.first.recorder.recordings[self._number]

    @property
    def changing(self) -> dict[str, Step]:
        """The passes that have changed the graph in any compile so far, in their order."""
        return {name: self._changing[name] for name in self._order if name in self._changing}

    @property
    def unchanged(self) -> list[str]:
        """The passes that have changed nothing so far, in their order."""
        return [name for name in self._order if name not in self._changing]

    def prepare(self, entries: Entries, off: Iterable[str]) -> list[str]:
        """Compile with passes on and off; return other passes that have changed the graph."""
        done = self._with(entries, off)
        on = {name for name, _ in entries}
        return [step.name for step in self._steps(done) if step.is_change and step.name not in on]

    def tried(self, entries: Entries, off: Iterable[str]) -> list[PatternAttempts]:
        """Return the patterns of each pass that has any, and their results with passes on and off."""
        return [self.tried_by(step) for step in self._steps(self._with(entries, off)) if step.patterns]

    def step(self, entries: Entries, off: Iterable[str], name: str) -> Step | None:
        """Return the step of a pass with passes on and off, if it ran."""
        steps = self._steps(self._with(entries, off))
        return next((step for step in steps if step.name == name), None)

    def tried_by(self, step: Step) -> PatternAttempts:
        """Return the patterns of a pass, and their results."""
        inputs = self._frame.names_of_inputs(step.before)

        def names_of(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(inputs.get(name) or self._frame.name_of(step.after, name) for name in names)

        return PatternAttempts(step.name, step.patterns, step.attempts, names_of)

    def original(self) -> GraphModule:
        """Return the graph that the stack begins with."""
        return self._module((), self._stack(self._compiles[0]).first)

    def stage(self, entries: Entries) -> tuple[GraphModule, Step | None]:
        """Return the graph after some passes, without others below, and the step of the last one."""
        found, steps = self._gone_through(entries)
        snapshot = steps[-1].after if steps else self._stack(found).first
        return self._module(entries, snapshot), _done_by_last(steps, entries)

    def done_by_last(self, entries: Entries) -> Step | None:
        """Return the step of the last of some passes, if it was there; see :meth:`stage`."""
        return _done_by_last(self._gone_through(entries)[1], entries)

    def _gone_through(self, entries: Entries) -> tuple[Compile, Sequence[Step]]:
        """Return a compile that has gone through some passes, and its steps up to the last of them."""
        while (found := self._covering(entries)) is None:
            known = len(self._changing)
            self._compile(self._off_below(entries), _limits(entries))
            # A compile that has revealed no further pass would only be repeated.
            if len(self._changing) == known and self._covering(entries) is None:
                raise RuntimeError(f"{entries[-1][0]}: the compiler does not come to it as it is asked to.")
        return found, self._steps(found)[: self._end(found, entries)]

    def why_no_code(self) -> str:
        """Return why no code can be generated for this graph, in words; empty if it can."""
        if self._kind != WHOLE:
            return f"there is none of the {self._kind} graph alone; it is part of that of the joint session"
        return "" if self._with_code else why_no_code(self._frame.device_types)

    def code(self, entries: Entries) -> GraphModule:
        """Return a graph that calls the code of a stage; ValueError if Dynamo captures another one."""
        module = self._frame.code(self._generated(entries))
        self._note_draws(module)
        ensure_picklable(module)
        return module

    def _generated(self, entries: Entries) -> Recording:
        """Return the recording of a compile with code, with some passes on and all others off."""
        on, limits = {name for name, _ in entries}, _limits(entries)
        off = frozenset(name for name, step in self._changing.items() if name not in on and not step.fixed)
        done = _known(self._with_code, off, limits)
        if done is None:
            asked = self._number, self._kind, off, limits
            done = self.compiler.compile(*asked, generates=True)
            self._with_code.append(done)
        return done.recorder.recordings[self._number]

    def names_of(self, snapshot: Snapshot, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names in stages of nodes of one of the compiler's graphs."""
        return tuple(self._frame.name_of(snapshot, name) for name in names)

    def _module(self, entries: Entries, snapshot: Snapshot) -> GraphModule:
        module = self._frame.module(snapshot, self._kind)
        module.meta[KEY] = StageOf(self, entries)
        self._note_draws(module)
        give_naming(module, self._names)
        ensure_picklable(module)
        return module

    def _note_draws(self, module: GraphModule) -> None:
        """Note whether Inductor draws random numbers in its own way."""
        options = values() | getattr(self.compiler, "settings", {}).get("options", {})
        if not options.get("fallback_random"):
            module.meta[DRAWS_OTHERWISE] = True

    def _with(self, entries: Entries, off: Iterable[str]) -> Compile:
        """Return the compile with passes on and off."""
        wanted, limits = frozenset(off), _limits(entries)
        return _known(self._compiles, wanted, limits) or self._compile(wanted, limits)

    def _compile(self, off: frozenset[str], limits: Mapping[str, Limit]) -> Compile:
        done = self.compiler.compile(self._number, self._kind, off, limits)
        self._compiles.append(done)
        self._learn(done)
        return done

    def _learn(self, done: Compile) -> None:
        steps = self._steps(done)
        self._order = merged_order(self._order, [step.name for step in steps])
        self._changing |= {
            step.name: step for step in steps if step.is_change and step.name not in self._changing
        }

    def _stack(self, done: Compile) -> Stack:
        recordings = done.recorder.recordings
        stack = recordings[self._number].stacks.get(self._kind) if self._number < len(recordings) else None
        if stack is None:
            raise RuntimeError(f"The compiler has made no {self._kind} graph this time.")
        return stack

    def _steps(self, done: Compile) -> Sequence[Step]:
        return self._stack(done).steps

    def _off_below(self, entries: Entries) -> frozenset[str]:
        """Return the passes to switch off for a stage: others that change the graph below its last one."""
        on = {name for name, _ in entries}
        below = itertools.takewhile(lambda name: name != entries[-1][0], self._order)
        changing = self._changing
        return frozenset(
            name for name in below if name in changing and name not in on and not changing[name].fixed
        )

    def _covering(self, entries: Entries) -> Compile | None:
        """Return a compile that has gone through some passes, and through no others below the last."""
        return next((done for done in self._compiles if self._covers(done, entries)), None)

    def _covers(self, done: Compile, entries: Entries) -> bool:
        wanted = dict(entries)
        steps = self._steps(done)[: self._end(done, entries)]
        for step in steps:
            if step.name in wanted:
                if not step.ran or done.limits.get(step.name) != wanted[step.name]:
                    return False
            elif step.is_change and not step.fixed:
                return False
        return True

    def _end(self, done: Compile, entries: Entries) -> int:
        """Return how many steps of a compile a stack has gone through."""
        if not entries:
            return 0
        last = self._order.index(entries[-1][0])
        passed = set(self._order[: last + 1])
        places = (place for place, step in enumerate(self._steps(done), 1) if step.name in passed)
        return max(places, default=0)


def _known(compiles: Iterable[Compile], off: frozenset[str], limits: Mapping[str, Limit]) -> Compile | None:
    return next((done for done in compiles if (done.off, done.limits) == (off, limits)), None)


def stacks_of(compiler: Compiler) -> dict[str, CompilerStack]:
    """Return the stacks of all graphs of a model by name."""
    recordings = compiler.first.recorder.recordings
    return {
        stack.name if len(recordings) == 1 else f"graph {number + 1}, {stack.name}": CompilerStack(
            compiler, number, kind
        )
        for number, recording in enumerate(recordings)
        for kind, stack in recording.stacks.items()
    }


def _limits(entries: Entries) -> dict[str, Limit]:
    return {name: limit for name, limit in entries if limit is not None}


def _done_by_last(steps: Sequence[Step], entries: Entries) -> Step | None:
    return steps[-1] if steps and entries and steps[-1].name == entries[-1][0] else None
