"""Golden vectors: graphs as pages receive them, and what Python shows and lays out of the same.

``frontend/tests/golden.test.ts`` replays them in the page's code. After a change in Python::

    .venv/bin/python tests/golden/make.py

What searches find (``found.json``, by the queries of ``queries.json``) is the page's alone, and kept by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.models import MODELS, session_of

from fxlab import Session
from fxlab.base.units import percent, with_unit
from fxlab.drawing import Group, Hierarchy, Leaf, View
from fxlab.drawing import view as drawn_view
from fxlab.drawing.hierarchy.changes import CHANGES, changes_between
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import DOWN, RIGHT, Arrangement, outline, outline_head
from fxlab.drawing.rendering.paint import STYLES, LineStyles, module_alone, values_of, values_of_groups
from fxlab.graphs.provenance import Provenance
from fxlab.overlays import Overlay
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data import graph_data
from fxlab.view_model.graph_data.metrics import METRICS, PAINTS
from fxlab.view_model.graph_data.session_graphs import SessionGraphs
from fxlab.view_model.graph_data.shown_graph import Marks
from fxlab.view_model.pass_state import explain_all, matched_nodes, pass_states

FOLDER = Path(__file__).parent
IN_PARTS = "llama"
"""The model that is written as a large one is: closed groups follow, and pictures are set in columns."""
TRANSFORMERS = ("bert", "llama")
LARGE = (*TRANSFORMERS, "step")
"""Models of which less is written."""
OFFERED = ("conv",)
"""Models of which everything is written that a page may ask for."""
WITH_EXTRAS = ("shared",)
"""Models whose vectors have what a report says of every node."""

Model = dict[str, Any]


def vectors(name: str) -> str:
    """Return the vectors of a model as they are written in a file."""
    largest = 20 if name == IN_PARTS else graph_data.MOST_AT_ONCE
    columns = (30, 5, 10, 15) if name == IN_PARTS else METRICS["parts"]
    names = ("MOST_IN_A_COLUMN", "SHORTEST_COLUMN", "COLUMN", "LONGEST_COLUMN")
    with (
        mock.patch.object(graph_data, "MOST_AT_ONCE", largest),
        mock.patch.dict(METRICS, parts=columns),
        mock.patch.multiple(drawn_view, **dict(zip(names, columns, strict=True))),
    ):
        return _written(_Maker(session_of(name), name).made())


@dataclass
class _Maker:
    session: Session
    name: str
    steps: list[Model] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """Of outlines: many views have the same boxes."""

    def __post_init__(self) -> None:
        self.graphs = SessionGraphs(self.session)

    def made(self) -> Model:
        self._step("start", lambda: self.graphs.alone(0))
        if self.name == IN_PARTS:
            for part in self._rest(0):
                self._step(f"rest {part}", lambda: None)
        if self.name in OFFERED:
            for p in self.session.passes:
                self._step(f"preview {p.name}", lambda p=p: self.graphs.preview(p))
        for number, p in enumerate(self.session.passes, 1):
            self.session.apply(p)
            self.graphs.reset()
            if number == 2 or self.name in OFFERED:
                self._step(f"stage {number}", self._add_last_stage)
        numbers = {"first": self.graphs.alone(0), "last": self.graphs.alone(2)}
        if self.name not in LARGE:
            numbers["merged"] = self.graphs.merged(2, 0)
            self._step("merged", lambda: None)
        self._step("pair", lambda: self.graphs.pair(2, 0))
        if self.name in OFFERED:
            for after, before in ((1, 0), (2, 1)):
                self.graphs.merged(after, before)
                self._step(f"{after}/{before}", lambda a=after, b=before: self.graphs.pair(a, b))
            self._step("code", lambda: self.graphs.code(2, 0))
        self._step("overlays", self._add_overlays)
        data = self.graphs.data
        found = {
            "steps": self.steps,
            "graphs": [self._graph(number) for number in numbers.values()],
            "pair": self._pair(),
            "overlays": [self._overlay(overlay) for overlay in self._overlays()],
            "hierarchies": [self._walks(data.hierarchy(numbers["last"]), data.shown(numbers["last"]).marks)],
            "heads": [
                {
                    "direction": direction,
                    "shapes": shapes,
                    "head": outline_head(Arrangement(direction, shapes)),
                }
                for direction in (DOWN, RIGHT)
                for shapes in (False, True)
            ],
        }
        return found | {"lines": list(self.lines)}

    # What a page receives.

    def _step(self, do: str, add: Callable[[], object]) -> None:
        add()
        step = {"do": do, "part": self.graphs.data.take(), "stages": self.graphs.state()}
        if do.startswith("st"):
            explained = explain_all(self.session)
            step["passes"] = pass_states(self.session, explained)
            step["part"]["matches"] = matched_nodes(explained)
        if not self.steps:
            step["part"] |= {"metrics": METRICS, "paints": PAINTS}
        # A copy, as the data go on to change.
        self.steps.append(json.loads(json.dumps(step)))

    def _rest(self, number: int) -> Iterator[int]:
        part = 0
        while not self.graphs.data.fill(number):
            yield (part := part + 1)
        yield part + 1

    def _add_overlays(self) -> None:
        for overlay in self._overlays():
            self.graphs.data.add_overlay(self.graphs.alone(2), overlay)

    def _add_last_stage(self) -> None:
        data, number = self.graphs.data, self.graphs.alone(len(self.session.applied))
        if self.name in WITH_EXTRAS:
            describer = Describer(data.hierarchy(number), explain_all(self.session))
            data.add_extras(number, describer)

    def _overlays(self) -> list[Overlay]:
        names = [node.name for node in self.session.graph_module.graph.nodes]
        some = {name: i * 0.1 for i, name in enumerate(names) if i % 3}
        return [
            Overlay("sum", title="Sum", values=some, unit="s"),
            Overlay("max", title="Max", values={name: -value for name, value in some.items()}, combine="max"),
            Overlay("infinite", title="Infinite", values=some | {names[1]: float("inf")}, combine="max"),
            Overlay(
                "words",
                title="Words",
                values={name: "ab"[i // 8 % 2] for i, name in enumerate(names) if i % 5},
            ),
            Overlay(
                "both",
                title="Both",
                values={name: "word" if i % 7 == 0 else i for i, name in enumerate(names)},
            ),
            Overlay("none", title="None", values={}),
            Overlay(
                "modules", values={**some, **self._modules()}, labels=dict.fromkeys(self._modules(), "x")
            ),
        ]

    def _modules(self) -> dict[str, float]:
        """Values of every third group."""
        paths = [*self.graphs.data.hierarchy(self.graphs.alone(2)).groups]
        return {path: float(i) for i, path in enumerate(paths) if path and i % 3 == 1}

    # What Python says of it.

    def _graph(self, number: int) -> Model:
        data = self.graphs.data
        shown, hierarchy = data.shown(number), data.hierarchy(number)
        opened = _openings(hierarchy, shown.marks, data.first_view(number))
        if self.name in LARGE:
            opened = opened[1::2]
        return {
            "graph": number,
            "views": [self._view(View(hierarchy, paths), shown.marks, shown.signatures) for paths in opened],
        }

    def _pair(self) -> Model:
        stages, data = self.session.stages, self.graphs.data
        marks, signatures = changes_between(stages[0], stages[2]), CHANGES
        numbers = self.graphs.alone(2), self.graphs.alone(0)
        opened = frozenset().union(*(View.default(data.hierarchy(number)).opened for number in numbers))
        sides = []
        for number in numbers:
            hierarchy = data.hierarchy(number)
            view = View(hierarchy, opened & hierarchy.groups.keys())
            sides.append(self._view(view, marks, signatures))
        provenance = Provenance(stages[0], stages[2])
        olds = [[old.name for old in provenance.of(node)] for node in stages[2].graph.nodes]
        return {"pair": self.graphs.pair(2, 0), "sides": sides, "counterparts": olds}

    def _view(self, view: View, marks: Marks, signatures: tuple[str, ...]) -> Model:
        numbers, boxes = _numbers(view.hierarchy), make_boxes(view, marks, signatures)
        number_of = {item.id: _short(item, numbers) for item in (*view.clusters, *view.boxes)}
        # Ids are digests, which are long.
        short = re.sub(r"[gn]-[0-9a-f]{12}", lambda found: number_of[found[0]], outline(view, boxes))
        return {
            "opened": _ranges(sorted(numbers[path] for path in view.opened)),
            "boxes": " ".join(_short(box, numbers) for box in view.boxes),
            "clusters": " ".join(_short(box, numbers) for box in view.clusters),
            "edges": " ".join(
                f"{number_of[e.source.id]}-{number_of[e.target.id]}:{len(e.leaves)}" for e in view.edges
            ),
            "chips": {
                number_of[reader]: " ".join(f"{c.source.start}:{number_of[c.box.id]}:{c.end}" for c in chips)
                for reader, chips in view.chips.items()
            },
            "lines": [self._lines(view, by) for by in STYLES] if self.name not in LARGE else [],
            "outline": _ranges(self.lines.setdefault(line, len(self.lines)) for line in short.split("\n")),
        }

    @staticmethod
    def _lines(view: View, by: str) -> str:
        """Return the colour and the thickness of each line, and what they mean."""
        styles = LineStyles(view, by)
        looks = [styles.look(edge) for edge in view.edges]
        legend = [] if styles.legend is None else [styles.legend.title, *(w for _, w in styles.legend.kinds)]
        drawn = [f"{look.colour or ''}:{look.thickness or 0:.1f}" for look in looks]
        return " ".join([*drawn, *legend])

    def _overlay(self, overlay: Overlay) -> Model:
        hierarchy = self.graphs.data.hierarchy(self.graphs.alone(2))
        values = {}
        for opened in (frozenset(), frozenset(hierarchy.groups) - {""}):
            view = View(hierarchy, opened)
            found = values_of(view, overlay)
            for item in (*view.clusters, *view.boxes):
                if isinstance(item, Group) or len(item.names) > 1:
                    values[item.id] = graph_data.to_json(found.get(item.id))
        owners = {leaf.name: module_alone(leaf, hierarchy) for leaf in hierarchy.leaves}
        nodes = (node.name for node in self.session.graph_module.graph.nodes)
        found_of = (overlay.of((name,), owners.get(name, "")) for name in nodes)
        of_nodes = overlay.combined(value for value in found_of if value is not None)
        total = values_of_groups(hierarchy, overlay).get("", of_nodes)
        return {"name": overlay.name, "values": values, "total": graph_data.to_json(total)}

    def _walks(self, hierarchy: Hierarchy, marks: Marks) -> Model:
        """What is open after a group is opened in the overview, and after it is closed where all are open.

        Also, what is opened for nodes that passes have changed.
        """
        numbers, overview = _numbers(hierarchy), View.default(hierarchy)
        everything = View(hierarchy, frozenset(numbers) - {""})

        def said(view: View) -> str:
            return _ranges(sorted(numbers[path] for path in view.opened))

        walks = [[said(overview.open(path)), said(everything.close(path))] for path in numbers if path]
        closed = [said(View(hierarchy).open(path)) for path in numbers if path]
        revealed = [said(overview.reveal(marks)), said(View(hierarchy).reveal(marks))]
        return {"overview": said(overview), "walks": walks, "closed": closed, "revealed": revealed}


def _openings(hierarchy: Hierarchy, marks: Mapping[str, Any], first: View) -> list[frozenset[str]]:
    paths = [path for path in _numbers(hierarchy) if path]
    return [
        frozenset(),
        View.default(hierarchy).opened,
        first.opened,
        frozenset(paths[::2]),
        View(hierarchy).reveal([name for name in marks if name in hierarchy.position_of]).opened,
        frozenset(paths),
    ]


def _numbers(hierarchy: Hierarchy) -> dict[str, int]:
    """Return the groups by path, numbered from the root in the order of the tree."""
    numbers: dict[str, int] = {}

    def walk(group: Group) -> None:
        numbers[group.path] = len(numbers)
        for child in group.children:
            if isinstance(child, Group):
                walk(child)

    walk(hierarchy.root)
    return numbers


def _short(item: Group | Leaf, numbers: Mapping[str, int]) -> str:
    return f"g{numbers[item.path]}" if isinstance(item, Group) else str(item.start)


def _ranges(numbers: Iterable[int]) -> str:
    """Write numbers, those that follow one another as in ``3-7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _written(made: Model) -> str:
    """Write a line for each vector, so that a change shows which are others."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    parts = []
    for name, value in made.items():
        text = "[\n" + ",\n".join(map(line, value)) + "\n]" if isinstance(value, list) else line(value)
        parts.append(f"{line(name)}:{text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def numbers() -> str:
    """Return numbers, and how Python writes them, as they are written in a file."""
    digits = (0.0, 1.0, 7.851, 0.125, 1.0625, 9.9995, 0.0099995, 4.5e-9, 7.9, 123.45, 9_999.4, 9_999.6)
    huge = (10_000.0, 12_345.678, 99_950.0, 12_345_678.0, 3e12, 2.5e15, 1e300, 5e-324)
    finite = [*digits, *(-value for value in digits), *huge]
    sizes = [0.0, 1.0, 1_023.0, 1_024.0, 1_536.0, 5 * 2.0**30, 3 * 2.0**43]
    rows = [
        [value, unit, with_unit(value, unit)]
        for unit in ("", "s")
        for value in finite
        if unit == "" or value >= 0
    ]
    rows += [[value, "B", with_unit(value, "B")] for value in sizes]
    rows += [[value, "%", percent(value)] for value in (0.0, 0.25, 0.0625, 0.9995, 1.0, 0.12345)]
    return _written({"numbers": rows})


def main() -> None:
    """Write the files of all models, and that of numbers."""
    (FOLDER / "numbers.json").write_text(numbers(), encoding="utf-8")
    for name in MODELS:
        (FOLDER / f"{name}.json").write_text(vectors(name), encoding="utf-8")


if __name__ == "__main__":
    main()
