"""Passes and matches of torch's compiler as switches: the model is compiled again without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.fx import Node

from fxlab.base.checks import describe, type_error
from fxlab.base.first_use import pd
from fxlab.base.hints import nearest
from fxlab.compiler.compiler_pass import CompilerPass, pass_of
from fxlab.compiler.compiling.stack import CompilerStack, Entries
from fxlab.compiler.options.hooks import options_of_passes, values
from fxlab.session import Session
from fxlab.session.comparisons import Comparisons
from fxlab.session.history import History, Switches
from fxlab.session.session_lock import changes_stack, locked
from fxlab.session.stages import Stages
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

    @locked
    def options(self) -> pd.DataFrame:
        """List the options of Inductor that switch its passes on and off, with torch's own words for each.

        Returns
        -------
        pandas.DataFrame
            A row for each on/off option that the passes over FX graphs read in the source of this
            torch, and for each other one that was changed here. Indexed by ``option``: its ``value`` now and
            ``at_first``, the ``phases`` whose passes read it, the file and line where that is (``place``),
            the comment above it in ``torch._inductor.config`` (``description``; empty if there is none), and
            why it cannot be switched (``fixed``).

        Raises
        ------
        ValueError
            If options cannot be changed: those of ``forward`` and ``backward`` are those of the joint
            session, and a recorded script is not compiled again.
        """
        self._check_options()
        return options_table(self._compiled.compiler.settings["options"], dict(self._switches.options))

    @locked
    def set_option(self, name: str, value: Any) -> None:
        """Change an option of Inductor: the model is compiled again with it, which can be undone.

        Passes that run only with it are offered, and are on; those that do not run any more are not offered.

        Parameters
        ----------
        name
            One of :meth:`options`, or any other of ``torch._inductor.list_options()``.
        value
            Its value.

        Raises
        ------
        TypeError
            If the value is of another type than the option.
        ValueError
            If there is no such option, or it cannot be changed here; see :meth:`options`.
        RuntimeError
            If the compiler fails with it. The session is as it was.

        Examples
        --------
        >>> import fxlab, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Softmax(-1)).eval()
        >>> session = fxlab.compiler.compile_session(model, torch.ones(2, 4))
        >>> "joint/pass_pattern_0" in session.unchanged
        True
        >>> session.set_option("pattern_matcher", False)
        >>> "joint/pass_pattern_0" in session.unchanged
        False
        >>> _ = session.undo()
        """
        self._check_options()
        name = check_option(name, value)
        changed = {**dict(self._switches.options), name: value}
        if {**values(), **self._compiled.compiler.settings["options"]}[name] == value:
            del changed[name]
        self._go_to(replace(self._switches, options=tuple(sorted(changed.items()))))

    @property
    def has_options(self) -> bool:
        """Whether options can be changed."""
        return not self._compiled.why_no_options

    def _check_options(self) -> None:
        if why := self._compiled.why_no_options:
            raise ValueError(f"Options cannot be changed in this session: {why}.")

    def _go_to(self, switches: Switches) -> None:
        with self._options_of(switches):
            super()._go_to(self._with_new_passes(switches))

    def _settle(self, history: History) -> None:
        with self._options_of(history.now):
            self._prepare(history.now)
            super()._settle(history)

    @contextmanager
    def _options_of(self, switches: Switches) -> Iterator[None]:
        """Rebuild all stages with other options; after an error they are as before."""
        options = dict(switches.options)
        if options == self._compiled.options:
            yield
            return
        before = self._compiled.options, self._stages, self._comparisons
        self._compiled.options = options
        self._stages = Stages(self.original, self._offer.limited)
        self._comparisons = Comparisons(self.original, self._stages.note_original)
        try:
            yield
        except BaseException:
            self._compiled.options, self._stages, self._comparisons = before
            raise

    def _with_new_passes(self, switches: Switches) -> Switches:
        """Offer passes that change the graph only now that other passes are on or off."""
        while True:
            new = self._prepare(switches)
            if switches.options != self._switches.options:
                for name in {*self._compilers_own(switches.offered)} - self._compiled.running:
                    switches = switches.without(name)
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
        return self._compilers_own(name for name in switches.offered if name not in switches.on)

    def _compilers_own(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if isinstance(self._offer.limited(name, ()), CompilerPass)]

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


def check_option(name: object, value: object) -> str:
    """Return the name of an option as Inductor writes it; raises as :meth:`set_option` does."""
    if not isinstance(name, str):
        raise type_error("name", "the name of an option of Inductor", name)
    known, name = values(), name.replace("-", "_")
    if name not in known:
        hint = nearest(name, known) or " torch._inductor.list_options() has their names."
        raise ValueError(f"name: Inductor has no option {name!r}.{hint}")
    if name in (found := options_of_passes()) and (why := found[name].fixed):
        raise ValueError(f"name: {name} cannot be switched here. {why}.")
    now = known[name]
    if isinstance(now, bool) and not isinstance(value, bool):
        raise TypeError(f"value: {name} is True or False, got {describe(value)}.")
    if isinstance(now, dict | list | str) and not isinstance(value, type(now)):
        raise type_error("value", f"a {type(now).__name__} for {name}", value)
    return name


def options_table(given: Mapping[str, Any], changed: Mapping[str, Any]) -> pd.DataFrame:
    """List the on/off options that passes read; see :meth:`fxlab.compiler.CompileSession.options`."""
    known = values() | {**given}
    rows = [
        (name, {**known, **changed}[name], known[name], *about)
        for name, option in options_of_passes().items()
        for about in [(", ".join(option.phases), option.place, option.description, option.fixed)]
    ]
    rows += [
        (name, changed[name], known[name], "", "", "", "") for name in changed.keys() - {r[0] for r in rows}
    ]
    columns = ["option", "value", "at_first", "phases", "place", "description", "fixed"]
    return pd.DataFrame(rows, columns=columns, dtype=object).set_index("option")
