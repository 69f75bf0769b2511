"""Functions of fxlab that take a session, as methods of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from fxlab.checks import described
from fxlab.models.running import Inputs, given_arguments
from fxlab.node_info import nodes_at, unknown_node
from fxlab.other_names import OF_SESSIONS, no_such_name
from fxlab.sources import inputs_or_examples
from fxlab.values.nested import map_tensors, parted, put_together

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.comparison import Comparison
    from fxlab.deployment.files import ExportedFile
    from fxlab.drawing import Drawing
    from fxlab.notebook import Inspector
    from fxlab.validation import Bisection


def _function(name: str) -> Any:
    # Of rooms above this one: found when it is called, so that a session loads none of them.
    return getattr(import_module("fxlab"), name)


_FUNCTIONS = {
    *("assert_same", "code_diff", "compare_nodes", "compare_stages", "find_matches", "first_divergence"),
    *("graph_diff", "memory", "node_values", "nodes_by_stage", "pattern_of", "profile", "repro"),
}
"""Other functions of fxlab that take a session."""


class Shortcuts:
    """Methods that call the function of the same name with the session, and what one looks for on a graph."""

    graph_module: GraphModule
    inputs: Inputs | None
    apply: Callable[..., None]

    if not TYPE_CHECKING:  # else every name would be known to type checkers

        def __getattr__(self, name: str) -> Any:
            own = OF_SESSIONS.get(name, name)
            if own in _FUNCTIONS:
                return partial(_function(own), self.graph_module if own == "find_matches" else self)
            if own != name and (hasattr(type(self), own) or own in vars(self)):
                return getattr(self, own)
            if name.startswith("_"):  # IPython, copy and pickle ask for these
                raise AttributeError(name)
            raise no_such_name(f"{type(self).__name__!r} object", name, {*dir(self), *_FUNCTIONS})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the present graph, on the inputs of the session if none are given."""
        if not (args or kwargs) and self.inputs is not None and self.graph.find_nodes(op="placeholder"):
            args, kwargs = given_arguments(self.inputs)
        return self.graph_module(*args, **kwargs)

    def node(self, name: str) -> Node:
        """Return a node of the present graph by its name, or the last one of a module by its path.

        Raises
        ------
        ValueError
            If there is none.
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected the name of a node or a module's path, got {described(name)}.")
        found = nodes_at(self.graph, name)
        if not found:
            raise unknown_node(self.graph, name)
        return found[-1]

    __getitem__ = node

    def value(self, node: str, *, inputs: Inputs | None = None) -> Any:
        """Return what a node of the present graph computes on the inputs of the session, or on others.

        Raises
        ------
        ValueError
            If there is no such node, or the graph does not run on the inputs.
        """
        return self._values(self.node(node), inputs)[1]

    def values(self, *, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return what each node of the present graph computes, by its name; all of them are in memory."""
        return self._values(None, inputs)[0]

    def _values(self, last: Node | None, inputs: Inputs | None) -> tuple[dict[str, Any], Any]:
        from fxlab.validation.tensor_values.visited_run import visit_values

        found: dict[str, Any] = {}
        value: Any = None

        def visit(node: Node, computed: Any) -> None:
            nonlocal value
            value = map_tensors(lambda _, tensor: tensor.detach().clone(), parted(computed))
            value = put_together(value)
            if last is None:
                found[node.name] = value

        graph_module = self.graph_module
        given = inputs_or_examples(self.inputs if inputs is None else inputs, graph_module)
        visit_values(graph_module, given, visit, last=last, name="session")
        return found, value

    def replace(self, pattern: Callable[..., Any], replacement: Callable[..., Any], **options: Any) -> None:
        """Apply a pass of a pattern: ``fxlab.from_pattern(pattern, replacement, **options)``."""
        self.apply(_function("from_pattern")(pattern, replacement, **options))

    @property
    def graph(self) -> Graph:
        """The present graph: ``session.graph_module.graph``."""
        return self.graph_module.graph

    @property
    def code(self) -> str:
        """The Python code of the present graph."""
        return self.graph_module.code

    def draw(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Drawing:
        """Draw the present graph: ``fxlab.draw(session, **options)``; a path is a file to write, too."""
        drawing: Drawing = _function("draw")(self, path=path, **options)
        return drawing

    def inspect(self, **options: Any) -> Inspector:
        """Show it with a switch for each pass: ``fxlab.inspect(session, **options)``."""
        inspector: Inspector = _function("inspect")(self, **options)
        return inspector

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write it as one HTML file: ``fxlab.report(session, path=path, **options)``."""
        file: Path = _function("report")(self, path=path, **options)
        return file

    @overload
    def export(self, path: None = None, **options: Any) -> ExportedProgram: ...
    @overload
    def export(self, path: str | os.PathLike[str], **options: Any) -> ExportedFile: ...

    def export(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Export the present model, as a program or to a file: ``fxlab.export(session, path, **options)``."""
        return _function("export")(self, path, **options)

    def nodes(self) -> pd.DataFrame:
        """Return a row for each node of the present graph: ``fxlab.nodes(session)``."""
        table: pd.DataFrame = _function("nodes")(self)
        return table

    def benchmark(self, **options: Any) -> pd.DataFrame:
        """Time it against the original: ``fxlab.benchmark(session, **options)``."""
        table: pd.DataFrame = _function("benchmark")(self, **options)
        return table

    def bisect(self, **options: Any) -> Bisection | None:
        """Find the rewrite with which it is different: ``fxlab.bisect(session, **options)``."""
        found: Bisection | None = _function("bisect")(self, **options)
        return found

    def compare(self, candidate: Any, **options: Any) -> Comparison:
        """Compare it with another model: ``fxlab.compare(session, candidate, **options)``."""
        found: Comparison = _function("compare")(self, candidate, **options)
        return found
