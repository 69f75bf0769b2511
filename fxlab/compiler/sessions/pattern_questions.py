"""Matches of the compiler's patterns, and the reasons where one does not match."""

from __future__ import annotations

import difflib

from torch.fx import GraphModule, Node

from fxlab.checks import unexpected
from fxlab.compiler.compiler_pass import explain_unchanged
from fxlab.compiler.sessions.switching import SwitchedCompile
from fxlab.first_use import pd
from fxlab.session.offer import PassOrName
from fxlab.session.turns import in_turn
from fxlab.transformations.inductor_patterns import Tried, attempts_at, not_tried, patterns_table


class PatternQuestions(SwitchedCompile):
    """Questions about the patterns of a compile; see :class:`fxlab.CompileSession`."""

    @in_turn
    def explain(self, pass_: PassOrName | None = None) -> pd.DataFrame:
        """Tell where the patterns of a pass have matched, or nearly; see :meth:`fxlab.Session.explain`."""
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
    def pattern_graphs(
        self, pattern: str | None = None, *, pass_: PassOrName | None = None
    ) -> list[GraphModule]:
        """Return patterns as graphs, to be drawn by :func:`fxlab.draw`: inputs, operators and constants.

        An operator that may be one of several is the first of them, a list of any length has one element, and
        a value that nobody asks for is ``...``; ``patterns()["code"]`` tells all. No such graph can run.
        ``pattern``: the name of a pattern (see :meth:`patterns`). Left out, all. ``pass_``: one pass. Left
        out, all passes that have run. Raises TypeError if ``pattern`` is no name; ValueError if there is no
        such pattern or pass. Returns one for each row of :meth:`patterns` that has the name, in their order.
        """
        tried = self._tried(pass_)
        _check_pattern(pattern, tried)
        return [one.graph for each in tried for one in each.patterns if pattern in (None, one.name)]

    @in_turn
    def why_not(  # type: ignore[override]  # a compile has patterns, which are asked for by a node
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
            raise unexpected("node", "a torch.fx.Node or its name", node)
        tried = self._tried(pass_)
        _check_pattern(pattern, tried)
        found = attempts_at(tried, name, pattern)
        nodes = {other.name: other for stage in self.stages for other in stage.graph.nodes}
        if name not in nodes and found.empty:
            close = difflib.get_close_matches(name, nodes)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"node: no stage has a node {name!r}.{hint}")
        if pattern is None or not found.empty:
            return found
        return not_tried(tried, nodes[name], pattern)

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


def _check_pattern(pattern: object, tried: list[Tried]) -> None:
    """Raise what says that a name is that of no pattern; ``None`` stands for all."""
    if pattern is None:
        return
    if not isinstance(pattern, str):
        raise unexpected("pattern", "the name of a pattern", pattern)
    known = {known.name for one in tried for known in one.patterns}
    if pattern not in known:
        close = difflib.get_close_matches(pattern, known)
        hint = f" Did you mean {close[0]!r}?" if close else " session.patterns() lists them."
        raise ValueError(f"pattern: no pass that has run has a pattern {pattern!r}.{hint}")
