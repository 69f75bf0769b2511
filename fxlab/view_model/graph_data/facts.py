"""Facts about every node in the page: enough to search, and to show a node while the kernel is busy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from fxlab.node_info import (
    class_name,
    class_names,
    excerpt,
    frames_of,
    module_path,
    parameter_count,
    target_text,
    value_rows,
)
from fxlab.transformations.marks import marks
from fxlab.view_model.graph_data.tables import Table
from fxlab.view_model.protocol import ExcerptLine, FactRow, SourceFrame
from fxlab.view_model.wire import LONGEST_CLASSES, clip


class Facts:
    """Writes facts about nodes; the page reads them in ``frontend/src/viewer/graphs/data.ts``.

    A row has the numbers of texts: name, op, target, module, class of the module, classes of all modules
    around; then shape and dtype of each result, numbers of source frames, names of inputs, marks, and the
    number of elements of its parameters.
    """

    def __init__(self) -> None:
        self.texts, self.rows, self.frames = Table[str](), Table[FactRow](), Table[SourceFrame]()
        self._frames_of_trace: dict[str, list[int]] = {}
        self._frame_numbers: dict[tuple[Any, ...], int] = {}

    def number(self, node: fx.Node, modules: Mapping[str, nn.Module]) -> int:
        """Return the number of a node's row."""
        text = self.texts.number
        called = modules.get(str(node.target)) if node.op == "call_module" else None
        row = (
            text(node.name),
            text(node.op),
            text(clip(target_text(node), 1_000)),
            text(clip(module_path(node), 1_000)),
            text(clip(class_name(node), 1_000)),
            text(clip(class_names(node, called), LONGEST_CLASSES)),
            [text(part) for shape, dtype in value_rows(node) for part in (clip(shape, 200), dtype)],
            self._frames(node),
            [text(other.name) for other in node.all_input_nodes],
            [text(mark) for mark in sorted(marks(node))],
            parameter_count(node, modules),
        )
        return self.rows.number(row)

    def _frames(self, node: fx.Node) -> list[int]:
        trace = str(node.meta.get("stack_trace") or "")
        if trace not in self._frames_of_trace:
            self._frames_of_trace[trace] = [self._frame(frame) for frame in frames_of(node)]
        return self._frames_of_trace[trace]

    def _frame(self, frame: dict[str, Any]) -> int:
        key = tuple(frame.values())
        if key not in self._frame_numbers:
            file, line, function, code = key
            lines: list[ExcerptLine] = [{"line": n, "text": text} for n, text in excerpt(file, line)]
            self._frame_numbers[key] = self.frames.number(
                {"file": file, "line": line, "function": function, "code": code, "excerpt": lines}
            )
        return self._frame_numbers[key]
