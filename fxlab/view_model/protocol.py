"""The types of all data that a page receives, from which those of the page are generated.

``frontend/make_protocol.py`` turns these types, and the messages that are marked with ``answers`` in
``fxlab/notebook``, into ``frontend/src/base/wire.ts``. A key that one side alone renames is a type error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

# Tables.

Cell: TypeAlias = "bool | float | str | list[Cell] | None"
ColumnKind: TypeAlias = Literal[
    "text", "number", "integer", "bool", "shape", "nodes", "error", "share", "seconds", "bytes",
]  # fmt: skip
Progress: TypeAlias = Literal["none", "pending", "ready", "failed"]
"""Nobody has asked for it, it is on its way, there, or it will not come."""


class Column(TypedDict):
    name: str
    title: str
    kind: ColumnKind


class ChartKind(TypedDict):
    title: str
    values: list[float]


class Chart(TypedDict):
    """Bytes by kind, stacked, at nodes in their order."""

    names: list[str]
    kinds: list[ChartKind]
    before: float | None
    """The largest sum before passes were applied."""


class Table(TypedDict):
    columns: list[Column]
    rows: list[list[Cell]]
    total: int
    unlinked: NotRequired[list[str]]
    """The first cells of rows that lead nowhere."""
    leads: NotRequired[Literal["stages", "batches"]]
    stages: NotRequired[dict[str, int]]
    """First cell of a row -> the number of the stage that it leads to."""
    numbers: NotRequired[dict[str, int]]
    """First cell of a row -> the number of the batch that it leads to."""
    chart: NotRequired[Chart]


class Outputs(TypedDict):
    state: Progress
    text: str
    """The verdict in a sentence, with what was compared; or why there is none."""
    table: Table | None
    agrees: NotRequired[bool | None]
    """Of the verdict; null as long as there is none, and where nothing could be compared."""
    canJudge: NotRequired[bool]
    """There is no verdict yet, and a kernel to ask for it."""


class ChangedNodes(TypedDict):
    text: str
    table: Table


class ExtraTable(TypedDict):
    name: str
    title: str
    text: str
    table: Table | None
    jumps: bool
    """Whether the first column names nodes."""


class Tables(TypedDict):
    outputs: Outputs
    nodes: ChangedNodes
    more: NotRequired[list[ExtraTable]]


class Measured(TypedDict):
    """A table that is made on demand."""

    name: str
    title: str
    action: str
    state: Progress
    text: str
    table: Table | None


# Passes.


class Reason(TypedDict):
    reason: str
    kind: Literal["matched", "excluded", "refused"]
    what: str
    """The nodes by their kinds: "36 linears"."""
    count: int
    nodes: list[str]


class Argument(TypedDict):
    name: str
    value: str


class Stretch(TypedDict):
    """Part of a traceback: words and frames of the author, or how many frames of others are hidden."""

    hides: int
    text: str


class PassError(TypedDict):
    """An exception of a pass."""

    text: str
    place: str
    """The place of the author's line of code, short and with its folders, and its text; empty without."""
    file: str
    code: str
    node: str
    """The node that this line had at hand, and the number of its stage; empty if it is unknown."""
    stage: int
    traceback: list[Stretch]
    """Outermost first."""


class Pass(TypedDict):
    key: str
    """Its name as long as it is offered; its signature changes with its exclusions."""
    signature: str
    name: str
    className: str
    description: str
    arguments: list[Argument]
    preserves: bool
    on: bool
    stage: int | None
    """The number of its stage, which is its number wherever it is shown; null while it is off."""
    changes: str
    """Its changes in a sentence; empty while it is off."""
    canExclude: bool
    """Whether single candidates of it can be excluded."""
    excluded: int
    """The number of candidates that a person has excluded."""
    steps: int
    """The number of its rewrites and exclusions that can be looked at one by one; 0 while it is off."""
    isLooking: bool
    """It has not been asked for its candidates yet."""
    candidates: str
    """Its candidates: "12 candidates: 36 linears"; empty if there are none, or it does not say."""
    matched: int | None
    """Their number; null if it does not say."""
    refused: int | None
    reasons: list[Reason]
    note: str
    error: PassError | None


class Passes(TypedDict):
    passes: list[Pass]
    canUndo: bool
    canRedo: bool
    code: NotRequired[str]
    """Python code that makes the stack again."""
    fixed: NotRequired[bool]
    """Nothing can be switched: there is no kernel."""
    made: NotRequired[list[str]]
    """Date and versions of a report, in lines to read."""


# Nodes that are lit up in the graph, and the words about them.

Role: TypeAlias = Literal["picked", "fits", "passed", "misfit"]
"""The part of a node in a rewrite, a selection or a match of a pattern; passed nodes compute nothing."""


class ShownRewrite(TypedDict):
    """One rewrite of a pass that is on, or a candidate that is excluded."""

    number: int
    """From 1."""
    total: int
    stage: int
    before: list[str]
    """Lines of nodes that were changed or erased."""
    after: list[str]
    modules: list[str]
    roles: dict[str, Role]
    node: str
    """The node by which it is excluded, or included again."""
    isExcluded: bool


class ShownNearMiss(TypedDict):
    """A place at which a pass does not apply, and how far it comes there."""

    words: str
    stage: int
    node: str
    """The node to look at."""
    roles: dict[str, Role]


# Details of the selection.


class Field(TypedDict):
    label: str
    value: str
    code: bool


class TextToken(TypedDict):
    text: str


class NodeToken(TypedDict):
    node: str


Token: TypeAlias = TextToken | NodeToken


class NodeArgument(TypedDict):
    label: str
    tokens: list[Token]


class HeldTensor(TypedDict):
    name: str
    shape: str
    dtype: str
    elements: int
    kind: str


class Candidate(TypedDict):
    signature: str
    matched: bool
    reason: str


class Rewrite(TypedDict):
    """An action on a node alone: exclude a rewrite, or include it again."""

    signature: str
    count: int
    """The number of rewrites that the node stands for."""
    isExcluded: bool


class Content(TypedDict):
    name: str
    count: int


class Extra(TypedDict):
    """Facts about a node or a group that the page does not know by itself."""

    fields: list[Field]
    arguments: NotRequired[list[NodeArgument]]
    parameters: NotRequired[list[HeldTensor]]
    candidates: NotRequired[list[Candidate]]
    rewrites: NotRequired[list[Rewrite]]
    contents: NotRequired[list[Content]]


class ModelDetails(TypedDict):
    title: str
    fields: list[Field]
    inputs: list[str]
    contents: list[Content]
    trace: list[str]


# Graphs.


class ExcerptLine(TypedDict):
    line: int
    text: str


class SourceFrame(TypedDict):
    file: str
    line: int
    function: str
    code: str
    excerpt: list[ExcerptLine]


Word: TypeAlias = tuple[str, float, bool]
"""A text, its width, and whether that is known: nothing may be squeezed into a guess."""
FactRow: TypeAlias = tuple[
    int, int, int, int, int, int, list[int], list[int], list[int], list[int], int, int
]  # fmt: skip
"""Numbers of texts: name, op, target, module, owner, classes, values, frames, inputs, marks, and arguments.

Before the last is the number of elements.
"""
WrittenLeaf: TypeAlias = tuple[str, *tuple[int, ...]]
"""A node that is drawn: its id, its facts, and those of the nodes that are drawn with it."""
BoxKind: TypeAlias = Literal["op", "group", "repeat", "placeholder", "output", "chip", "cluster"]


class Look(TypedDict):
    """A box as it looks in every view."""

    kind: BoxKind
    label: str
    details: Sequence[str]
    classes: str
    title: Word
    lines: list[Word]
    badge: Word | None
    width: float
    height: float
    colours: tuple[str, str]
    """Fill and border."""
    openable: bool
    changed: int
    marks: Sequence[int]
    result: NotRequired[str]
    """Of a node: shape and dtype of its result."""


class GroupData(TypedDict):
    path: str
    id: str
    kind: Literal["root", "module", "repeat", "segment", "bookkeeping"]
    """A call of a module, a run of equal ones, a stretch of a long list, or nodes that only serve others."""
    label: str
    className: str
    closed: int
    opened: int
    count: int
    """The number of nodes in it; ``size`` is that of leaves."""
    size: int
    children: list[int | tuple[int, int]] | None
    """Groups by their numbers; nodes that are drawn, each with its look; null before they arrive."""
    graph: NotRequired[int]
    """Of a group whose children have not arrived."""


class GraphExtras(TypedDict):
    nodes: list[int]
    groups: dict[str, int]


class WrittenColumns(TypedDict):
    """The columns of a training step."""

    of: Sequence[int]
    """The column of each child of the root, from left to right; the output has one more than there are."""
    headings: list[Word]
    told: list[int]
    """Edges that are words on a box, as steps."""


class WrittenGraph(TypedDict):
    tree: int
    """The number of the outermost group."""
    order: list[int]
    """Positions in the graph of the nodes in the order of the tree; each as a step from the one before."""
    sources: list[int]
    """Positions of the leaves that each edge joins, as steps."""
    targets: list[int]
    asides: list[int]
    """Edges that carry no data, but sizes, or values to check; as steps."""
    chips: dict[int, Word]
    """Position of a leaf -> its words as a chip, their width, and whether it is known."""
    overview: list[str]
    opened: list[str]
    model: ModelDetails
    signatures: Sequence[str]
    columns: NotRequired[WrittenColumns]
    extras: NotRequired[GraphExtras]
    """In a report: the place of the kernel's answers about nodes, in their order, and groups."""


class WrittenPair(TypedDict):
    """Facts about two graphs side by side that neither has alone."""

    after: int
    before: int
    signatures: Sequence[str]
    looks: tuple[dict[int, int], dict[int, int]]
    """Of each: place in its tree -> the look of a box with the marks of the two."""
    counterparts: dict[int, list[int]]
    """Position of a node -> those of its counterparts side by side, if not only the one of its name."""


class OverlayData(TypedDict):
    """Values in the order of the nodes of a graph."""

    graph: int
    name: str
    title: str
    unit: str
    combine: Literal["sum", "max"]
    numeric: bool
    isText: NotRequired[bool]
    """Its values are written on boxes, and colour none."""
    values: list[Cell]
    groups: NotRequired[dict[str, Cell]]
    """Of groups, by path, where modules have values of their own."""
    labels: NotRequired[dict[str, str]]
    """Words that are written on boxes."""


class OverlayName(TypedDict):
    name: str
    title: str


WrittenLine: TypeAlias = tuple[str, *tuple[int, ...]]
"""A line: its text, and the numbers of the names of its nodes."""
CodeChange: TypeAlias = Literal["same", "changed", "removed", "added"]
"""The fate of a line; lines that have changed are pairs."""


class WrittenCode(TypedDict):
    ranges: list[int]
    """The beginning of each range of lines, and its length."""
    linked: bool
    """Whether torch has told which nodes lines are of."""


class WrittenDifference(TypedDict):
    before: int
    after: int
    runs: list[tuple[CodeChange, int]]


class Remark(TypedDict):
    what: str
    place: str
    """File and line of the model's code, and its text; empty where there is none."""
    code: str
    means: str
    advice: str


class Remarks(TypedDict):
    """Limits of the graph: it may not be the whole model."""

    about: str
    """One sentence for all of them."""
    remarks: list[Remark]


class Metrics(TypedDict):
    """Sizes and colours for placing and drawing boxes."""

    font: str
    titleSize: float
    lineSize: float
    chipSize: float
    titleHeight: float
    lineHeight: float
    chipHeight: float
    paddingX: float
    paddingY: float
    toggleRoom: float
    chipGap: float
    chipPadding: float
    chipRowsGap: float
    more: tuple[float, float]
    """Width of "and  more", and of a digit between."""
    chipsPerRow: int
    mostChips: int
    chipReaders: int
    parts: tuple[int, int, int, int]
    """Most boxes of a picture in one column; fewest, wanted and most of one of several columns."""
    arrow: float
    """Width of the arrow before the name of a reader in another column."""
    revealBudget: int
    sheet: float
    ink: str
    softInk: str
    edge: str
    groupInk: str
    changed: str
    changedCluster: str
    chipInk: str
    chipColours: tuple[str, str]
    clusterColours: list[tuple[str, str]]


class Paints(TypedDict):
    """The colours in which overlays are saved: those of paper, fill and border, also on a dark page."""

    heat: tuple[str, str]
    heatLine: str
    plain: tuple[str, str]
    kinds: list[tuple[str, str]]
    changed: str
    ink: str


class DataPart(TypedDict):
    """The additions to the graphs since the part before; see ``fxlab/view_model/graph_data``."""

    texts: list[str]
    facts: list[FactRow]
    frames: list[SourceFrame]
    looks: list[Any]
    """Looks; one that is like an earlier one has its number as ``like``, and its differences."""
    extras: list[Extra]
    trees: list[GroupData]
    leaves: list[WrittenLeaf]
    graphs: list[WrittenGraph]
    pairs: list[WrittenPair]
    overlays: list[OverlayData]
    codeLines: list[WrittenLine]
    codes: list[WrittenCode]
    codeDifferences: list[WrittenDifference]
    filled: list[tuple[int, int, int]]
    """Groups that have arrived: of which graph, the number of the group that stood for it, its own number."""
    layouts: dict[str, str]
    """Layouts that are made already: DOT -> SVG."""
    metrics: NotRequired[Metrics]
    """The first part has these."""
    paints: NotRequired[Paints]
    remarks: NotRequired[Remarks]
    matches: NotRequired[Mapping[str, list[str]]]
    """Signature of a pass -> names of the nodes of the last stage that it would change."""


class ShownPreview(TypedDict):
    """The pass that is tried out, and the graph that it would make of the last stage."""

    signature: str
    name: str
    text: str
    graph: int
    code: NotRequired[int]
    difference: NotRequired[int]


class StagesKnown(TypedDict):
    """The stages of the session, and the numbers of the graphs that have arrived."""

    names: list[str]
    changes: list[str]
    """The changes of the pass of each; empty if there are none."""
    version: int
    """Another one after each change of the session."""
    alone: dict[str, int]
    """By the number of the stage."""
    merged: dict[str, int]
    """By the number of the stage and that of the one that it is compared with, as in `2/1`."""
    pairs: dict[str, int]
    codes: dict[str, int]
    """The numbers of the codes that have arrived, and of their differences."""
    codeDifferences: dict[str, int]
    preview: ShownPreview | None


class Busy(TypedDict):
    text: str
    background: bool
    """Whether passes can be switched meanwhile."""


class StatusError(TypedDict):
    number: int
    title: str
    text: str


class Status(TypedDict):
    busy: Busy | None
    error: StatusError | None


# A person's choices, which the page sets too.


class Selected(TypedDict):
    kind: Literal["node", "group"]
    name: str
    pane: int
    """0 is the stage that is shown, and those beside it follow from the left."""


class Arrangement(TypedDict):
    """The arrangement of boxes, and the words on lines."""

    direction: Literal["down", "right"]
    """Where lines lead."""
    shapes: bool
    """Whether lines show the shapes of the tensors along them."""
    lines: Literal["alike", "dtype", "bytes"]
    """The property that lines are drawn by."""
    bookkeeping: bool
    """Whether nodes that only serve others are shown one by one."""


class ViewState(Arrangement):
    """The view of the graph; a script may change it."""

    stage: int | None
    """Number of the stage; null for the last one, whichever that is."""
    compared: Literal["", "below"] | int
    """The stage it is compared with: none, the stage below, or the stage of a number."""
    beside: bool
    between: list[int]
    """Numbers of stages whose graphs stand between the two that are side by side."""
    opened: list[str] | None
    """Paths of the groups that are open; null leaves them to the page."""
    query: str
    overlay: str
    selected: Selected | None


Standing: TypeAlias = Literal["auto", "open", "folded"]
"""Of a panel; "auto" opens it while there is something in it to show."""


class PanelState(TypedDict):
    """Panels as a person has arranged them; sizes are in pixels, null as at first."""

    passes: Standing
    details: Standing
    tables: Standing
    left: float | None
    right: float | None
    bottom: float | None


# Values of a node.

TensorKind: TypeAlias = Literal["value", "original", "difference", "weight"]


class TensorInfo(TypedDict):
    kind: TensorKind
    name: str
    shape: list[int]
    dtype: str


class InputChoice(TypedDict):
    name: str
    title: str


class InputChoices(TypedDict):
    """The inputs that a value can be looked at on."""

    chosen: str
    """The name of those that it is of; empty for the session's."""
    choices: list[InputChoice]
    batches: int
    """The number of batches of the session's data, which "batch 0", "batch 1" and so on ask for."""


class NodeValue(TypedDict):
    compared: str
    """The title of the stage that "original" is the value of."""
    at: str
    """The title of the stage that the values are of, if it is not the one that is shown."""
    notes: list[str]
    """Missing parts, and the reasons."""
    inputs: InputChoices | None
    """Null where there is no kernel to ask for others."""
    firstNan: str | None
    """The first nodes upstream that hold NaN and infinite elements."""
    firstInf: str | None
    tensors: list[TensorInfo]
    total: int
    """The number of all; only the first are described."""


class TensorStatistics(TypedDict):
    """Numbers that JSON cannot hold are texts."""

    tensor: int
    """Its place among the tensors of the node."""
    min: Cell
    max: Cell
    mean: Cell
    std: Cell
    zeros: Cell
    nan: int
    inf: int
    negativeInf: int
    firstNonFinite: list[int] | None


class Cells(TypedDict):
    size: tuple[int, int]
    """The number of cells of each map in either direction."""
    numbers: Literal["f4", "f8"]
    """Of four or eight bytes, in base64."""
    cells: str


class SmallCells(Cells):
    """Maps of the same two dimensions, smaller, at indices in one of the others; one after another."""

    dimension: int
    first: int
    """The first index, and how many there are."""
    count: int


class TensorMap(Cells):
    """Two dimensions of a tensor; a cell stands for a block of elements."""

    rows: int | None
    columns: int | None
    index: list[int | None]
    """The index in each dimension; null in those that are shown."""
    shape: tuple[int, int]
    block: tuple[int, int]
    small: SmallCells | None


class Histogram(TypedDict):
    edges: list[float]
    counts: list[int]


class ValuePart(TypedDict):
    """One tensor, and the statistics of those that it is compared with."""

    tensor: int
    statistics: list[TensorStatistics]
    histogram: Histogram
    map: TensorMap


class ValueAnswer(TypedDict):
    """Values of a node, or a part of them."""

    state: Literal["ready", "failed", "cancelled"]
    text: NotRequired[str]
    """Why they are not there."""
    value: NotRequired[NodeValue]
    part: NotRequired[ValuePart]


class WrittenValue(TypedDict):
    value: NodeValue
    parts: list[ValuePart]


class WrittenValues(TypedDict):
    """The values in a report: those of the nodes that passes have changed."""

    text: str
    """A sentence on which nodes those are, and how many were left out."""
    graphs: list[int]
    """The numbers of the graphs whose nodes they are."""
    nodes: dict[str, WrittenValue]


# Reports.


class WrittenReport(TypedDict):
    """The data of a session in a report."""

    data: DataPart
    stages: StagesKnown
    passes: Passes
    tables: Tables
    values: NotRequired[WrittenValues | None]
    """If they were asked for."""
    colours: NotRequired[str]
    """The overlay that is shown at first."""
    row: NotRequired[list[int]]
    """The stages that stand side by side at first."""


class WrittenRow(TypedDict):
    """A session in the list of a report on several."""

    name: str
    model: str
    stages: int
    nodesBefore: int
    nodesAfter: int
    verdict: str
    agrees: bool | None
    """Null where nothing was compared."""
    reason: str
    ended: Remark | None
    """The reason for its end; null where the code ends."""


class WrittenContents(TypedDict):
    """The first page of a report on several sessions."""

    title: str
    notes: list[str]
    remarks: list[str]
    graphs: list[WrittenRow]
    made: str
