"""What a page asks for is done where an interrupt stops it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace

import IPython
import pytest
from inspected import MERGE, Page
from tornado.ioloop import IOLoop

from fxlab.notebook.page.main_thread import run_in_main_thread


@pytest.fixture
def loop(monkeypatch):
    """The event loop of a kernel whose main thread this is."""

    async def current():
        return IOLoop.current()

    # Playwright leaves a loop running between its calls, if browser tests came before.
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    running = asyncio.new_event_loop()
    asyncio.set_event_loop(running)
    loop = running.run_until_complete(current())
    kernel = SimpleNamespace(kernel=SimpleNamespace(io_loop=loop))
    monkeypatch.setattr(IPython, "get_ipython", lambda: kernel)
    yield loop
    loop.close()
    asyncio.set_event_loop(None)
    asyncio._set_running_loop(outer)


def from_another_thread(loop: IOLoop, action) -> None:
    """Do something in another thread, and then what it left to the main thread."""

    def work():
        action()
        loop.add_callback(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.start()
    thread.join()


def note(done: list) -> Callable[[], None]:
    return lambda: done.append(threading.current_thread())


def test_without_a_kernel_it_is_done_where_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    done = []
    thread = threading.Thread(target=run_in_main_thread, args=(note(done), note(done)))
    thread.start()
    thread.join()
    assert done == [thread] * 2


def test_what_a_page_asks_for_in_a_subshell_is_done_in_the_main_thread(page: Page, loop: IOLoop):
    done = []
    page.inspector.session.on_change(lambda session: done.append(threading.current_thread()))
    from_another_thread(loop, lambda: page.switches(MERGE, True))
    assert done == [threading.main_thread()]
    assert page.card(MERGE)["on"]
    assert page.received[-1] == {"type": "done"}


def test_an_interrupt_ends_what_is_done_and_not_the_kernel(page: Page, loop: IOLoop, monkeypatch):
    def interrupt(self, p):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(page.inspector.session), "apply", interrupt)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        from_another_thread(loop, lambda: page.switches(MERGE, True))
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert page.error["title"] == "Interrupted"
    assert not page.card(MERGE)["on"]


def test_an_interrupt_ends_the_action_and_nothing_after_it():
    reached = []

    def action():
        signal.raise_signal(signal.SIGINT)
        reached.append("action")

    def then():
        signal.raise_signal(signal.SIGINT)
        reached.append("then")

    before = signal.getsignal(signal.SIGINT)
    run_in_main_thread(action, then)
    assert reached == ["then"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_goes_through_after_all_is_put_back():
    done = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        run_in_main_thread(lambda: 1 / 0, note(done))
    assert done == [threading.main_thread()]
    assert signal.getsignal(signal.SIGINT) is before
