"""The generated Python of stages as data: equal lines of all stages are written once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, groupby

from torch import fx

from fxlab.graphs.code_diff import CodeDiff
from fxlab.models.generated_code import GeneratedCode, generated_code
from fxlab.view_model.graph_data.tables import Table
from fxlab.view_model.protocol import WrittenCode, WrittenDifference, WrittenLine
from fxlab.view_model.wire import clip

LONGEST_LINE = 10_000


class Codes:
    """Writes code; the page reads it in ``frontend/src/viewer/stages/codes.ts``.

    A line is its text and the numbers of the names of its nodes. A code is ranges of lines: where each begins
    in the table and how long it is. A stage that differs from another in few lines adds these, and ranges.
    """

    def __init__(self, texts: Table[str]) -> None:
        self._texts = texts
        self.lines, self.codes, self.differences = (
            Table[WrittenLine](),
            Table[WrittenCode](),
            Table[WrittenDifference](),
        )
        self._known: dict[int, GeneratedCode] = {}

    def add(self, stage: fx.GraphModule) -> int:
        """Write the code of a stage, and return its number."""
        code = generated_code(stage)
        numbers = [self._line(text, names) for text, names in zip(code.lines, code.nodes, strict=True)]
        self.codes.values.append({"ranges": _ranges(numbers), "linked": code.is_linked})
        number = len(self.codes.values) - 1
        self._known[number] = code
        return number

    def add_difference(self, before: int, after: int) -> int:
        """Write what is different between two codes, by their numbers, and return its number."""
        runs = CodeDiff(self._known[before], self._known[after]).runs
        written = [(run.kind, run.length) for run in runs]
        self.differences.values.append({"before": before, "after": after, "runs": written})
        return len(self.differences.values) - 1

    def forget_others(self, kept: Iterable[int]) -> None:
        """Let go of all codes but these; the page still has them."""
        self._known = {number: self._known[number] for number in kept}

    def _line(self, text: str, names: tuple[str, ...]) -> int:
        return self.lines.number((clip(text, LONGEST_LINE), *map(self._texts.number, names)))


def _ranges(numbers: Iterable[int]) -> list[int]:
    """Return where each range of consecutive numbers begins, and how long it is."""
    place = count()
    groups = (list(group) for _, group in groupby(numbers, lambda number: number - next(place)))
    return [number for group in groups for number in (group[0], len(group))]
