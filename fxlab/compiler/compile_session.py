"""``fxlab.compiler.compile_session``: a session whose stages are those of ``torch.compile``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.fx import Node

from fxlab.base.checks import require_bool, type_error
from fxlab.base.first_use import pd
from fxlab.base.hints import nearest
from fxlab.compiler.compiler_pass import CODE, CodePass, CompilerPass, explain_unchanged, pass_of
from fxlab.compiler.compiling.compiler import CAPTURE, Compiler
from fxlab.compiler.compiling.hooks import mode_options, unwrapped, values
from fxlab.compiler.compiling.stack import CompilerStack, Entries, stacks_of
from fxlab.compiler.story.story import story_table
from fxlab.models.running.arguments import Inputs, given_inputs
from fxlab.session import Session
from fxlab.session.history import History, Switches
from fxlab.session.session_lock import changes_stack, locked
from fxlab.transformations import Transformation
from fxlab.transformations.inductor_patterns import PatternAttempts, attempts_at, not_tried
from fxlab.transformations.journal.name_order import in_order
from fxlab.transformations.registry import Pass
from fxlab.validation import Reference, Status, Variants, Verdict
from fxlab.validation.verdicts.runs_compared import NothingReturnedError


class CompileSession(Session):
    """The passes of ``torch.compile`` on one graph of a model, which are switched by compiling again.

    It is a :class:`fxlab.Session`, made by :func:`fxlab.compiler.compile_session`.

    Attributes
    ----------
    graphs : dict
        The sessions of all graphs that the model was compiled to, by name: ``inference``, or ``joint``,
        ``forward`` and ``backward``; with the number of the graph if there are several.
    graph_break : GraphBreak or None
        Why Dynamo has ended the graph, and at which line; ``None`` at the end of the model.
    remarks : tuple
        As given.
    """

    graphs: Mapping[str, CompileSession]
    remarks: tuple[str, ...]

    def __init__(self, stack: CompilerStack) -> None:
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

    def _as_compiled(self) -> CompileSession:
        return self

    @property
    def compile_number(self) -> str:
        """Dynamo's number of the compile that the graph is of, such as ``0/1``; empty without Dynamo."""
        return self._compiled.recorded.compile

    def story(self) -> pd.DataFrame:
        """List Dynamo's events of the function that the graph is of, with all its compiles.

        The table is that of :meth:`fxlab.compiler.CompileRecord.story`.
        """
        story, number = self._compiled.compiler.first.recorder.story, self.compile_number
        return story_table(story.of([number] if number else []))

    @locked
    def verdict(  # type: ignore[override]  # a compile is asked for its passes; inputs are those of the run
        self, pass_: Pass | None = None, *, variants: Variants = False, gradients: bool = False
    ) -> Verdict:
        """Tell whether the present stage is the model up to rounding, or one pass alone changes nothing.

        Parameters
        ----------
        pass_
            A pass: then its stage is judged against the one below; ``"capture"``: the graphs as Dynamo
            captured them, against a run of the model itself. Left out, the present stage is judged against
            the graph as Dynamo captured it; where the capture is not the model, that is the answer.
        variants, gradients
            As for :meth:`fxlab.Session.verdict`.
        """
        try:
            return self._verdict(pass_, variants=variants, gradients=gradients)
        except NothingReturnedError:  # as Dynamo's graph after a break may
            return Verdict(Status.NOTHING_COMPARED, "the graph returns no tensors", None, {})

    def _verdict(self, pass_: Pass | None, *, variants: Variants, gradients: bool) -> Verdict:
        capture = self._compiled.compiler.capture
        if pass_ == CAPTURE:
            return self._same_capture() if capture is None else capture
        if pass_ is None and capture is not None and not capture.agrees:
            return replace(capture, reason=f"{CAPTURE}: {capture.reason}")
        if pass_ is None:
            return super().verdict(variants=variants, gradients=gradients)
        name = self._find(pass_)
        if name not in self._switches.on:
            raise ValueError(f"pass_: {name} is off. Switch it on first: session.apply({name!r}).")
        below = self._switches.stack(below=name)
        stages = self._stages.of(self._stack)
        above = (*below, (name, self._switches.excluded_from(name)))
        reference = Reference(stages[below], self.inputs, variants=variants, gradients=gradients)
        if variants is not False or gradients:
            return reference.verdict(stages[above])
        return self._comparisons.remembered_of_run(
            "verdict of a pass", above, lambda: reference.verdict(stages[above])
        )

    def _same_capture(self) -> Verdict:
        if self._compiled.compiler.recorded_by:
            why = "a recorded script does not run the model itself, so its capture is not compared"
            return Verdict(Status.NOTHING_COMPARED, why, None, {})
        words = "every bit that the model returns and writes is the same as where Dynamo's graphs compute it"
        return Verdict(Status.SAME_BITS, words, None, {})

    @locked
    def explain(self, pass_: Pass | None = None) -> pd.DataFrame:
        """Tell where the patterns of a pass have matched, or nearly; see :meth:`fxlab.Session.explain`."""
        if isinstance(pass_, str) and pass_ in self.unchanged:
            return self._explained_unchanged(pass_)
        return super().explain(pass_)

    @locked
    def explain_unchanged(self) -> dict[str, pd.DataFrame]:
        """Return the result of :meth:`explain` for each pass that has changed nothing, if it has any rows."""
        tables = {name: self._explained_unchanged(name) for name in self.unchanged}
        return {name: table for name, table in tables.items() if len(table)}

    @locked
    def why_not(  # type: ignore[override]  # a compile has patterns, which are asked for by a node
        self, node: Node | str, pattern: str | None = None, *, pass_: Pass | None = None
    ) -> pd.DataFrame:
        """Tell how far patterns match at a node, and the reason of a failure, as of the time the pass ran.

        Parameters
        ----------
        node
            A node of any stage, or its name.
        pattern
            The name of a pattern. Left out, all.
        pass_
            One pass. Left out, all passes that have run.

        Returns
        -------
        pandas.DataFrame
            A row for each pattern that was tried at the node, or that has matched it on its way from a later
            one; those that came furthest first. Indexed by ``pattern``: the ``pass``; whether it has
            ``matched``; the ``reason`` in words, and its ``code``, which is empty where it has; how many of
            its ``operators`` match (``reached``); the node that does not (``at``), and the node at which the
            match begins (``begins_at``). A pattern asked for and not tried there has a row that says why.

        Raises
        ------
        TypeError
            If ``node`` or ``pattern`` is not a name.
        ValueError
            If no stage has the node, or there is no such pattern or pass.
        """
        name = node.name if isinstance(node, Node) else node
        if not isinstance(name, str):
            raise type_error("node", "a torch.fx.Node or its name", node)
        tried = self._tried(pass_)
        _check_pattern(pattern, tried)
        found = attempts_at(tried, name, pattern)
        nodes = {other.name: other for stage in self.stages for other in stage.graph.nodes}
        if name not in nodes and found.empty:
            raise ValueError(f"node: no stage has a node {name!r}.{nearest(name, nodes)}")
        if pattern is None or not found.empty:
            return found
        return not_tried(tried, nodes[name], pattern)

    def _tried(self, pass_: Pass | None) -> list[PatternAttempts]:
        tried = self._compiled.tried(self._entries(self._switches), self._off(self._switches))
        if pass_ is None:
            return tried
        is_other = isinstance(pass_, str) and pass_ in self.unchanged
        name = pass_ if is_other else self._find(pass_)
        return [one for one in tried if one.pass_ == name]

    def _explained_unchanged(self, name: str) -> pd.DataFrame:
        entries, off = self._entries(self._switches), self._off(self._switches)
        return explain_unchanged(self._compiled, self._compiled.step(entries, off, name))

    @locked
    def generate_code(self) -> None:
        """Let Inductor generate code for the current stack, and put it on top of it, as ``compiled code``.

        Its stage is one node, which runs the code on the inputs of the session. ``session.verdict()`` then
        judges it against Dynamo's graph, and ``session.verdict("compiled code")`` against the stage below:
        the share of scheduling, fusion and code generation in the error. It takes as long as
        ``torch.compile`` does, after each change of the stack, until ``session.revert("compiled code")``.

        Raises
        ------
        TransformationError
            If there is no C++ compiler (for the CPU), or the compiler fails. The session is as it was.
        ValueError
            If this graph has no code: that of ``forward`` and ``backward`` is in the joint session.
        """
        if why := self._compiled.why_no_code():
            raise ValueError(f"{CODE}: {why}.")
        if CODE not in self._switches.offered:
            switches = self._offer.add(CodePass(), self._history, "pass_")
            self._go_to(replace(switches, on=switches.on | {CODE}))
        else:
            self.apply(CODE)

    @property
    def has_code(self) -> bool:
        """Whether code was generated for the current stack."""
        return CODE in self._switches.on

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refuse with a ValueError: a compile is made again, by the code of :meth:`to_python`."""
        raise ValueError(
            "A compile session cannot be saved, as it compiles again. Keep the code that makes it: "
            "session.to_python(); its pages: fxlab.report(session, path=...); or the graph of a stage: "
            "torch.save(session.graph_module, path)."
        )

    def to_python(self) -> str:
        """Return code that makes a session with the passes that are on here, or that records it again."""
        name = next((name for name, session in self.graphs.items() if session is self), "")
        if recorded_by := self._compiled.compiler.recorded_by:
            return f"import fxlab\n\n{recorded_by}\nsession = record.sessions[{name!r}]\n"
        left_out = {"training": False, "options": {}, "dynamic": None}
        given = {
            name: value for name, value in self._compiled.compiler.settings.items() if value != left_out[name]
        }
        words = "".join(
            f", {name}={'options' if name == 'options' else value}" for name, value in given.items()
        )
        own = "model, inputs and options are" if "options" in given else "model and inputs are"
        which = f".graphs[{name!r}]" if name != next(iter(self.graphs), "") else ""
        lines = [
            f"# {own} yours: what the session was made of.",
            "import fxlab",
            "",
            f"session = fxlab.compiler.compile_session(model, inputs{words}){which}",
        ]
        for pass_ in self.passes:
            if pass_.name == CODE:
                lines += ["session.generate_code()"] if self._internals.is_on(pass_) else []
            elif not self._internals.is_on(pass_):
                lines.append(f"session.revert({pass_.name!r})")
            lines += [
                f"session.exclude({pass_.name!r}, {candidate[0]!r})"
                for candidate in self._internals.excluded(pass_)
            ]
        return "\n".join([*lines, ""])

    def __repr__(self) -> str:
        on = sum(map(self._internals.is_on, self.passes))
        return f"<CompileSession of {type(self.original).__name__}: {on} of {len(self.passes)} passes on>"

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


def _check_pattern(pattern: object, tried: list[PatternAttempts]) -> None:
    """Raise the error that says that a name is not that of a pattern; ``None`` stands for all."""
    if pattern is None:
        return
    if not isinstance(pattern, str):
        raise type_error("pattern", "the name of a pattern", pattern)
    known = {known.name for one in tried for known in one.patterns}
    if pattern not in known:
        hint = nearest(pattern, known) or " session.why_not(node) lists those tried at a node."
        raise ValueError(f"pattern: no pass that has run has a pattern {pattern!r}.{hint}")


def linked(
    sessions: dict[str, CompileSession], remarks: Iterable[str]
) -> tuple[Mapping[str, CompileSession], tuple[str, ...]]:
    """Return the sessions and remarks of a record, which each of the sessions has as well."""
    known, told = MappingProxyType(sessions), tuple(remarks)
    for session in sessions.values():
        session.graphs, session.remarks = known, told
    return known, told


def compile_session(
    model: Callable[..., Any],
    inputs: Inputs | None = None,
    *,
    training: bool = False,
    backend: str = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> CompileSession:
    """Compile a model with ``torch.compile``'s Inductor, and record every pass over its graphs.

    No code is generated, so no C++ compiler and no GPU is needed. The model, all other state that its code
    reaches (an optimizer, closures, globals) and the caches of torch are left unchanged. Each pass that has
    changed the graph is a stage of the session, under the compiler's own name; it runs on the inputs with the
    model's own parameters, is judged, and is switched off by compiling again without it.

    Parameters
    ----------
    model
        A module, or a function as ``torch.compile`` takes one: the modules that it reads (of its object, its
        closure, its globals or its arguments) keep their names.
    inputs
        Its arguments: keyword arguments (a mapping), positional arguments (a tuple) or one tensor. For a
        model of transformers they are made from its configuration.
    training
        Whether gradients are compiled as well. A model that takes derivatives itself always has them.
    backend
        The only one whose passes are recorded.
    mode
        A set of options by name, as for ``torch.compile(mode=...)``.
    options
        Settings of Inductor, as for ``torch.compile(options=...)``, and AOTAutograd's
        ``activation_memory_budget``.
    dynamic
        Whether sizes are symbols, as for ``torch.compile(dynamic=...)``.

    Returns
    -------
    CompileSession
        The session of the first graph.

    Raises
    ------
    TypeError
        If ``model`` is neither or cannot be called with ``inputs``, ``training`` is not a bool, ``options``
        no mapping or given with a ``mode``, or ``dynamic`` neither a bool nor ``None``.
    ValueError
        If Inductor has no such option or mode, or Dynamo captures nothing.
    RuntimeError
        If the compiler fails. A pass that raises is left out, if that can be; ``remarks`` say so.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Softmax(-1)).eval()
    >>> session = compile_session(model, torch.ones(2, 4))
    >>> [pass_.name for pass_ in session.passes]
    ['AOTAutograd', 'joint/remove_noop_ops']
    >>> print(session.changes("joint/remove_noop_ops"))
    1 clone removed
    >>> _ = session.revert("joint/remove_noop_ops")
    >>> session.verdict().agrees
    True
    """
    if not callable(model) or isinstance(model, type):
        advice = "Give session.original, and session.inputs." if hasattr(model, "graph_module") else ""
        raise type_error("model", "a torch.nn.Module or a function", model, advice)
    require_bool(training, "training")
    if not isinstance(dynamic, bool | None):
        raise type_error("dynamic", "True, False or None", dynamic)
    if backend != "inductor":
        raise ValueError(
            f"backend: expected 'inductor', whose passes are recorded, got {backend!r}. "
            "fxlab.compiler.record_compile() notes those of any backend; fxlab.Capture keeps the graphs."
        )
    if options is not None and not isinstance(options, Mapping):
        raise type_error("options", "a mapping of Inductor's settings", options)
    if mode is not None:
        if options is not None:
            raise TypeError("mode: torch.compile takes options or a mode, not both. Give one of them.")
        options = mode_options(mode)
    model = unwrapped(model)
    inputs = given_inputs(inputs)
    unknown = sorted({name.replace("-", "_") for name in options or ()} - {*values()})
    if unknown:
        raise ValueError(
            f"options: Inductor has no setting {unknown[0]!r}; see torch._inductor.list_options()."
        )
    if inputs is None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                "inputs: expected what the function is called with, as a tuple or by name. What a run of "
                "yours compiles is recorded by `with fxlab.compiler.record_compile() as record:`."
            )
        from fxlab.tracing.inputs.example_inputs import example_inputs

        inputs = example_inputs(model)
    compiler = Compiler(model, inputs, training=training, options=options or {}, dynamic=dynamic)
    if not compiler.frames:
        why = compiler.first.recorder.story.why_no_graph() or "Does it compute anything with torch?"
        raise ValueError(f"model: Dynamo has captured no graph of it. {why}")
    graphs = {name: CompileSession(stack) for name, stack in stacks_of(compiler).items()}
    linked(graphs, compiler.remarks)
    return next(iter(graphs.values()))
