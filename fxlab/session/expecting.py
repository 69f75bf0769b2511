"""Tests of passes: the graph that a pass makes, in canonical text, or the reason for its refusal."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from fxlab.checks import described
from fxlab.session.session import Session
from fxlab.transformations import Transformation
from fxlab.transformations.patterns.canonical_text import canonical_text

if TYPE_CHECKING:
    from fxlab.models.running import Inputs
    from fxlab.sources import Model

UPDATE = "FXLAB_UPDATE_EXPECT"
"""The environment variable by which expected texts are written to the tests."""
_CHECK = re.compile(r"^\s*CHECK(-NOT)?:(.*)$", re.M)
_CAPTURED = re.compile(r"\[\[(\w+)(?::(.*?))?\]\]")


def expect(pass_: Transformation, model: Model, inputs: Inputs | None, expected: str) -> None:
    """Assert that a pass makes the expected graph of a model, and keeps its promise to preserve results.

    The graph is compared in canonical text: a line for each call, ``%0 = relu(x)``, which is the same for all
    spellings of a call. With the environment variable ``FXLAB_UPDATE_EXPECT=1`` the text in the test's file
    is replaced by the result of the pass.

    Parameters
    ----------
    pass_
        The pass.
    model, inputs
        As of :class:`Session`.
    expected
        The whole text; or lines ``CHECK: ...`` and ``CHECK-NOT: ...`` as of LLVM's FileCheck, which must, or
        must not, be parts of lines in this order. ``[[X:%[0-9]+]]`` captures the match of a regular
        expression, and ``[[X]]`` is the same again.

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
    >>> fxlab.testing.expect(silu, Gated(), torch.ones(2), '''
    ...     CHECK: [[GATE:%[0-9]+]] = silu(x)
    ...     CHECK-NOT: sigmoid
    ...     CHECK: relu([[GATE]])
    ... ''')
    """
    if not isinstance(expected, str):
        raise TypeError(f"expected: expected a text, got {described(expected)}.")
    session = Session(model, inputs, passes=[pass_])
    session.apply(pass_)
    text = canonical_text(session.graph_module)
    if _CHECK.search(expected):
        _check_lines(expected, text)
    elif textwrap.dedent(expected).strip() != text:
        if os.environ.get(UPDATE) and _write(expected, text):
            return
        raise AssertionError(
            f"{pass_.name} makes another graph. Set {UPDATE}=1 to write it to the test. It is:\n{text}\n"
            f"Expected was:\n{textwrap.dedent(expected).strip()}"
        )
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
        As of :class:`Session`.
    code
        The code of a reason that must be among those of :meth:`Session.explain` and
        :meth:`Session.why_not`. Left out, any or none.

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


def _check_lines(expected: str, text: str) -> None:
    """Find lines in their order, as FileCheck does."""
    lines = text.split("\n")
    captured: dict[str, str] = {}
    at, forbidden = 0, list[str]()
    for is_not, wanted in _CHECK.findall(expected):
        if is_not:
            forbidden.append(wanted.strip())
            continue
        pattern = _regex(wanted.strip(), captured)
        found = ((n, match) for n in range(at, len(lines)) if (match := re.search(pattern, lines[n])))
        place, match = next(found, (at, None))
        if match is None:
            raise AssertionError(f"CHECK: {wanted.strip()} is not found after line {at} of:\n{text}")
        _check_absent(forbidden, lines[at:place], captured, text)
        captured |= match.groupdict()
        at, forbidden = place + 1, []
    _check_absent(forbidden, lines[at:], captured, text)


def _check_absent(forbidden: list[str], lines: list[str], captured: dict[str, str], text: str) -> None:
    for unwanted in forbidden:
        pattern = _regex(unwanted, captured)
        for line in lines:
            if re.search(pattern, line):
                raise AssertionError(f"CHECK-NOT: {unwanted} is found in {line!r} of:\n{text}")


def _regex(wanted: str, captured: dict[str, str]) -> str:
    """Return a regular expression for a line with captured names."""
    parts, end = [], 0
    own: set[str] = set()
    for match in _CAPTURED.finditer(wanted):
        parts.append(re.escape(wanted[end : match.start()]))
        name, pattern = match.groups()
        if pattern is not None:
            parts.append(f"(?P<{name}>{pattern})")
            own.add(name)
        elif name in own:
            parts.append(f"(?P={name})")
        elif name in captured:
            parts.append(re.escape(captured[name]))
        else:
            raise ValueError(f"expected: [[{name}]] is used before [[{name}:...]] captures it.")
        end = match.end()
    return "".join([*parts, re.escape(wanted[end:])])


def _write(expected: str, text: str) -> bool:
    """Replace the expected text in the file of the test; return whether it was found there."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fxlab."):
        frame = frame.f_back
    if frame is None or not Path(frame.f_code.co_filename).is_file():
        return False
    file, line = Path(frame.f_code.co_filename), frame.f_lineno
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value == expected and node.end_lineno is not None:
            call_lines = range(line - 1, line + 200)
            if node.lineno in call_lines or node.end_lineno in call_lines:
                lines = source.split("\n")  # as Python counts them: splitlines also ends one at a form feed
                indent = re.match(r"\s*", lines[line - 1])
                margin = (indent.group() if indent else "") + "    "
                new = '"""\n' + textwrap.indent(text, margin) + f'\n{margin[:-4]}"""'
                head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
                tail = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
                lines[node.lineno - 1 : node.end_lineno] = [head + new + tail]
                file.write_text("\n".join(lines), encoding="utf-8")
                linecache.checkcache(str(file))
                return True
    return False
