"""The process that runs Graphviz, spoken to as the package speaks to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fxlab.drawing.rendering import layout_worker

WORKER = Path(layout_worker.__file__)


def answers(*requests: tuple[str, str]) -> list[tuple[dict[str, Any], bytes]]:
    """Send requests of a format and a DOT text each, close stdin, and return what came until the end."""
    sent = b""
    for output_format, dot in requests:
        data = dot.encode()
        header = {"format": output_format, "timeout": 20, "size": len(data)}
        sent += json.dumps(header).encode() + b"\n" + data
    done = subprocess.run(
        [sys.executable, "-P", str(WORKER)], input=sent, capture_output=True, timeout=60, check=True
    )
    found, rest = [], done.stdout
    while rest:
        line, _, rest = rest.partition(b"\n")
        header = json.loads(line)
        found.append((header, rest[: header["size"]]))
        rest = rest[header["size"] :]
    return found


def test_requests_are_answered_in_their_order_until_stdin_closes() -> None:
    first, second = answers(("svg", "digraph { a -> b }"), ("plain", "digraph { c }"))
    assert first[0]["status"] == second[0]["status"] == "ok"
    assert b"<svg" in first[1]
    assert b"node c" in second[1]


def test_an_empty_request_only_asks_whether_graphviz_is_there() -> None:
    ((header, data),) = answers(("svg", ""))
    assert header["status"] == "ok"
    assert data == b""


@pytest.mark.filterwarnings("default")
def test_a_text_that_is_no_graph_is_an_answer_and_not_the_end() -> None:
    (wrong, nothing), (right, data) = answers(("svg", "digraph { a -> "), ("svg", "digraph { a }"))
    assert wrong["status"] == "failed"
    assert wrong["error"]
    assert nothing == b""
    assert right["status"] == "ok"
    assert b"<svg" in data


def test_what_graphviz_says_is_told_and_does_not_mix_with_the_answers() -> None:
    shape = 'digraph { a [shape="no such shape"] }'
    (complained, picture), (silent, _) = answers(("svg", shape), ("svg", "digraph { a }"))
    assert "no such shape" in complained["stderr"]
    assert b"<svg" in picture
    assert "no such shape" not in silent["stderr"]
