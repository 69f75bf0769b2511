"""Functions of classes are exchanged for a while; class methods are told their class."""

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from fxlab.base.exchanged import cached_property, patched_functions, patched_names, set_name


class OfPython(dict):
    @classmethod
    def fromkeys(cls, keys):
        return cls((key, None) for key in keys)


class OfC(dict):
    fromkeys = vars(dict)["fromkeys"]  # as torch.autograd.Function.apply is since torch 2.15


@pytest.mark.parametrize("owner", [OfPython, OfC])
def test_class_methods_are_told_their_class(owner):
    class Inner(owner):
        pass

    def seen(original):
        return lambda cls, keys: (cls, original.__get__(None, cls)(keys))

    with patched_functions(owner, {"fromkeys": seen}):
        assert Inner.fromkeys("a") == (Inner, {"a": None})
    assert type(Inner.fromkeys("a")) is Inner
    assert patched_names() == []


def test_a_method_of_an_immutable_class_is_exchanged_and_put_back():
    original = vars(torch.Size)["numel"]

    def numel():
        return torch.Size([2, 3]).numel()

    with patched_functions(torch.Size, {"numel": lambda own: lambda size: own(size) + 1}):
        assert [numel() for _ in range(20)] == [7] * 20  # also where Python remembers what it has found
    assert numel() == 6
    assert vars(torch.Size)["numel"] is original


def test_a_python_that_keeps_names_elsewhere_is_told(monkeypatch):
    monkeypatch.setattr(gc, "get_referents", lambda *_: [])
    with pytest.raises(RuntimeError, match="keeps the names of classes written in C elsewhere"):
        set_name(torch.Size, "numel", None)


def test_a_cached_property_of_two_objects_is_computed_by_two_threads_at_once():
    class Held:
        @cached_property
        def value(self):
            return meeting.wait(5)

    meeting = Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert {*pool.map(lambda held: held.value, [Held(), Held()])} == {0, 1}
