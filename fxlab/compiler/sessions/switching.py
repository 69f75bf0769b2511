"""Passes and matches of torch's compiler as switches: the model is compiled again without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fxlab.compiler.compiler_pass import CompilerPass, pass_of
from fxlab.compiler.compiling.stack import CompilerStack, Entries
from fxlab.session import Session
from fxlab.session.history import History, Switches
from fxlab.session.offer import PassOrName
from fxlab.session.turns import in_turn
from fxlab.transformations import Transformation
from fxlab.transformations.journal.name_order import in_order

if TYPE_CHECKING:
    pass


class SwitchedCompile(Session):
    """What is on of a compile; see :class:`fxlab.CompileSession`."""

    graphs: Mapping[str, SwitchedCompile]

    def __init__(self, stack: CompilerStack, remarks: tuple[str, ...]) -> None:
        self._compiled = stack
        self.remarks = remarks
        self.graph_break = stack.graph_break
        self.graphs = {}
        super().__init__(stack.original(), stack.inputs, passes=map(pass_of, stack.changing.values()))
        everything = replace(self._switches, on=frozenset(self._switches.offered))
        self._history = History((everything,))

    @property
    def unchanged(self) -> tuple[str, ...]:
        """The passes that the compiler ran, and that have changed nothing in this graph."""
        return tuple(self._compiled.unchanged)

    @in_turn
    def revert(self, pass_: PassOrName) -> None:
        """Switch a pass off: the model is compiled again without it.

        Raises
        ------
        ValueError
            If it cannot be switched off; the message says why.
        """
        self._check_switchable(pass_)
        super().revert(pass_)

    @in_turn
    def remove(self, pass_: PassOrName) -> None:
        """Offer a pass no longer; see :meth:`fxlab.Session.remove`.

        Raises
        ------
        ValueError
            If it is a pass of the compiler.
        """
        if isinstance(self.find(pass_), CompilerPass):
            name = self._find(pass_)
            raise ValueError(f"pass_: {name} is a pass of the compiler. Switch it off: revert({name!r}).")
        super().remove(pass_)

    @in_turn
    def move(self, pass_: PassOrName, place: int) -> None:
        """Refuse: the compiler decides on the order.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("place: the compiler decides on the order of its passes, which cannot be changed.")

    @in_turn
    def revert_all(self) -> None:
        """Switch everything off that can be; this can be undone."""
        fixed = {pass_.name for pass_ in self.passes if _fixed(pass_)}
        self._go_to(replace(self._switches, on=self._switches.on & fixed))

    def _check_switchable(self, pass_: PassOrName) -> None:
        found = self.find(pass_)
        if why := _fixed(found):
            raise ValueError(f"pass_: {found.name} cannot be switched off: {why}.")

    def _go_to(self, switches: Switches) -> None:
        super()._go_to(self._with_new_passes(switches))

    def _settle(self, history: History) -> None:
        self._prepare(history.now)
        super()._settle(history)

    def _with_new_passes(self, switches: Switches) -> Switches:
        """Offer what changes the graph only now that other passes are on or off."""
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
        """Compile with what is on; return what has changed the graph beside it."""
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


def _fixed(pass_: Transformation) -> str:
    return pass_.fixed if isinstance(pass_, CompilerPass) else ""
