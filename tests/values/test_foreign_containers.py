"""Containers of others: left alone where they read in their own way, rebuilt where pytrees know them."""

import collections.abc

import pytest
import torch
from torch import nn

import fxlab


class Table(collections.abc.Mapping):
    """Goes over its rows, has no length and compares elements, and is registered with pytrees."""

    def __init__(self, columns):
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]

    def __iter__(self):
        raise RuntimeError("its rows are not to be read")

    def __len__(self):
        raise RuntimeError("it has no length")

    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __hash__ = None


torch.utils._pytree.register_pytree_node(
    Table,
    lambda table: ([*table.columns.values()], tuple(table.columns)),
    lambda parts, names: Table(dict(zip(names, parts, strict=True))),
)


class Shares(collections.abc.MutableMapping):
    """Has its items in a dict that ``copy.copy`` shares."""

    def __init__(self, items):
        self.held = items

    def __getitem__(self, name):
        return self.held[name]

    def __setitem__(self, name, value):
        self.held[name] = value

    def __delitem__(self, name):
        del self.held[name]

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


class ReadOnly(collections.abc.Mapping):
    __slots__ = ("held",)

    def __init__(self, items):
        self.held = items

    __getitem__, __iter__, __len__ = Shares.__getitem__, Shares.__iter__, Shares.__len__


class OfItems(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, given):
        return self.linear(given["x"]) + given["y"]


@pytest.mark.parametrize("kind", [Table, Shares, ReadOnly])
def test_a_mapping_of_a_persons_own_is_an_input_and_stays_as_it_was(kind):
    x, y, model = torch.randn(5, 4), torch.randn(4), OfItems()
    given = kind({"x": x, "y": y})
    session = fxlab.Session(model, (given,))
    assert session.verdict(variants=True)
    assert fxlab.evaluate(model, session.graph_module, [(given,)])
    assert fxlab.compare(model, model, (given,)).agrees
    assert given["x"] is x
    assert given["y"] is y
    other = kind({"x": torch.randn(7, 4), "y": y})
    assert torch.equal(session.graph_module(other), model(other))


def test_a_graph_refuses_another_set_of_parts():
    traced = fxlab.symbolic_trace(OfItems(), (Table({"x": torch.ones(2, 4), "y": torch.ones(4)}),))
    with pytest.raises(AssertionError, match="traced for given of class Table"):
        traced(Table({"y": torch.ones(4), "x": torch.ones(2, 4)}))


class Unreadable(tuple):
    def __len__(self):
        raise NotImplementedError

    __iter__ = __getitem__ = __eq__ = __bool__ = __len__
    __hash__ = None


class UnreadableList(list):
    def __iter__(self):
        raise NotImplementedError

    __getitem__ = __len__ = __iter__


@pytest.mark.parametrize("value", [Unreadable((1, "a")), UnreadableList([1, "a"]), Table({})])
def test_a_model_may_hold_a_container_that_nobody_can_read(value, tmp_path):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.value, self.nested = nn.Linear(3, 3), value, (value, [value], {"a": value})

        def forward(self, x):
            return self.linear(x) * 2

    session = fxlab.Session(Holds(), torch.randn(2, 3))
    assert session.verdict()
    assert fxlab.compiler.compile_session(Holds(), torch.randn(2, 3)).graph_module is not None
    fxlab.report(session, tmp_path / "report.html")
