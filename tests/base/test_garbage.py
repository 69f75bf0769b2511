"""Sparing Python's search for cyclic garbage."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fxlab.base.garbage import is_frozen, making_what_stays, only_new_garbage


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_new_garbage_is_found_and_old_garbage_waits() -> None:
    gc_was = gc.isenabled()
    gc.disable()  # else it may be found before the block begins
    old = weakref.ref(_Cycle())
    try:
        with only_new_garbage():
            new = weakref.ref(_Cycle())
            gc.collect()
            assert new() is None
            assert old() is not None
        assert not is_frozen()
        gc.collect()
        assert old() is None
    finally:
        if gc_was:
            gc.enable()


def test_an_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), only_new_garbage():
        raise ZeroDivisionError
    assert not is_frozen()


def test_what_somebody_else_has_frozen_stays_frozen() -> None:
    gc.freeze()
    with only_new_garbage():
        pass
    assert is_frozen()


def test_objects_that_stay_are_old_at_once() -> None:
    with making_what_stays():
        kept = [_Cycle() for _ in range(5_000)]
        assert not gc.isenabled()
    young = gc.get_objects(generation=0)
    assert gc.isenabled()
    assert not {id(each) for each in kept} & {id(each) for each in young}
    assert not is_frozen()
