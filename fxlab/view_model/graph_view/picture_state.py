"""A picture as the page receives it: as large as what is shown, not as the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fxlab.drawing import BoxInfo, Picture
from fxlab.view_model.wire import clip


def picture_state(
    picture: Picture, box_of: Mapping[str, str], matches: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Describe a picture.

    Parameters
    ----------
    picture
        The laid out view.
    box_of
        Node name -> id of the box that draws it.
    matches
        Signature of a pass -> names of the nodes that it would change.
    """
    return {
        "svg": picture.svg,
        "width": picture.width,
        "height": picture.height,
        "boxes": {box.id: _box_state(box) for box in picture.boxes.values()},
        "edges": {
            edge.id: {"source": edge.source, "target": edge.target, "label": clip(edge.label, 200)}
            for edge in picture.edges.values()
        },
        "signatures": list(picture.signatures),
        "matches": {
            signature: dict(Counter(box_of[name] for name in names if name in box_of))
            for signature, names in matches.items()
        },
    }


def _box_state(box: BoxInfo) -> dict[str, Any]:
    is_node = box.kind in ("op", "placeholder", "output", "chip")
    return {
        "kind": box.kind,
        "label": clip(box.label, 400),
        "path": box.path,
        "node": box.nodes[0] if is_node and box.nodes else None,
        "count": len(box.nodes),
        "details": [clip(line, 400) for line in box.details],
        "openable": box.openable,
        "changed": box.changed,
        "marks": list(box.marks),
        "refersTo": box.refers_to,
        "belongsTo": box.belongs_to,
    }
