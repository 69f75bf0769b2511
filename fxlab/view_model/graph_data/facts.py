"""Facts about every node and the code of stages, for a page's data; equal values are written once."""

import inspect
import json
from collections.abc import Iterable, Mapping
from itertools import count, groupby
from typing import Any, Generic, TypeVar

from torch import fx, nn

from fxlab.graphs.code_diff import CodeDiff
from fxlab.models.graph_modules.generated_code import GeneratedCode, generated_code
from fxlab.operators import node_info, operator_of
from fxlab.transformations.marks import marks
from fxlab.view_model import protocol
from fxlab.view_model.wire import LONGEST_CLASSES, clip

_Value = TypeVar("_Value")


class Table(Generic[_Value]):
    """Values by number, none of them twice."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._numbers: dict[str, int] = {}
        self._taken = 0

    def number(self, value: _Value) -> int:
        """Return the place of a value, which is added if it is new."""
        key = value if isinstance(value, str) else repr(value)  # in half the time of JSON
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(self._written(value))
        return found

    def take(self) -> list[_Value]:
        """Return the values that were added since this was asked last."""
        new, self._taken = self.values[self._taken :], len(self.values)
        return new

    def _written(self, value: _Value) -> _Value:
        """Return a new value as it is written."""
        return value


class Looks(Table[Any]):
    """Looks of boxes; the same box with other marks is written as its difference from the first."""

    def __init__(self) -> None:
        super().__init__()
        self._firsts: dict[str, tuple[int, protocol.Look]] = {}

    def _written(self, value: protocol.Look) -> Any:
        words = json.dumps([value["kind"], value["label"], value["details"], value["openable"]])
        if words not in self._firsts:
            self._firsts[words] = len(self.values), value
            return value
        number, first = self._firsts[words]
        return {"like": number} | {name: part for name, part in value.items() if part != first.get(name)}


class Facts:
    """Writes facts about nodes; the page reads them in ``frontend/src/viewer/graphs/data.ts``.

    A row has the numbers of texts: name, op, target, module, class of the module, classes of all modules
    around; then shape and dtype of each result, numbers of source frames, names of inputs, marks, the number
    of elements of its parameters, and names of arguments.
    """

    def __init__(self) -> None:
        self.texts, self.rows, self.frames = (
            Table[str](),
            Table[protocol.FactRow](),
            Table[protocol.SourceFrame](),
        )
        self._frames_of_trace: dict[str, list[int]] = {}
        self._frame_numbers: dict[tuple[Any, ...], int] = {}

    def number(self, node: fx.Node, modules: Mapping[str, nn.Module]) -> int:
        """Return the number of a node's row."""
        text = self.texts.number
        called = modules.get(str(node.target)) if node.op == "call_module" else None
        row = (
            text(node.name),
            text(node.op),
            text(clip(node_info.target_text(node), 1_000)),
            text(clip(node_info.module_path(node), 1_000)),
            text(clip(node_info.class_name(node), 1_000)),
            text(clip(node_info.class_names(node, called), LONGEST_CLASSES)),
            [text(part) for shape, dtype in node_info.value_rows(node) for part in (clip(shape, 200), dtype)],
            self._frames(node),
            [text(other.name) for other in node.all_input_nodes],
            [text(mark) for mark in sorted(marks(node))],
            node_info.parameter_count(node, modules),
            text(clip(" ".join(_names_of_arguments(node, called)), 1_000)),
        )
        return self.rows.number(row)

    def _frames(self, node: fx.Node) -> list[int]:
        trace = str(node.meta.get("stack_trace") or "")
        if trace not in self._frames_of_trace:
            self._frames_of_trace[trace] = [self._frame(frame) for frame in node_info.frames_of(node)]
        return self._frames_of_trace[trace]

    def _frame(self, frame: dict[str, Any]) -> int:
        key = tuple(frame.values())
        if key not in self._frame_numbers:
            file, line, function, code = key
            lines: list[protocol.ExcerptLine] = [
                {"line": n, "text": text} for n, text in node_info.excerpt(file, line)
            ]
            self._frame_numbers[key] = self.frames.number(
                {"file": file, "line": line, "function": function, "code": code, "excerpt": lines}
            )
        return self._frame_numbers[key]


def _names_of_arguments(node: fx.Node, called: nn.Module | None) -> list[str]:
    """Return the names of the arguments that a node is given; a place has the name in the signature."""
    if (operator := operator_of(node)) is not None:
        places = [*operator.parameters]
    else:
        try:
            function = node.target if called is None else called.forward
            places = [*inspect.signature(function).parameters] if callable(function) else []
        except (TypeError, ValueError):  # a function in C has none
            places = []
    given = [*zip(places, node.args, strict=False), *node.kwargs.items()]
    return [name for name, value in given if value is not None]


LONGEST_LINE = 10_000


class Codes:
    """Writes code; the page reads it in ``frontend/src/viewer/stages/codes.ts``.

    A line is its text and the numbers of the names of its nodes. A code is ranges of lines: where each begins
    in the table and how long it is. A stage that differs from another in few lines adds these, and ranges.
    """

    def __init__(self, texts: Table[str]) -> None:
        self._texts = texts
        self.lines, self.codes, self.differences = (
            Table[protocol.WrittenLine](),
            Table[protocol.WrittenCode](),
            Table[protocol.WrittenDifference](),
        )
        self._known: dict[int, GeneratedCode] = {}

    def add(self, stage: fx.GraphModule) -> int:
        """Write the code of a stage, and return its number."""
        code = generated_code(stage)
        numbers = [
            self.lines.number((clip(text, LONGEST_LINE), *map(self._texts.number, names)))
            for text, names in zip(code.lines, code.nodes, strict=True)
        ]
        self.codes.values.append({"ranges": _ranges(numbers), "linked": code.is_linked})
        number = len(self.codes.values) - 1
        self._known[number] = code
        return number

    def add_difference(self, before: int, after: int) -> int:
        """Write the difference of two codes, by their numbers, and return its number."""
        runs = CodeDiff(self._known[before], self._known[after]).runs
        written = [(run.kind, run.length) for run in runs]
        self.differences.values.append({"before": before, "after": after, "runs": written})
        return len(self.differences.values) - 1

    def forget_others(self, kept: Iterable[int]) -> None:
        """Release all codes but these, which the page still has."""
        self._known = {number: self._known[number] for number in kept}


def _ranges(numbers: Iterable[int]) -> list[int]:
    """Return where each range of consecutive numbers begins, and how long it is."""
    place = count()
    groups = (list(group) for _, group in groupby(numbers, lambda number: number - next(place)))
    return [number for group in groups for number in (group[0], len(group))]
