"""Functions of fxlab that take a session, as methods of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from fxlab.checks import described, file_to_write
from fxlab.graphs.nodes import chosen_nodes
from fxlab.models.running import Inputs, given_arguments
from fxlab.node_info import nodes_at, unknown_node
from fxlab.other_names import OF_FXLAB, OF_SESSIONS, no_such_name, own_name
from fxlab.public_calls import guided
from fxlab.sources import inputs_or_examples
from fxlab.transformations.pass_names import Passes
from fxlab.units import counted
from fxlab.values.nested import map_tensors, parted, put_together

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.comparison import Comparison
    from fxlab.deployment.files import ExportedFile
    from fxlab.drawing import Drawing
    from fxlab.notebook import Inspector
    from fxlab.validation import Bisection, Times


def _function(name: str) -> Any:
    # Of rooms above this one: found when it is called, so that a session loads none of them.
    return getattr(import_module("fxlab"), name)


_WRITERS = {
    **dict.fromkeys((".dot", ".pdf", ".png", ".svg"), "draw"),
    ".html": "report",
    **dict.fromkeys((".onnx", ".pt2"), "export"),
}
"""Names of files that methods write."""


_OF_GRAPHS = {
    *("print_readable", "print_tabular", "python_code", "output_node"),
    *("buffers", "children", "get_buffer", "get_parameter", "get_submodule", "meta", "modules", "training"),
    *("named_buffers", "named_children", "named_modules", "named_parameters", "parameters", "state_dict"),
}
"""Names that a session takes from its present graph: those that read it, none that write."""


def _as_file(
    write: Callable[..., Any], suffix: str, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """Write a file, or return its contents."""
    if path is not None:
        write(os.fspath(path), **options)
        return Path(path)
    with TemporaryDirectory() as folder:
        write(name := f"{folder}/file.{suffix}", **options)
        held = Path(name).read_bytes()
    return held.decode() if suffix in ("dot", "html", "svg") else held


def _public() -> set[str]:
    """Return the names of fxlab's public functions, most of which take a session first."""
    comparing = (name for name in OF_FXLAB if name.startswith("compare"))
    return {name for name in (*import_module("fxlab").__all__, *comparing) if name[:1].islower()}


class Shortcuts:
    """Methods that call the function of the same name with the session, and names of a graph module."""

    graph_module: GraphModule
    original: GraphModule
    passes: Passes
    inputs: Inputs | None
    apply: Callable[..., Any]

    if not TYPE_CHECKING:  # else every name would be known to type checkers

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # IPython, copy and pickle ask for these
                raise AttributeError(name)
            functions = _public()
            own = own_name(name, OF_SESSIONS, self._known() | dict.fromkeys(functions, True)) or name
            if "." in own or (own in functions and not hasattr(type(self), own)):
                return partial(_function(name if "." in own else own), self)
            if self.writes(name):
                suffix = name.removeprefix("to_")
                return partial(_as_file, getattr(self, _WRITERS[f".{suffix}"]), suffix)
            if own != name and (hasattr(type(self), own) or own in vars(self)):
                return getattr(self, own)
            if name in _OF_GRAPHS:
                return getattr(self.graph if hasattr(Graph, name) else self.graph_module, name)
            raise no_such_name(f"{type(self).__name__!r} object", name, {*dir(self), *functions})

    @classmethod
    def _known(cls) -> dict[str, bool]:
        """Return the names of its members, and whether each is called."""
        return {name: callable(getattr(cls, name, None)) for name in dir(cls)}

    @staticmethod
    def writes(name: str) -> bool:
        """Tell whether a name is a conversion to a kind of file, such as ``to_svg``."""
        return name.startswith("to_") and f".{name.removeprefix('to_')}" in _WRITERS

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the present graph, on the inputs of the session if none are given."""
        if not (args or kwargs) and self.inputs is not None and self.graph.find_nodes(op="placeholder"):
            args, kwargs = given_arguments(self.inputs)
        return self.graph_module(*args, **kwargs)

    def summary(self) -> str:
        """Describe in a few lines the model and the changes of each pass that is on."""
        counts = [len(each.graph.nodes) for each in (self.original, self.graph_module)]
        nodes = counted(counts[0], "node") + (f", now {counts[1]:,}" if counts[0] != counts[1] else "")
        session: Any = self
        return "\n".join(
            [f"{self!r}: {nodes}", *(f"{p.name}: {session.changes(p)}" for p in session.applied)]
        )

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

    def __getitem__(self, name: str) -> Any:
        """Return a node as :meth:`node` does, else a pass on offer."""
        passes: Any = self.passes
        if isinstance(name, str) and not nodes_at(self.graph, name) and name in passes:
            return passes[name]
        return self.node(name)

    def value(self, node: str, *, inputs: Inputs | None = None) -> Any:
        """Return the value of a node of the present graph on the inputs of the session, or on others.

        Raises
        ------
        ValueError
            If there is no such node, or the graph does not run on the inputs.
        """
        return self._values(self.node(node), inputs)[1]

    def values(self, *, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return the values of all nodes of the present graph by name; all of them are in memory."""
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

    def replace(self, pattern: Callable[..., Any], replacement: Callable[..., Any], **options: Any) -> Any:
        """Apply a pass of a pattern: ``fxlab.from_pattern(pattern, replacement, **options)``."""
        return self.apply(_function("from_pattern")(pattern, replacement, **options))

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
        if path is not None and (file := self.written(path, "export")) is not None:
            return file
        return _function("export")(self, path, **options)

    def nodes(self, where: Any = None, **columns: Any) -> pd.DataFrame:
        """Return a row for each node of the present graph: ``fxlab.nodes(session, where=where, ...)``."""
        table: pd.DataFrame = _function("nodes")(self, where=where, **columns)
        return table

    def find_nodes(
        self, where: Any = None, *, op: str | None = None, target: Any = None, module: str | None = None
    ) -> list[Node]:
        """Return the nodes of the present graph that :func:`fxlab.nodes` would list."""
        return chosen_nodes(self.graph_module, where, op=op, target=target, module=module)

    def __setattr__(self, name: str, value: Any) -> None:
        own = OF_SESSIONS.get(name, name)
        if callable(known := getattr(type(self), own, None)) or (own != name and known is None):
            raise AttributeError(f"{name} of a session is asked for, and cannot be set.")
        super().__setattr__(own, value)

    def benchmark(self, *inputs: Any, **options: Any) -> Times:
        """Time it against the original: ``fxlab.benchmark(session, **options)``."""
        times: Times = _function("benchmark")(self, *inputs, **options)
        return times

    def bisect(self, *inputs: Any, **options: Any) -> Bisection | None:
        """Find the rewrite that changes results: ``fxlab.bisect(session, **options)``."""
        found: Bisection | None = _function("bisect")(self, *inputs, **options)
        return found

    def compare(self, candidate: Any = None, **options: Any) -> Comparison:
        """Compare it with another model, or with its original if there is none: :func:`fxlab.compare`."""
        before, after = (self.original, self.graph_module) if candidate is None else (self, candidate)
        if candidate is None:
            options = {"inputs": self.inputs} | options
        found: Comparison = _function("compare")(before, after, **options)
        return found

    @staticmethod
    def load(path: str | os.PathLike[str], *args: Any, **options: Any) -> Any:
        """Make a session with saved choices: ``fxlab.load_session(path, model, inputs)``."""
        return _function("load_session")(path, *args, **options)

    def written(self, path: str | os.PathLike[str], by: str = "") -> Path | None:
        """Write a file in the format of its suffix; ``None`` if the caller writes that format itself."""
        file = file_to_write(path, "path")
        writer = _WRITERS.get(file.suffix, by)
        if writer == by:
            return None
        getattr(self, writer)(path)
        return file


for _name in ("benchmark", "bisect", "compare", "draw", "export", "find_nodes", "inspect", "nodes", "report"):
    setattr(Shortcuts, _name, guided(vars(Shortcuts)[_name]))  # which say what they take
