"""``fxlab.code_diff``: the generated Python of two graphs, line by line."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass

from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.results import Result
from fxlab.base.words import counted
from fxlab.front_desk.sources import Model, compared_graphs
from fxlab.graphs.line_diff import Run, line_runs
from fxlab.models.graph_modules.generated_code import GeneratedCode, generated_code

CONTEXT = 3
"""The number of equal lines shown around a change."""
_MOST_LINES = 2_000
"""The most lines of a difference as HTML, which a notebook keeps."""
_COLOURS = {"removed": "rgba(220, 60, 50, 0.16)", "added": "rgba(40, 160, 90, 0.16)"}


@dataclass(frozen=True, repr=False)
class CodeDiff(Result):
    """Two generated codes and the change of each line; made by :func:`fxlab.code_diff`.

    Printed, it is a unified difference with equal stretches folded. In a notebook it is shown in colours.
    """

    before: GeneratedCode
    after: GeneratedCode

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Stretches of lines that are equal, changed in pairs, removed or added, in order."""
        # A line that names all inputs is known by these.
        return tuple(line_runs(self.before.lines, self.after.lines, (self.before.nodes, self.after.nodes)))

    @property
    def table(self) -> pd.DataFrame:
        """A row for each line of either code.

        Columns ``change`` (``same``, ``changed``, ``removed`` or ``added``), ``line_before`` and ``line``
        (its number, from 1), ``before`` and ``after`` (its text), and ``nodes`` (the names of the nodes that
        it stands for); ``None`` if there is none.
        """
        columns = ["change", "line_before", "line", "before", "after", "nodes"]
        rows = pd.DataFrame(self._rows(), columns=columns, dtype=object)
        return rows.astype({"line_before": "Int64", "line": "Int64"})

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return any(run.kind != "same" for run in self.runs)

    def __str__(self) -> str:
        """Return the difference in lines that begin with a minus, a plus or a blank."""
        if not self:
            return f"The code is the same: {counted(len(self.after.lines), 'line')}."
        return "\n".join(map("".join, self._signed()))

    def __repr__(self) -> str:
        """Return the difference, so that a prompt shows it."""
        return str(self)

    def _repr_html_(self) -> str:
        """Return the difference as HTML, in which all text is escaped."""
        if not self:
            return f"<p>{html.escape(str(self))}</p>"
        parts: list[str] = []
        rest = 0
        for sign, text in self._signed():
            if len(parts) == _MOST_LINES:
                rest += 1
                continue
            colour = _COLOURS.get({"-": "removed", "+": "added"}.get(sign, ""))
            style = f' style="background: {colour}"' if colour else "" if sign else ' style="opacity: 0.7"'
            parts.append(f"<div{style}>{html.escape(sign + text) or '&nbsp;'}</div>")
        more = f"<p>and {rest:,} more lines</p>" if rest else ""
        return f'<pre style="line-height: 1.4; overflow: auto">{"".join(parts)}</pre>{more}'

    def _rows(self) -> Iterator[tuple[str, int | None, int | None, str | None, str | None, tuple[str, ...]]]:
        i = j = 0
        for run in self.runs:
            old, new = run.steps
            for step in range(run.length):
                k, m = (i + step if old else None), (j + step if new else None)
                yield (
                    run.kind,
                    None if k is None else k + 1,
                    None if m is None else m + 1,
                    None if k is None else self.before.lines[k],
                    None if m is None else self.after.lines[m],
                    self.before.nodes[k or 0] if m is None else self.after.nodes[m],
                )
            i, j = i + old, j + new

    def _signed(self) -> Iterator[tuple[str, str]]:
        """Yield a sign and a text for each line that is shown; a folded stretch has no sign."""
        i = j = 0
        for place, run in enumerate(self.runs):
            old, new = self.before.lines[i : i + run.steps[0]], self.after.lines[j : j + run.steps[1]]
            i, j = i + run.steps[0], j + run.steps[1]
            if run.kind != "same":
                yield from (("-", line) for line in old)
                yield from (("+", line) for line in new)
                continue
            head = CONTEXT if place else 0
            tail = CONTEXT if place + 1 < len(self.runs) else 0
            if run.length <= head + tail + 1:
                yield from ((" ", line) for line in new)
                continue
            yield from ((" ", line) for line in new[:head])
            yield "", f"... {run.length - head - tail:,} equal lines ..."
            yield from ((" ", line) for line in new[run.length - tail :])


def code_diff(reference: Model, candidate: Model) -> CodeDiff:
    """Compare the Python that torch generates from two graphs, line by line.

    Parameters
    ----------
    reference, candidate
        The model before and after: graph modules, or modules, functions and exported programs.

    Returns
    -------
    CodeDiff
        Print it, show it in a notebook, or ask for its :meth:`~fxlab.graphs.code_diff.CodeDiff.table`.

    Raises
    ------
    TypeError
        If one of the two is no module or session.

    Examples
    --------
    >>> import torch
    >>> from fxlab import ChangeTrueDivToMulByInverse
    >>> def halve(x):
    ...     return torch.relu(x) / 2
    >>> changed = ChangeTrueDivToMulByInverse()(torch.fx.symbolic_trace(halve))
    >>> print(code_diff(torch.fx.symbolic_trace(halve), changed))
     def forward(self, x):
         relu = torch.relu(x);  x = None
    -    truediv = relu / 2;  relu = None
    +    truediv = relu * 0.5;  relu = None
         return truediv
    """
    before, after = compared_graphs(reference, candidate)
    return CodeDiff(generated_code(before), generated_code(after))
