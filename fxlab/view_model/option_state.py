"""Options that passes of a compiler read, as switches beside the passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.view_model.protocol import Option
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session


def option_states(session: Session) -> list[Option]:
    """Describe the options of a compiler's session, those that were changed first, then those on."""
    if session.compiled is None or not session.compiled.has_options:
        return []
    table = session.compiled.options()
    states: list[Option] = [
        {
            "name": clip(str(name)),
            "on": row["value"],
            "isChanged": bool(row["value"] != row["at_first"]),
            "phases": row["phases"],
            "description": clip(row["description"], 600),
            "fixed": row["fixed"],
        }
        for name, row in table.iterrows()
        if isinstance(row["value"], bool)
    ]
    return sorted(states, key=lambda state: (not state["isChanged"], not state["on"], state["name"]))
