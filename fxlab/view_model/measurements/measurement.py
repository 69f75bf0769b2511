"""What a table that is made on demand says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


@dataclass(frozen=True)
class Measurement:
    """A table that is made when somebody asks for it."""

    name: str
    """What messages call it."""
    title: str
    """What its tab is called."""
    about: str
    """What it tells, for who has not asked for it yet."""
    action: str
    """What to press for it."""
    busy: str
    """What is going on while it is made."""
    index_title: str
    """What the rows are: the title of the first column. Those that are nodes of the graph lead there."""
    make: Callable[[Session], tuple[pd.DataFrame, str]]
    """Makes the table, and a line that says what it means."""
    of_stages: bool = False
    """Whether the rows are the stages, and lead there."""

    def not_made(self) -> dict[str, Any]:
        """Describe the table to who has not asked for it yet."""
        return {
            "name": self.name,
            "title": self.title,
            "action": self.action,
            "state": "none",
            "text": self.about,
            "table": None,
        }
