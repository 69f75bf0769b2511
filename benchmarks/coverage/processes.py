"""A process for each model, which is ended when it takes too long.

In a pool of ``concurrent.futures`` the end of one process is the end of all models under way, and a process
of its own for each model imports the model's library anew.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from benchmarks.coverage.results import Result

SECONDS = 180


def all_results(
    names: Sequence[str], tried: Callable[[str], Result], *, workers: int, seconds: int = SECONDS
) -> Iterator[Result]:
    """Try models, each in a process of its own; what was imported before need not be imported again.

    Parameters
    ----------
    names
        The models.
    tried
        Builds, runs, traces and compares one.
    workers
        How many processes run at a time.
    seconds
        How long one may compute.
    """
    context = multiprocessing.get_context("fork")
    pending = list(reversed(names))
    running: dict[Connection, tuple[str, Any]] = {}
    while pending or running:
        while pending and len(running) < workers:
            name = pending.pop()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(name, tried, seconds, sender))
            process.start()
            sender.close()
            running[receiver] = (name, process)
        for receiver in wait(list(running)):
            name, process = running.pop(receiver)
            try:
                result = receiver.recv()
            except EOFError:
                process.join()
                died = process.exitcode not in (-signal.SIGXCPU, -signal.SIGKILL)
                reason = "the process died" if died else f"not done after {seconds} seconds of a processor"
                result = Result(name, "not traced", reason)
            process.join()
            yield result


def _child(name: str, tried: Callable[[str], Result], seconds: int, sender: Connection) -> None:
    # Not seconds of a clock, which would depend on what else the machine does.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        sender.send(tried(name))
