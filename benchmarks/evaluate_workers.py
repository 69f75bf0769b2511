"""What workers cost and save when a data set is judged, and that nothing is lost when one of them is killed.

``evaluate`` on many batches of a tiny model, in one process and on one, two and four workers: a process pool,
Dask's local cluster and Ray. In one more run each, a worker is killed midway. Every table has to be that of
one process. Dask and Ray are no dependencies of fxlab; what is not installed is left out. Processor time is
that of all processes, with starting the workers; of Ray's, which are nobody's children, it is not known.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from torch import nn

import fxlab

Pids = Callable[[], list[int]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--engines", nargs="+", choices=sorted(ENGINES), default=sorted(ENGINES))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    options = parser.parse_args()
    torch.set_num_threads(1)
    session, batches = _session(), _batches(options.batches)
    print(
        "| Engine | Workers | Killed | Batches judged | Table of one process | Seconds | Times one process | "
        "Processor seconds | Load |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    before, started = _processor_seconds(), time.perf_counter()
    expected = fxlab.evaluate(session, batches)
    alone, used = time.perf_counter() - started, _processor_seconds() - before
    print(
        f"| none, one process | | | {len(expected.rows):,} | | {alone:.1f} | 1.00 | {used:.0f} | {_load()} |",
        flush=True,
    )
    for engine in options.engines:
        if engine != "processes" and importlib.util.find_spec(engine) is None:
            continue
        for workers, is_killed in [
            (options.workers[-1], True),
            *((n, False) for n in reversed(options.workers)),
        ]:
            before = _processor_seconds()
            with ENGINES[engine](workers) as (executor, pids):
                # Workers import torch and fxlab before they are timed.
                fxlab.evaluate(session, batches[: 8 * workers], executor=executor)
                started = time.perf_counter()
                killed: list[int] = []
                data = _killing(batches, pids, killed) if is_killed else batches
                found = fxlab.evaluate(session, data, executor=executor)
                seconds = time.perf_counter() - started
            pd.testing.assert_frame_equal(found.batches, expected.batches)
            pd.testing.assert_frame_equal(found.table(), expected.table())
            assert bool(killed) is is_killed
            spent = "" if engine == "ray" else f"{_processor_seconds() - before:.0f}"
            print(
                f"| {engine} | {workers} | {'one' if killed else ''} | {len(found.rows):,} | the same | "
                f"{seconds:.1f} | {seconds / alone:.2f} | {spent} | {_load()} |",
                flush=True,
            )


def _processor_seconds() -> float:
    """Return the processor time of this process and of those of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _load() -> str:
    return f"{os.getloadavg()[1]:.1f}"


def _session() -> fxlab.Session:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    ).eval()
    session = fxlab.Session(torch.fx.symbolic_trace(model), torch.randn(4, 1, 8, 8))
    session.apply("fuse-batch-norm2d-in-conv2d")
    return session


def _batches(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 1, 8, 8, generator=generator) for _ in range(count)]


def _killing(batches: list[torch.Tensor], pids: Pids, killed: list[int]) -> Iterator[torch.Tensor]:
    """Yield batches; at the middle of them, one of the workers is killed."""
    for number, batch in enumerate(batches):
        if number == len(batches) // 2:
            killed.append(pids()[0])
            os.kill(killed[0], signal.SIGKILL)
        yield batch


@contextmanager
def _processes(workers: int) -> Iterator[tuple[Executor, Pids]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as executor:
        yield executor, lambda: list(executor._processes)


@contextmanager
def _dask(workers: int) -> Iterator[tuple[Executor, Pids]]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor(), lambda: list(client.run(os.getpid).values())


class RayExecutor(Executor):
    """Tasks of Ray as an executor of ``concurrent.futures``."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        import ray

        return ray.remote(_called).remote(fn, *args, **kwargs).future()


def _called(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


@contextmanager
def _ray(workers: int) -> Iterator[tuple[Executor, Pids]]:
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        executor = RayExecutor()
        yield executor, lambda: [executor.submit(os.getpid).result()]
    finally:
        ray.shutdown()


ENGINES = {"processes": _processes, "dask": _dask, "ray": _ray}

if __name__ == "__main__":
    main()
