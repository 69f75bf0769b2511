"""Timing two ways to do the same thing, in turns, so that what else the machine does hits both."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One task, done by fxlab and by a peer."""

    task: str
    peer_name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    rounds: int = 5


class Seconds(float):
    """What a task returns that has taken the time itself, in another process."""


def seconds(task: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    result = task()
    return result if isinstance(result, Seconds) else time.perf_counter() - start


def compared(comparison: Comparison) -> dict[str, Any]:
    """Return a row: medians in seconds, and the median and the range of the ratios of the rounds.

    A peer that fails takes infinitely long.
    """
    comparison.ours()
    peer_fails = False
    try:
        comparison.peer()
    except Exception as error:
        peer_fails = True
        print(f"{comparison.task}: {comparison.peer_name} fails: {error!r}", file=sys.stderr)
    rounds = [
        (seconds(comparison.ours), math.inf if peer_fails else seconds(comparison.peer))
        for _ in range(comparison.rounds)
    ]
    ratios = [ours / peer for ours, peer in rounds]
    return {
        "task": comparison.task,
        "peer": comparison.peer_name,
        "fxlab [s]": statistics.median(ours for ours, _ in rounds),
        "peer [s]": statistics.median(peer for _, peer in rounds),
        "ratio": statistics.median(ratios),
        "from": min(ratios),
        "to": max(ratios),
    }
