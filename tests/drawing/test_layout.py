import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fxlab.drawing import LayoutError, LayoutTimeoutError
from fxlab.drawing.rendering import layout
from fxlab.drawing.rendering.layout import lay_out

SMALL = "digraph { a -> b }"


def slow_graph(seed: int) -> str:
    """Return a graph that Graphviz would think about for minutes."""
    edges = "\n".join(f"n{i} -> n{(i * 7 + j * 131 + seed) % 900}" for i in range(900) for j in range(6))
    return f"digraph {{ {edges} }}"


@pytest.fixture
def process(monkeypatch):
    made = layout.LayoutProcess()
    monkeypatch.setattr(layout, "_process", made)
    monkeypatch.setattr(layout, "_KNOWN", {})
    yield made
    made.stop()


def test_a_layout_that_takes_too_long_is_stopped_and_the_next_one_works(process):
    began = time.monotonic()
    with pytest.raises(LayoutTimeoutError, match=r"stopped after 0\.5 s"):
        lay_out(slow_graph(1), timeout=0.5)
    assert time.monotonic() - began < 5
    assert b"<svg" in lay_out(SMALL)


def test_a_layout_can_be_cancelled_from_another_thread(process):
    lay_out(SMALL)
    threading.Timer(0.3, process.stop).start()
    with pytest.raises(LayoutError, match="cancelled"):
        lay_out(slow_graph(2), timeout=30)
    assert b"<svg" in lay_out("digraph { c }")


def test_a_dead_process_is_started_again(process):
    lay_out(SMALL)
    first = process._process
    first.kill()
    first.wait()
    assert b"<svg" in lay_out("digraph { d }")
    assert process._process.pid != first.pid


@pytest.mark.slow
def test_an_interrupt_stops_the_layout(process):
    lay_out(SMALL)
    worker = process._process
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        lay_out(slow_graph(3), timeout=30)
    assert worker.poll() is not None
    assert b"<svg" in lay_out("digraph { e }")


def test_what_graphviz_says_is_in_the_error(process):
    with pytest.raises(LayoutError, match="syntax error"):
        lay_out("digraph { a -> ")
    assert b"<svg" in lay_out(SMALL)


def test_threads_get_their_own_answers(process):
    answers: dict[int, bytes] = {}

    def ask(number: int) -> None:
        answers[number] = lay_out(f"digraph {{ only_{number} }}")

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"only_{n}<".encode() in answers[n] for n in range(8))


def test_a_finished_layout_is_remembered_and_the_memory_is_bounded(process, monkeypatch):
    first = lay_out(SMALL)
    asked = []
    monkeypatch.setattr(process, "request", lambda *of: (asked.append(of[0]), ({"status": "ok"}, b"x"))[1])
    assert lay_out(SMALL) is first
    assert not asked
    others = [f"digraph {{ {number} }}" for number in range(layout.MOST_KNOWN)]
    assert [lay_out(dot) for dot in (*others, SMALL, others[-1])] == [b"x"] * (layout.MOST_KNOWN + 2)
    assert asked == [*others, SMALL]


def test_without_any_graphviz_the_error_says_what_to_install(process, monkeypatch):
    monkeypatch.setattr(
        process, "request", lambda *_: ({"status": "no-graphviz", "error": "ImportError: x"}, b"")
    )
    with pytest.raises(LayoutError, match="pip install 'pygraphviz"):
        lay_out(SMALL)


@pytest.mark.slow
def test_the_worker_ends_with_its_parent():
    script = (
        "from fxlab.drawing.rendering.layout import _process, start_layout_worker\n"
        "start_layout_worker(); print(_process._process.pid, flush=True)\n"
        "import os; os._exit(1)"
    )
    pid = int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).stdout)
    for _ in range(100):
        if not is_running(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


@pytest.mark.slow
def test_a_worker_without_a_parent_ends_seconds_after_the_time_of_an_endless_layout():
    dot = slow_graph(4).encode()
    header = {"format": "svg", "timeout": -4, "size": len(dot)}  # it ends five seconds later
    command = [sys.executable, "-P", str(layout._WORKER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        try:
            worker.stdin.write(json.dumps(header).encode() + b"\n" + dot)
            worker.stdin.flush()
            assert worker.wait(20) == -signal.SIGALRM
        finally:
            worker.kill()


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_worker_imports_neither_torch_nor_the_package():
    script = """
import runpy, sys
runpy.run_path(sys.argv[1])
print([name for name in ("torch", "fxlab") if name in sys.modules])
"""
    command = [sys.executable, "-P", "-c", script, str(layout._WORKER)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
