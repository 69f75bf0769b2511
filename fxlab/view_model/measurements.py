"""Tables that pages and reports ask for, and that take a while: each an entry of :data:`MEASUREMENTS`."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import fxlab.validation as validation
from fxlab.base.first_use import pd
from fxlab.base.units import percent, with_unit
from fxlab.base.words import counted
from fxlab.graphs.graph_diff import graph_diff
from fxlab.models.parallel.collectives import exchanges_anything
from fxlab.view_model.protocol import Chart, Measured, Table
from fxlab.view_model.session_state import stage_names
from fxlab.view_model.table_state import BEFORE, MEMORY, memory_chart, table_state

if TYPE_CHECKING:
    from fxlab.session import Session

    Made = tuple[pd.DataFrame, str]
    """A table, and a line that explains it."""


@dataclass(frozen=True)
class Measurement:
    """A table that is made on demand."""

    name: str
    """Its name in messages."""
    title: str
    """The title of its tab."""
    about: str
    """Its contents, in words, before it is made."""
    action: str
    """The label of the button that makes it."""
    busy: str
    """The words for its progress."""
    index_title: str
    """The title of the first column. Rows that are nodes of the graph lead there."""
    make: Callable[[Session], Made]
    leads: Literal["nodes", "stages", "batches"] = "nodes"
    """Where rows lead: to ``nodes``, to ``stages``, which they are, or to ``batches``."""
    is_made_of: Callable[[Session], bool] = lambda session: True
    """Tells whether a session has such a table."""
    chart: Callable[[pd.DataFrame], Chart] | None = None
    """Makes the chart above the table, of the table."""

    def not_made(self) -> Measured:
        """Describe the table before it is made."""
        return {
            "name": self.name,
            "title": self.title,
            "action": self.action,
            "state": "none",
            "text": self.about,
            "table": None,
        }

    def table(self, frame: pd.DataFrame, nodes: Container[str]) -> Table:
        """Describe the table that was made; ``nodes`` are the names in the present graph."""
        table = table_state(frame, self.index_title)
        names = [str(row[0]) for row in table["rows"]]
        if self.leads == "stages":
            table["stages"] = {name: n for n, name in enumerate(names)}
        elif self.leads == "batches":
            table["numbers"] = {name: int(name.removeprefix("batch ")) for name in names}
        elif "stages" not in table:
            table["unlinked"] = [name for name in names if name not in nodes]
        if self.leads != "nodes":
            table["leads"] = self.leads
        if self.chart is not None:
            table["chart"] = self.chart(frame)
        return table


def summary_of_stages(session: Session, *, in_float64: bool = True) -> Made:
    """Return the contents of each stage and the changes of its pass."""
    table = validation.compare_stages(session, in_float64=in_float64).set_axis(
        [f"{n}. {name}" for n, name in enumerate(stage_names(session.applied))]
    )
    notes = [note for note in dict.fromkeys(table["note"]) if note]
    if not any(table["note"]):
        table = table.drop(columns="note")
    if table["status"].isna().all() and table["max_abs_diff"].isna().all():
        return table.drop(columns=["max_abs_diff", "status", "note"], errors="ignore"), (
            f"Changes that each pass made to the stage below. Outputs are not compared: {'; '.join(notes)}."
        )
    return table, (
        "Changes that each pass made to the stage below, differences from the original's outputs, and the "
        "verdict."
    )


def _node_differences(session: Session) -> Made:
    compared = session.original, session.graph_module, session.inputs
    judged = validation.compare_nodes(*compared, judge=True)
    wrong = judged[judged["status"] == validation.Status.DIFFERENT]
    errors = ["accumulated", "introduced", "max_accumulated", "max_introduced"]
    table = judged[["status", *errors, "hidden", "original", "target", "shape"]]
    if wrong.empty:
        return table, "No node differs by more than rounding."
    return table, f"The first wrong node is {wrong.index[0]}: {wrong['reason'].iloc[0]}."


def _graph_difference(session: Session) -> Made:
    table = graph_diff(session.original, session.graph_module)
    counts = [f"{count:,} {change}" for change, count in table["change"].value_counts().items()]
    if not counts:
        return table, "The graph is identical to the original's."
    differ = "differs" if len(table) == 1 else "differ"
    return table, f"{counted(len(table), 'node')} {differ} from the original's: {', '.join(counts)}."


def _node_cost(session: Session) -> Made:
    table = validation.profile(session.graph_module, session.inputs).sort_values("time", ascending=False)
    slowest = table["share"].head(10)
    share = percent(float(slowest.sum()))
    words = f"The {len(slowest)} slowest of {len(table):,} nodes take {share} of the time."
    columns = ["time", "share", "flops", "parameters", "bytes_in", "bytes_out", "peak_memory", "target"]
    return table[columns], words


def _memory(session: Session) -> Made:
    use = validation.memory(session)
    kinds = [kind for kind in MEMORY if use.table[kind].any()]
    table = use.table[["live", *kinds, "made", "freed", "module_path"]].rename(columns=MEMORY)
    words = f"The peak is {use}."
    if session.applied:
        before = validation.memory(session.original, session.inputs).peak
        table.attrs[BEFORE] = before
        words += f" The original's is {with_unit(before, 'B')}."
    return table, words


def _collectives(session: Session) -> Made:
    table = validation.collectives(session)
    exposed = table[table["exposed"]]
    words = f"{counted(len(table), 'collective')}, {with_unit(int(table['bytes'].sum()), 'B')}"
    if not len(exposed):
        return table, f"{words}. Something is computed while each of them runs."
    share = f"{len(exposed):,} ({with_unit(int(exposed['bytes'].sum()), 'B')})"
    return table, f"{words}. Exposed, because nothing is computed meanwhile: {share}."


def _speed(session: Session) -> Made:
    table = validation.benchmark(session).table
    if len(table) == 1:
        return table, "No pass is on: this is the original's time."
    last = table.iloc[-1]
    spread = f"{last['ratio_low']:.2f} to {last['ratio_high']:.2f}"
    return table, f"{last.name}: {last['ratio']:.2f} times the original's time ({spread}), {last['outcome']}."


def _on_data(session: Session) -> Made:
    found = _evaluation(session)
    table = found.table.astype(object)
    return table.where(table.notna(), None), found.words


def _worst_batches(session: Session) -> Made:
    found = _evaluation(session)
    rows = [
        {
            "batch": f"batch {one.number}",
            "status": str(one.verdict.status),
            "looked_at": "open" if one.inputs is session.inputs else "",
            "max_abs_diff": one.max_abs_diff,
            "ratio": one.verdict.ratio,
            "output": one.output,
            "worst_index": str(one.index) if one.index else "",
            "reason": one.verdict.reason,
        }
        for one in found.worst
    ]
    shown = next((row["batch"] for row in rows if row["looked_at"]), None)
    words = (
        "A batch opens the session on it: outputs, values and comparisons are then of that batch."
        if shown is None
        else f"The session is open on {shown}. Press it again for the session's own inputs."
    )
    columns = ["batch", "status", "looked_at", "max_abs_diff", "ratio", "output", "worst_index", "reason"]
    return pd.DataFrame(rows, columns=columns).set_index("batch"), words


def _evaluation(session: Session) -> validation.Evaluation:
    """Return the known evaluation of the data, or judge the present model on it."""
    known = session._internals.evaluation
    return session.evaluate() if known is None or known.stopped else known


STAGES = Measurement(
    name="stages",
    title="Stages",
    about="Counts the rewrites of each pass, and compares the outputs of each stage with the original's.",
    action="Compare the stages",
    busy="Comparing the stages",
    index_title="Stage",
    make=summary_of_stages,
    leads="stages",
)
COLLECTIVES = Measurement(
    name="collectives",
    title="Collectives",
    about="Lists the collectives of the present graph: their groups and bytes, and what is computed while "
    "each runs. Nothing is run.",
    action="List the collectives",
    busy="Listing the collectives",
    index_title="Node",
    make=_collectives,
    is_made_of=lambda session: exchanges_anything(session.stages[0]),
)
DATA = Measurement(
    name="data",
    title="Data",
    about="Judges the present model on all batches of session.evaluate, and counts how often both decide "
    "alike.",
    action="Judge on the data",
    busy="Judging each batch",
    index_title="Measure",
    make=_on_data,
    is_made_of=lambda session: session._internals.batches is not None,
)
WORST_BATCHES = Measurement(
    name="worst-batches",
    title="Worst batches",
    about="Lists the batches on which both are furthest apart, to be looked into.",
    action="Find the worst batches",
    busy="Judging each batch",
    index_title="Batch",
    make=_worst_batches,
    leads="batches",
    is_made_of=lambda session: session._internals.batches is not None,
)
MEASUREMENTS: tuple[Measurement, ...] = (
    STAGES,
    DATA,
    WORST_BATCHES,
    Measurement(
        name="node-differences",
        title="Node differences",
        about="Runs the original and the present model side by side: how far each value has moved, and how "
        "far each node moves it by itself.",
        action="Compare the nodes",
        busy="Comparing node by node",
        index_title="Node",
        make=_node_differences,
    ),
    Measurement(
        name="graph-difference",
        title="Graph difference",
        about="Lists the nodes that were added, removed, changed or rewired since the original. Nothing is "
        "run.",
        action="Compare the graphs",
        busy="Comparing the graphs",
        index_title="Node",
        make=_graph_difference,
    ),
    Measurement(
        name="node-cost",
        title="Cost",
        about="Runs the present model node by node and takes the time, the operations and the memory of "
        "each.",
        action="Measure the cost",
        busy="Measuring each node",
        index_title="Node",
        make=_node_cost,
    ),
    Measurement(
        name="memory",
        title="Memory",
        about="Counts the bytes that are alive at each node, by what they are for. Nothing is run: shapes "
        "tell.",
        action="Count the bytes",
        busy="Counting the bytes at each node",
        index_title="Node",
        make=_memory,
        chart=memory_chart,
    ),
    COLLECTIVES,
    Measurement(
        name="speed",
        title="Speed",
        about="Times the original and each combination of the passes that are on, in turns.",
        action="Measure the speed",
        busy="Timing the model with each combination of passes",
        index_title="Passes",
        make=_speed,
    ),
)
"""In the order of their tabs."""
