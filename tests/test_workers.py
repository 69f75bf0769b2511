"""Work on many items by executors that keep what is shared, lose workers and tell so in their own way."""

import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import pytest

from fxlab import workers
from fxlab.workers import worked_on


class Remote(Executor):
    """An engine with workers of its own, in one thread: each has its own memory, and some of them die."""

    def __init__(self, workers=2, dies_at=(), error=None):
        self.memories = [{} for _ in range(workers)]
        self.dies_at, self.error = list(dies_at), error or RuntimeError("worker lost")
        self.calls, self.sizes = 0, []

    def submit(self, function, /, *args):
        future, memory = Future(), self.memories[self.calls % len(self.memories)]
        self.calls += 1
        self.sizes.append(len(args[1].pickled or b""))
        if args[2] in self.dies_at:
            self.dies_at.remove(args[2])
            memory.clear()
            future.set_exception(self.error)
            return future
        here, workers._held = workers._held, memory
        try:
            future.set_result(function(*args))
        finally:
            workers._held = here
        return future


def added(shared, item):
    return shared["one"] + item


def dead(item, reason):
    return f"{item}: {reason}"


def results(executor, items=range(6), function=added):
    found = worked_on(function, {"one": 1}, items, executor, died=dead)
    return [result for result, _ in sorted(found, key=lambda pair: pair[1])]


@pytest.mark.parametrize("executor", [None, Remote(), Remote(workers=4), Remote(dies_at=[3])])
def test_every_item_has_its_result(executor):
    assert results(executor) == [1, 2, 3, 4, 5, 6]


def test_what_is_shared_travels_once_to_each_worker():
    executor = Remote(workers=1)
    results(executor, range(50))
    assert sum(size > 0 for size in executor.sizes) == 1
    assert executor.calls == 51


def test_an_item_whose_worker_dies_twice_is_told():
    assert results(Remote(dies_at=[3, 3]))[3] == "3: its worker died twice with it: worker lost"


def test_a_broken_executor_gives_what_it_had_once_more():
    executor = Remote(dies_at=[3, 3], error=BrokenExecutor("all lost"))
    assert results(executor)[3:5] == ["3: its worker died twice with it: all lost", 5]


def test_what_the_function_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        results(Remote(), function=lambda shared, item: item / 0)


def test_no_more_items_are_taken_than_are_worked_on():
    taken, release = [], threading.Event()

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    def waits(shared, item):
        release.wait()
        return item

    with ThreadPoolExecutor(2) as executor:
        found = worked_on(waits, {}, items(), executor, died=dead)
        threading.Timer(0.2, release.set).start()
        next(found)
        assert len(taken) <= 5
        found.close()
