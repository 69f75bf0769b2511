"""Functions of classes are exchanged for a while; class methods are told their class."""

import pytest

from fxlab.exchanged import exchanged, exchanged_names


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

    with exchanged(owner, {"fromkeys": seen}):
        assert Inner.fromkeys("a") == (Inner, {"a": None})
    assert type(Inner.fromkeys("a")) is Inner
    assert exchanged_names() == []
