"""Functions of fxlab that take a session, as methods of it."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, GraphModule

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


class Shortcuts:
    """Methods that call the function of the same name with the session, and what one looks for on a graph."""

    graph_module: GraphModule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the present graph."""
        return self.graph_module(*args, **kwargs)

    @property
    def graph(self) -> Graph:
        """The present graph: ``session.graph_module.graph``."""
        return self.graph_module.graph

    @property
    def code(self) -> str:
        """The Python code of the present graph."""
        return self.graph_module.code

    def draw(self, **options: Any) -> Drawing:
        """Draw the present graph: ``fxlab.draw(session, **options)``."""
        drawing: Drawing = _function("draw")(self, **options)
        return drawing

    def inspect(self, **options: Any) -> Inspector:
        """Show it with a switch for each pass: ``fxlab.inspect(session, **options)``."""
        inspector: Inspector = _function("inspect")(self, **options)
        return inspector

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write it as one HTML file: ``fxlab.report(session, path=path, **options)``."""
        file: Path = _function("report")(self, path=path, **options)
        return file

    def export(self, path: str | os.PathLike[str], **options: Any) -> ExportedFile:
        """Write the present model as a program or ONNX: ``fxlab.export(session, path, **options)``."""
        file: ExportedFile = _function("export")(self, path, **options)
        return file

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
