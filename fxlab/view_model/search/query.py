"""Read a query: words, and terms such as ``op:call_module``, all of which must hold.

The twin of ``frontend/src/viewer/search/query.ts``. Reading never depends on a graph; what a term finds is in
:mod:`fxlab.view_model.search.node_index`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIELDS = {
    "name": "name:attention",
    "op": "op:call_module",
    "target": "target:linear",
    "module": "module:encoder.layer.0",
    "class": "class:Linear",
    "shape": "shape:2x12",
    "dtype": "dtype:float32",
    "source": "source:model.py:120",
    "by": "by:merge-linears",
    "inputs": "inputs:output",
    "users": "users:input_ids",
    "path": "path:input_ids..output",
}
"""What can be asked for, each with an example."""
MOST_TERMS = 50
LONGEST_QUOTE = 60

_SPACE = " \t\n\r\f\v\u00a0"
"""What stands between terms; Python and browsers do not agree on what ``\\s`` is."""
_TERM = re.compile(rf'(-?)(?:([A-Za-z_]+):(?!:))?("[^"]*"?|\([^)]*\)?|\[[^\]]*\]?|[^{_SPACE}]*)[{_SPACE}]*')


class QueryError(ValueError):
    """A query that cannot be answered; its message is a line for who wrote it."""


@dataclass(frozen=True)
class Term:
    """One condition on a node."""

    field: str
    """One of :data:`FIELDS`; empty for a bare word."""
    value: str
    """What is looked for, as it was written."""
    negated: bool = False


def parse_query(text: str) -> list[Term]:
    """Return the terms of a query.

    Values with spaces stand in quotes, lists of sizes in brackets. A leading ``-`` negates a term.

    Raises
    ------
    QueryError
        If there is no such field, a field has no value, or there are too many terms.

    Examples
    --------
    >>> parse_query('attention -op:get_attr shape:(2, 12)')[1:]
    [Term(field='op', value='get_attr', negated=True), Term(field='shape', value='(2, 12)', negated=False)]
    """
    terms: dict[Term, None] = {}
    for minus, field, value in _TERM.findall(text.strip(_SPACE)):
        field, word = field.lower(), value.strip('"')
        if field and field not in FIELDS:
            raise QueryError(f"There is no field {quoted(field)}. Fields are {', '.join(FIELDS)}.")
        if field and not word:
            raise QueryError(f"{field}: needs a value, such as {FIELDS[field]}")
        if minus and not field and not value:
            minus, word = "", "-"
        if word:
            terms[Term(field, word, bool(minus))] = None
    if len(terms) > MOST_TERMS:
        raise QueryError(f"A query has at most {MOST_TERMS} terms.")
    return list(terms)


def quoted(text: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return f'"{text}"' if len(text) <= LONGEST_QUOTE else f'"{text[:LONGEST_QUOTE]}…"'
