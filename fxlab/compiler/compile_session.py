"""A session whose stages are those of ``torch.compile``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch._inductor
from torch import nn
from torch.fx import Node

from fxlab.checks import described
from fxlab.compiler.compiler import Compiler, CompilerStack, Entries
from fxlab.compiler.compiler_pass import CODE, CodePass, CompilerPass, explain_unchanged, pass_of
from fxlab.compiler.patterns import Tried, attempts_at, not_tried, patterns_table
from fxlab.models.running import Inputs
from fxlab.overlays import Overlay
from fxlab.session import Session
from fxlab.session.history import History, Switches
from fxlab.session.offer import PassOrName
from fxlab.session.turns import in_turn
from fxlab.transformations import Transformation
from fxlab.transformations.journal.name_order import in_order
from fxlab.validation import Reference, Variants, Verdict

if TYPE_CHECKING:
    import pandas as pd


class CompileSession(Session):
    """The passes of ``torch.compile`` on one graph of a model, which are switched by compiling again.

    Made by :func:`fxlab.compile_session`. It is a :class:`fxlab.Session`: all that takes one takes this too.

    Parameters
    ----------
    stack
        The recorded compile of the graph.
    remarks
        What could not be recorded with this torch, in words.

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

    def __init__(self, stack: CompilerStack, remarks: tuple[str, ...]) -> None:
        self._compiled = stack
        self.remarks = remarks
        self.graph_break = stack.graph_break
        self.graphs: Mapping[str, CompileSession] = {}
        super().__init__(stack.original(), stack.inputs, passes=map(pass_of, stack.changing.values()))
        everything = replace(self._switches, on=frozenset(self._switches.offered))
        self._history = History((everything,))

    @property
    def unchanged(self) -> tuple[str, ...]:
        """The passes that the compiler ran, and that have changed nothing in this graph."""
        return tuple(self._compiled.unchanged)

    @in_turn
    def verdict(
        self, pass_: PassOrName | None = None, *, variants: Variants = False, gradients: bool = False
    ) -> Verdict:
        """Tell whether the present stage is the model up to rounding, or one pass alone changes nothing.

        Parameters
        ----------
        pass_
            A pass: then its stage is judged against the one below. Left out, the present stage is judged
            against the graph as Dynamo captured it.
        variants, gradients
            As for :meth:`fxlab.Session.verdict`.
        """
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
        return self._comparisons.remembered(
            "verdict of a pass", above, lambda: reference.verdict(stages[above])
        )

    @in_turn
    def explain(self, pass_: PassOrName) -> pd.DataFrame:
        """Tell where the patterns of a pass have matched, and where they have begun to and why they failed.

        Takes the passes that have changed nothing as well; see :meth:`fxlab.Session.explain`.
        """
        if isinstance(pass_, str) and pass_ in self.unchanged:
            return self._explained_unchanged(pass_)
        return super().explain(pass_)

    @in_turn
    def explain_unchanged(self) -> dict[str, pd.DataFrame]:
        """Return what :meth:`explain` says of each pass that has changed nothing, where that is anything."""
        tables = {name: self._explained_unchanged(name) for name in self.unchanged}
        return {name: table for name, table in tables.items() if len(table)}

    @in_turn
    def patterns(self, pass_: PassOrName | None = None) -> pd.DataFrame:
        """List the patterns of the compiler's passes, as they are registered with this torch.

        Parameters
        ----------
        pass_
            One pass, also one that has changed nothing. Left out, all passes that have run.

        Returns
        -------
        pandas.DataFrame
            A row for each pattern of each pass, indexed by its name (``pattern``): the ``pass``; the number
            of ``matches`` in this compile; at how many nodes it was ``tried``, which are those of its last
            operator; what came of the match that came furthest (``nearest``); its ``operators``, inputs
            first; the file and line where it is registered (``place``); and its ``code``, as torch writes
            patterns. Passes of a phase or setting that is off are not there.

        Raises
        ------
        ValueError
            If there is no such pass.
        """
        return patterns_table(self._tried(pass_))

    @in_turn
    def why_not(
        self, node: Node | str, pattern: str | None = None, *, pass_: PassOrName | None = None
    ) -> pd.DataFrame:
        """Tell how far patterns match at a node, and what fails, as the compiler found when the pass ran.

        Parameters
        ----------
        node
            A node of any stage, or its name.
        pattern
            The name of a pattern (see :meth:`patterns`). Left out, all.
        pass_
            One pass. Left out, all passes that have run.

        Returns
        -------
        pandas.DataFrame
            A row for each pattern that was tried at the node, or that has matched it on its way from a later
            one; those that came furthest first. Indexed by ``pattern``: the ``pass``; whether it has
            ``matched``; the ``reason`` in words, and its ``code``, which is empty where it has; how many of
            its ``operators`` match (``reached``); the node that does not (``at``), and the node at which the
            match begins (``begins_at``). A pattern that is asked for and was not tried there has a row that
            says why.

        Raises
        ------
        TypeError
            If ``node`` or ``pattern`` is no name.
        ValueError
            If no stage has the node, or there is no such pattern or pass.
        """
        name = node.name if isinstance(node, Node) else node
        if not isinstance(name, str):
            raise TypeError(f"node: expected a torch.fx.Node or its name, got {described(node)}.")
        if pattern is not None and not isinstance(pattern, str):
            raise TypeError(f"pattern: expected the name of a pattern, got {described(pattern)}.")
        tried = self._tried(pass_)
        known = {known.name for one in tried for known in one.patterns}
        if pattern is not None and pattern not in known:
            close = difflib.get_close_matches(pattern, known)
            hint = f" Did you mean {close[0]!r}?" if close else " session.patterns() lists them."
            raise ValueError(f"pattern: no pass that has run has a pattern {pattern!r}.{hint}")
        found = attempts_at(tried, name, pattern)
        nodes = {other.name: other for stage in self.stages for other in stage.graph.nodes}
        if name not in nodes and found.empty:
            close = difflib.get_close_matches(name, nodes)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"node: no stage has a node {name!r}.{hint}")
        if pattern is None or not found.empty:
            return found
        return not_tried(tried, nodes[name], pattern)

    @in_turn
    def generate_code(self) -> None:
        """Let Inductor generate code for what is on, and put it on top of the stack, as ``compiled code``.

        Its stage is one node, which runs the code on the inputs of the session. ``session.verdict()`` then
        judges it against Dynamo's graph, and ``session.verdict("compiled code")`` against the stage below:
        what scheduling, fusion and code generation add to the error. :meth:`kernels` tells which kernel each
        node went into. It takes as long as ``torch.compile`` does, again after each change of what is on;
        ``session.revert("compiled code")`` ends that.

        Raises
        ------
        TransformationError
            If there is no C++ compiler (for the CPU), or the compiler fails. The session is as it was.
        ValueError
            If there is no code of this graph: of ``forward`` and ``backward`` it is in the joint session, of
            pipelines there is none.
        """
        if why := self._compiled.why_no_code():
            raise ValueError(f"{CODE}: {why}.")
        if CODE not in self._switches.offered:
            switches = self._offer.add(CodePass(), self._history, "pass_")
            self._go_to(replace(switches, on=switches.on | {CODE}))
        else:
            self.apply(CODE)

    @in_turn
    def kernels(self) -> pd.DataFrame:
        """Tell which kernel of the generated code each node of the compiler's last graph went into.

        Returns
        -------
        pandas.DataFrame
            A row for each node that Inductor names, indexed by ``node``: the ``stack`` it is of, and its
            ``kernel``; several where it is computed in each of them. A number tells calls of one kernel
            apart. Views and other nodes that need no kernel have no row. A recorded script has rows if
            ``INDUCTOR_PROVENANCE=1`` is in its environment.

        Raises
        ------
        ValueError
            If no code was generated: see :meth:`generate_code`.
        """
        import pandas as pd

        if not self.has_code:
            raise ValueError("kernels: no code was generated. Do that first: session.generate_code().")
        found = self._compiled.kernels(self._entries(self._switches))
        rows = [
            (node, stack, ", ".join(kernels))
            for stack, nodes in found.items()
            for node, kernels in nodes.items()
        ]
        return pd.DataFrame(rows, columns=["node", "stack", "kernel"]).set_index("node")

    def overlays(self) -> list[Overlay]:
        """Return what its graphs can be coloured by beside what all sessions can: the kernels, by node."""
        values: dict[str, str] = {}
        for node, kernel in self.kernels()["kernel"].items() if self.has_code else ():
            known = values.get(str(node))
            values[str(node)] = f"{known}, {kernel}" if known else str(kernel)
        return [Overlay("kernel", "Kernel", values)] if values else []

    def addable(self) -> tuple[Transformation, ...]:
        """Return what can be added to the stack beside what can be added to any."""
        return () if self._compiled.why_no_code() else (CodePass(),)

    @property
    def has_code(self) -> bool:
        """Whether code was generated for what is on."""
        return CODE in self._switches.on

    def _tried(self, pass_: PassOrName | None) -> list[Tried]:
        tried = self._compiled.tried(self._entries(self._switches), self._off(self._switches))
        if pass_ is None:
            return tried
        is_other = isinstance(pass_, str) and pass_ in self.unchanged
        name = pass_ if is_other else self._find(pass_)
        return [one for one in tried if one.pass_ == name]

    def _explained_unchanged(self, name: str) -> pd.DataFrame:
        entries, off = self._entries(self._switches), self._off(self._switches)
        return explain_unchanged(self._compiled, self._compiled.step(entries, off, name))

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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refuse: a compile depends on the compiler, and is made again by :meth:`to_python`.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("A compile session cannot be saved. Its code can: session.to_python().")

    def to_python(self) -> str:
        """Return code that makes a session of ``model`` and ``inputs`` with what is on here."""
        left_out = {"training": False, "options": {}, "dynamic": None}
        given = {name: value for name, value in self._compiled.settings.items() if value != left_out[name]}
        words = "".join(
            f", {name}={'options' if name == 'options' else value}" for name, value in given.items()
        )
        own = "model, inputs and options are" if "options" in given else "model and inputs are"
        name = next((name for name, session in self.graphs.items() if session is self), "")
        which = f".graphs[{name!r}]" if name != next(iter(self.graphs), "") else ""
        lines = [
            f"# {own} yours: what the session was made of.",
            "import fxlab",
            "",
            f"session = fxlab.compile_session(model, inputs{words}){which}",
        ]
        for pass_ in self.passes:
            if pass_.name == CODE:
                lines += ["session.generate_code()"] if self.is_on(pass_) else []
            elif not self.is_on(pass_):
                lines.append(f"session.revert({pass_.name!r})")
            lines += [
                f"session.exclude({pass_.name!r}, {candidate[0]!r})" for candidate in self.excluded(pass_)
            ]
        return "\n".join([*lines, ""])

    def __repr__(self) -> str:
        on = sum(map(self.is_on, self.passes))
        return f"<CompileSession of {type(self.original).__name__}: {on} of {len(self.passes)} passes on>"

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


def compile_session(
    model: nn.Module,
    inputs: Inputs | None = None,
    *,
    training: bool = False,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> CompileSession:
    """Compile a model with ``torch.compile``'s Inductor, and record every pass over its graphs.

    No code is generated, so no C++ compiler and no GPU is needed, and neither the model nor any cache of
    torch is changed. Each pass that has changed the graph is a stage of the session, under the compiler's own
    name; it runs on the inputs with the model's own parameters, is judged, and is switched off by compiling
    again without it.

    Parameters
    ----------
    model
        The model.
    inputs
        What it is called with: keyword arguments (a mapping), positional arguments (a tuple) or one tensor.
        For a model of transformers they are made from its configuration.
    training
        Whether gradients are compiled as well.
    options
        Settings of Inductor, as for ``torch.compile(options=...)``.
    dynamic
        Whether sizes are symbols, as for ``torch.compile(dynamic=...)``.

    Returns
    -------
    CompileSession
        The session of the first graph.

    Raises
    ------
    TypeError
        If ``model`` is no module, ``inputs`` are nothing that it can be called with, ``training`` is no
        bool, ``options`` no mapping, or ``dynamic`` neither a bool nor ``None``.
    ValueError
        If Inductor has no such option, or Dynamo captures nothing.
    RuntimeError
        If the compiler fails, or a pass of the user's own.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Softmax(-1)).eval()
    >>> session = compile_session(model, torch.ones(2, 4))
    >>> [pass_.name for pass_ in session.passes]
    ['aot', 'joint/remove_noop_ops']
    >>> print(session.changes("joint/remove_noop_ops"))
    1 clone removed
    >>> session.revert("joint/remove_noop_ops")
    >>> session.verdict().agrees
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {described(model)}.")
    if not isinstance(training, bool):
        raise TypeError(f"training: expected True or False, got {described(training)}.")
    if not isinstance(dynamic, bool | None):
        raise TypeError(f"dynamic: expected True, False or None, got {described(dynamic)}.")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options: expected a mapping of Inductor's settings, got {described(options)}.")
    model = getattr(model, "_orig_mod", model)  # one that torch.compile has wrapped
    unknown = sorted({name.replace("-", "_") for name in options or ()} - {*torch._inductor.list_options()})
    if unknown:
        raise ValueError(
            f"options: Inductor has no setting {unknown[0]!r}; see torch._inductor.list_options()."
        )
    if inputs is None:
        from fxlab.tracing import example_inputs

        inputs = example_inputs(model)
    compiler = Compiler(model, inputs, training=training, options=options or {}, dynamic=dynamic)
    if not compiler.frames:
        raise ValueError("model: Dynamo has captured no graph of it; does it compute anything with torch?")
    graphs = {
        name: CompileSession(stack, tuple(compiler.remarks)) for name, stack in compiler.stacks().items()
    }
    for session in graphs.values():
        session.graphs = MappingProxyType(graphs)
    return next(iter(graphs.values()))
