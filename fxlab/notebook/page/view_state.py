"""The view of the page on the graph, set by Python or chosen by a person."""

from __future__ import annotations

from typing import Any

NOTHING, BELOW, ORIGINAL = "", "below", "original"

Comparison = str | int
"""What a stage is compared with: :data:`NOTHING`, :data:`BELOW` (whichever that is), or the number of one."""

MOST_PANES = 6
"""Graphs that can be read on one screen."""

LONGEST = 20_000
MOST_OPENED = 100_000

AT_FIRST: dict[str, Any] = {
    "stage": None,
    "compared": NOTHING,
    "beside": False,
    "between": [],
    "opened": None,
    "query": "",
    "overlay": "",
    "selected": None,
    "direction": "down",
    "shapes": False,
    "bookkeeping": False,
}
"""The last stage, its overview, and nothing selected.

``between`` has the numbers of stages whose graphs stand between the two that are shown side by side, and
``selected`` the pane: 0 is the stage that is shown, and those beside it follow from the left. ``opened`` has
the paths of the groups that are open; ``None`` leaves them to the page. Lines lead down or to the right, and
say the shapes of what flows along them if ``shapes`` is set. With ``bookkeeping``, the page also opens the
boxes of nodes that only serve others.
"""


def checked_view(value: object) -> dict[str, Any]:
    """Return a view that may come from anywhere; raises ``ValueError`` for what is none."""
    if not isinstance(value, dict) or value.keys() != AT_FIRST.keys():
        raise ValueError(f"A view is an object with {', '.join(AT_FIRST)}.")
    selected, opened, between = value["selected"], value["opened"], value["between"]
    right = {
        "stage": value["stage"] is None or _is_number(value["stage"]),
        "compared": value["compared"] in (NOTHING, BELOW) or _is_number(value["compared"]),
        "beside": isinstance(value["beside"], bool),
        "between": isinstance(between, list)
        and len(between) <= MOST_PANES - 2
        and all(map(_is_number, between)),
        "opened": opened is None
        or (isinstance(opened, list) and len(opened) <= MOST_OPENED and all(map(_is_text, opened))),
        "query": _is_text(value["query"]),
        "overlay": _is_text(value["overlay"]),
        "selected": selected is None
        or (
            isinstance(selected, dict)
            and selected.keys() == {"kind", "name", "pane"}
            and selected["kind"] in ("node", "group")
            and _is_text(selected["name"])
            and _is_number(selected["pane"])
        ),
        "direction": value["direction"] in ("down", "right"),
        "shapes": isinstance(value["shapes"], bool),
        "bookkeeping": isinstance(value["bookkeeping"], bool),
    }
    wrong = [name for name, is_right in right.items() if not is_right]
    if wrong:
        raise ValueError(f"The view has a wrong {wrong[0]}.")
    return value


def checked_comparison(number: int, compared: object) -> Comparison:
    """Return what a stage is to be compared with; raises ``ValueError`` if it cannot be."""
    if compared in (NOTHING, None):
        return NOTHING
    if number and compared == BELOW:
        return BELOW
    if number and compared == ORIGINAL:
        return 0
    if isinstance(compared, int) and _is_number(compared) and compared < number:
        return compared
    earlier = ", ".join(map(str, range(number)))
    offered = f'"below", "original" or the number of an earlier stage: {earlier}' if number else "nothing"
    raise ValueError(f"Stage {number} cannot be compared with {compared!r}, but with {offered}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
