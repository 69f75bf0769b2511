"""The trace report: how a trace was made, the sizes it follows and the facts it holds fixed."""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import GraphModule

from fxlab.base.author_frames import error_words, stretches
from fxlab.base.first_use import pd
from fxlab.tracing.findings import Finding, Found

DYNAMIC = "dynamic shapes"
DATA = "dynamic shapes, with data"
WHOLE = "dynamic shapes, parts kept whole"
FIXED = "fixed shapes"
REAL = "real inputs"
EXPORTED = "an exported program"
CAPTURED = "a graph of torch.compile"


class TraceError(RuntimeError):
    """A model could not be recorded. The message names the line of the model and a remedy.

    Examples
    --------
    >>> import torch
    >>> from fxlab import symbolic_trace
    >>> symbolic_trace(torch.nn.Linear(2, 2), torch.ones(3, 5))
    Traceback (most recent call last):
        ...
    fxlab.tracing.report.TraceError: Linear itself raises RuntimeError on these inputs: ...
    """

    code = "other"
    """Tells causes apart, for programs and tests; it stays when the words are improved."""
    graph_module: GraphModule | None = None
    """Of a model that itself raises, the graph up to the call that failed, which is its last node."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the last lines of model and person, then the words."""
        groups = [group.text for group in stretches(self) if group.is_author and group.frames]
        return [*groups[-8:], error_words(self), *getattr(self, "__notes__", ())]


class TraceWarning(UserWarning):
    """A trace is right, but specialised: a size or a branch was fixed.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> from fxlab import symbolic_trace
    >>> class SumOfRows(torch.nn.Module):
    ...     def forward(self, x):
    ...         total = 0
    ...         for row in x:
    ...             total = total + row
    ...         return total
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     traced = symbolic_trace(SumOfRows(), torch.ones(3, 2))
    >>> print(caught[0].message)
    The traced graph is specialised:
      x.shape[0] fixed at 3, though the model takes other sizes
    """


_REASSURING = ("check", "symbolic size")
_LIMITING = ("branch on data", "gradient", "state", "setting")
_NEEDLESS = (Found.NEEDLESSLY_FIXED_SIZE.code, Found.COSTLY_SIZE.code)


@dataclass(frozen=True)
class TraceReport:
    """The record of how a graph module was traced; found in ``graph_module.meta["trace"]``.

    Examples
    --------
    >>> import torch, fxlab
    >>> traced = fxlab.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()), (torch.randn(2, 3),))
    >>> report = traced.meta["trace"]
    >>> report.rung
    'dynamic shapes'
    >>> list(report.table["kind"].unique())
    ['check', 'symbolic size']
    >>> print(report)
    Traced on dynamic shapes
    check: the inputs same bits as the model
    check: input.shape[0] = 3, input.shape[1] = 4 same bits as the model
    ...
    """

    rung: str
    """The inputs of the recorded run. ``dynamic shapes``, the same ``with data`` (on which it decided) or
    with ``parts kept whole`` (which loop over sizes or data), ``fixed shapes`` (``dynamic=False``) or ``real
    inputs``. Or ``an exported program``, which fxlab did not run."""
    findings: tuple[Finding, ...] = ()
    """Its findings, in the order of the run."""
    steps_down: tuple[str, ...] = ()
    """Why each rung above this one was left, in words."""
    raised: tuple[str, ...] = ()
    """The errors behind these steps, in full."""

    def __str__(self) -> str:
        """Return it as lines; those that limit the graph come first."""
        first = [f for f in self.findings if f.kind not in _REASSURING]
        then = [f for f in self.findings if f.kind in _REASSURING]
        lines = [f"Traced on {self.rung}", *(f"left: {step}" for step in self.steps_down)]
        lines += [f"{f.kind}: {' '.join(filter(None, (f.what, f.detail, f.where)))}" for f in [*first, *then]]
        return "\n".join(lines)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def limits(self) -> tuple[Finding, ...]:
        """Return the findings that specialise the graph.

        They are decisions on data, sizes that the model would take otherwise, settings of torch that the
        model's Python has read, and gradients and state that are not in the graph. Conditions on sizes are
        not among them, as a model may require them itself, nor is the mode: most models differ in training.
        """
        return tuple(f for f in self.findings if f.kind in _LIMITING or f.code in _NEEDLESS)

    @property
    def table(self) -> pd.DataFrame:
        """The findings as a table, in columns ``kind``, ``what``, ``detail``, ``where`` and ``code``."""
        rows = [vars(finding) for finding in self.findings]
        return pd.DataFrame(rows, columns=["kind", "what", "detail", "where", "code"])
