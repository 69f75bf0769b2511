"""The class of tables that are attributes of results; pandas is imported with it."""

from typing import Self

import pandas as pd


class Table(pd.DataFrame):
    """A table that may be called as well: ``result.table`` and ``result.table()`` are the same."""

    def __call__(self) -> Self:
        """Return itself."""
        return self
