"""Passes and matches of torch's compiler as switches: the model is compiled again without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch.fx import Node

from fxlab.compiler.compiler_pass import CompilerPass, pass_of
from fxlab.compiler.compiling.stack import CompilerStack, Entries
from fxlab.session import Session
from fxlab.session.history import History, Switches
from fxlab.session.session_lock import changes_stack
from fxlab.transformations import Transformation
from fxlab.transformations.journal.name_order import in_order
from fxlab.transformations.registry import Pass


class SwitchedCompile(Session):
    """A compile whose passes are switched; see :class:`fxlab.compiler.CompileSession`."""

    graphs: Mapping[str, SwitchedCompile]

    remarks: tuple[str, ...]

    def __init__(self, stack: CompilerStack, **_: Any) -> None:
        self._compiled = stack
        self.graph_break = stack.recorded.graph_break
        super().__init__(stack.original(), stack.inputs, passes=map(pass_of, stack.changing.values()))
        everything = replace(self._switches, on=frozenset(self._switches.offered))
        self._history = History((everything,))

    @property
    def unchanged(self) -> tuple[str, ...]:
        """The passes that the compiler ran, and that have changed nothing in this graph."""
        return tuple(self._compiled.unchanged)

    @changes_stack
    def revert(self, *passes: Pass) -> None:
        """Switch passes off, or all: compile again without them. ValueError tells why one cannot be off."""
        for found in map(self._found, passes):
            if why := _fixed(found):
                raise ValueError(f"pass_: {found.name} cannot be switched off: {why}.")
        fixed = {pass_.name for pass_ in self.passes if _fixed(pass_)}
        if passes or not fixed:
            super().revert(*passes)
        else:
            self._go_to(replace(self._switches, on=self._switches.on & fixed))

    @changes_stack
    def exclude(self, pass_: Pass, *nodes: Node | str) -> None:
        """Exclude matches of a pass: compile again without them. ValueError for a pass of a script."""
        found = self._found(pass_)
        if self._compiled.compiler.recorded_by and isinstance(found, CompilerPass):
            raise ValueError(f"pass_: no match of {found.name} can be excluded: {found.fixed}.")
        super().exclude(pass_, *nodes)

    @changes_stack
    def remove(self, pass_: Pass) -> None:
        """Offer a pass no longer: see :meth:`fxlab.Session.remove`; ValueError for one of the compiler."""
        found = self._found(pass_)
        if isinstance(found, CompilerPass):
            raise ValueError(f"pass_: {found.name} is a pass of the compiler. {_to_do(found)}")
        super().remove(pass_)

    @changes_stack
    def move(self, pass_: Pass, place: int) -> None:
        """Give a pass that was added another place above the compiler's, else raise a ValueError."""
        found = self._found(pass_)
        if isinstance(found, CompilerPass):
            raise ValueError(
                f"pass_: the compiler decides on the order of its passes, and {found.name} is one. "
                f"{_to_do(found)} A pass of your own runs where its option says, such as "
                'options={"post_grad_custom_pre_pass": your_pass}.'
            )
        own = sum(isinstance(known, CompilerPass) for known in self.passes)
        if type(place) is int and place < own:
            raise ValueError(
                f"place: expected one from {own} to {len(self.passes) - 1}, got {place}; those below are of "
                "the compiler's own passes. To run a pass inside of the compiler, compile with it: "
                'options={"post_grad_custom_pre_pass": your_pass}.'
            )
        super().move(pass_, place)

    def _go_to(self, switches: Switches) -> None:
        super()._go_to(self._with_new_passes(switches))

    def _settle(self, history: History) -> None:
        self._prepare(history.now)
        super()._settle(history)

    def _with_new_passes(self, switches: Switches) -> Switches:
        """Offer passes that change the graph only now that other passes are on or off."""
        while True:
            new = self._prepare(switches)
            if not new:
                return switches
            changing = self._compiled.changing
            for name in new:
                if name not in switches.offered:
                    self._offer.know(pass_of(changing[name]))
            own = {*new, *(name for name in switches.offered if name in changing)}
            order = [*in_order(own, list(changing)), *(n for n in switches.offered if n not in changing)]
            switches = replace(switches, offered=tuple(order), on=switches.on | {*new})

    def _prepare(self, switches: Switches) -> list[str]:
        """Compile with the passes that are on; return the others that have changed the graph."""
        return self._compiled.prepare(self._entries(switches), self._off(switches))

    def _off(self, switches: Switches) -> list[str]:
        off = (name for name in switches.offered if name not in switches.on)
        return [name for name in off if isinstance(self._offer.limited(name, ()), CompilerPass)]

    def _entries(self, switches: Switches) -> Entries:
        passes = (self._offer.limited(name, excluded) for name, excluded in switches.stack())
        return tuple(
            (pass_.name, getattr(pass_, "limited_to", None))
            for pass_ in passes
            if isinstance(pass_, CompilerPass)
        )


def _to_do(pass_: CompilerPass) -> str:
    """Return the advice about a pass of the compiler that is not wanted."""
    if pass_.fixed:
        return f"It cannot be switched off either: {pass_.fixed}."
    return f"Switch it off: revert({pass_.name!r})."


def _fixed(pass_: Transformation) -> str:
    return pass_.fixed if isinstance(pass_, CompilerPass) else ""
