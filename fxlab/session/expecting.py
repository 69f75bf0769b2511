"""Tests of passes for ``fxlab.testing``: the graph that one makes, in canonical text, or its refusal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from fxlab.base.checks import describe
from fxlab.session.session import Session
from fxlab.transformations import Transformation
from fxlab.transformations.patterns.canonical_text import canonical_text

if TYPE_CHECKING:
    from fxlab.front_desk.sources import Model
    from fxlab.models.running.arguments import Inputs


def expect(pass_: Transformation, model: Model, inputs: Inputs | None, expected: str) -> None:
    """Assert that a pass makes the expected graph of a model, and keeps its promise to preserve results.

    The graph is compared in canonical text: a line for each call, ``%0 = relu(x)``, which is the same for all
    spellings of a call. An error shows the whole text.

    Parameters
    ----------
    pass_
        The pass.
    model, inputs
        As of :class:`fxlab.Session`.
    expected
        The whole text.

    Raises
    ------
    AssertionError
        If the text differs, or the verdict is that results have changed.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> silu = fxlab.from_pattern(lambda x: x * torch.sigmoid(x), lambda x: torch.nn.functional.silu(x))
    >>> class Gated(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(torch.sigmoid(x) * x)
    >>> fxlab.testing.expect(silu, Gated(), torch.ones(2), '''
    ...     %0 = silu(x)
    ...     %1 = relu(%0)
    ...     return %1
    ... ''')
    """
    if not isinstance(expected, str):
        raise TypeError(f"expected: expected a text, got {describe(expected)}.")
    session = Session(model, inputs, passes=[pass_])
    session.apply(pass_)
    text = canonical_text(session.graph_module)
    wanted = textwrap.dedent(expected).strip()
    if wanted != text:
        raise AssertionError(f"{pass_.name} makes another graph. It is:\n{text}\nExpected was:\n{wanted}")
    if pass_.preserves_computation and session.inputs is not None:
        verdict = session.verdict()
        if not verdict.agrees:
            raise AssertionError(f"{pass_.name} promises to preserve results. {verdict}")


def expect_no_match(
    pass_: Transformation, model: Model, inputs: Inputs | None, *, code: str | None = None
) -> None:
    """Assert that a pass changes nothing in a model, for a reason with a code.

    Parameters
    ----------
    pass_
        The pass.
    model, inputs
        As of :class:`fxlab.Session`.
    code
        The code of a reason that must be among those of :meth:`fxlab.Session.explain` and
        :meth:`fxlab.Session.why_not`. Left out, any or none.

    Raises
    ------
    AssertionError
        If the pass applies, or no reason has the code.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> silu = fxlab.from_pattern(lambda x: x * torch.sigmoid(x), lambda x: torch.nn.functional.silu(x))
    >>> class Gated(torch.nn.Module):
    ...     def forward(self, x):
    ...         gate = torch.sigmoid(x)
    ...         return gate * x + gate
    >>> fxlab.testing.expect_no_match(silu, Gated(), torch.ones(2), code="other-users")
    """
    session = Session(model, inputs, passes=[pass_])
    table = session.explain(pass_)
    matched = table[table.matched]
    if len(matched):
        raise AssertionError(f"{pass_.name} applies to {', '.join(map(str, matched.index))}.")
    found = {str(each): str(words) for each, words in zip(table.code, table.reason, strict=True)}
    for row in session.why_not(pass_).itertuples():
        found.setdefault(str(row.code), str(row.reason))
    if code is not None and code not in found:
        reasons = "\n".join(f"{each}: {words}" for each, words in found.items()) or "none"
        raise AssertionError(f"{pass_.name} gives no reason with the code {code!r}. Its reasons:\n{reasons}")
