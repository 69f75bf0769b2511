"""The result of a rendering: an SVG, and the node or group that each of its boxes shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BoxKind = Literal["op", "group", "repeat", "placeholder", "output", "chip", "cluster"]


@dataclass(frozen=True, slots=True)
class BoxInfo:
    """A box, a cluster or a chip; the SVG element of boxes and clusters has the ``id`` :attr:`id`.

    A group has the same id closed (``kind`` ``"group"`` or ``"repeat"``) and opened (``"cluster"``). A chip
    is in the element of the box that reads it. All texts are the model's own, complete and unescaped.
    """

    id: str
    kind: BoxKind
    label: str
    """The title: a node's or a group's short name, a chip's source node."""
    path: str
    """A group's own path (what ``View.open`` takes); of an op or a chip, the path of its group."""
    nodes: tuple[str, ...]
    """Names of the nodes drawn by this element; of a chip, the one node it refers to."""
    details: tuple[str, ...] = ()
    """The lines below the title: class or target, shape and dtype, counts."""
    openable: bool = False
    """Whether ``View.open(path)`` shows more."""
    changed: int = 0
    """How many of :attr:`nodes` carry a mark."""
    marks: tuple[int, ...] = ()
    """Indices into :attr:`Picture.signatures` of the marks of :attr:`nodes`."""
    refers_to: str = ""
    """Of a chip: the id of the box in which its value is made."""
    belongs_to: str = ""
    """Of a chip: the id of the box that reads it."""


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """All values that flow from one box to another; the SVG element's ``id`` is :attr:`id`."""

    id: str
    source: str
    target: str
    nodes: tuple[str, ...]
    """Names of the nodes whose values flow here."""
    label: str = ""
    """Shapes of the values when they are few."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A view, laid out."""

    svg: str
    boxes: Mapping[str, BoxInfo]
    """Box id -> what it stands for, clusters and chips included."""
    edges: Mapping[str, EdgeInfo]
    signatures: tuple[str, ...] = ()
    """The marks shown: index ``i`` is the CSS class ``fx-mark-i``."""
    width: float = 0.0
    """Width of the picture in CSS pixels."""
    height: float = 0.0
