"""A pass that is defined anew wins over the former one of its name."""

import pytest
import torch
from torch import nn

import fxlab
from fxlab import Session, TransformationError, from_callable, from_pattern


class Net(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


X = torch.randn(3)
CELL = """
import torch
import fxlab

def target():
    return {target}

class ReluTo(fxlab.Transformation):
    def transform(self, gm):
        for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
            node.target = target()
            {extra}
        return gm
"""


def defined(target="torch.tanh", extra="self.mark_as_transformed(node)"):
    """Run a cell of a notebook and return the class that it defines."""
    namespace = {"__name__": "a_cell"}
    exec(CELL.format(target=target, extra=extra), namespace)
    return namespace["ReluTo"]


def called(session):
    return next(node.target for node in session.graph_module.graph.nodes if node.op == "call_function")


def test_the_signature_contains_the_code_and_what_it_calls_in_its_module():
    assert defined()().signature == defined()().signature
    assert defined()().signature != defined("torch.sin")().signature
    assert defined()().signature != defined(extra="pass")().signature


def test_adding_or_applying_the_new_one_exchanges_the_former_and_keeps_it_on():
    session = Session(Net(), X, passes=[])
    session.apply(defined()())  # a pass that is not on offer is added
    assert called(session) is torch.tanh
    new = defined("torch.sin")()
    session.add(new)
    assert session.passes["relu-to"] is new
    assert called(session) is torch.sin
    session.apply(defined("torch.cos")())
    assert called(session) is torch.cos
    assert [pass_.name for pass_ in session.passes] == ["relu-to"]


def test_one_that_was_removed_is_the_new_one_when_it_is_added_again():
    session = Session(Net(), X, passes=[defined()()])
    session.apply("relu-to")
    session.remove("relu-to")
    session.add(defined("torch.sin")())
    session.apply("relu-to")
    assert called(session) is torch.sin


def test_a_new_definition_that_raises_leaves_the_session_as_it_was():
    session = Session(Net(), X, passes=[defined()()])
    session.apply("relu-to")
    former = session.passes["relu-to"]
    with pytest.raises(TransformationError, match="no_such"):
        session.add(defined(extra="node.no_such.thing")())
    assert session.passes["relu-to"] is former
    assert called(session) is torch.tanh


def test_functions_defined_anew_win_as_well():
    def make(name):
        namespace = {"__name__": "a_cell"}
        exec(
            "import torch\ndef shift(gm):\n"
            "    for node in gm.graph.find_nodes(op='call_function', target=torch.relu):\n"
            f"        node.target = torch.{name}\n"
            f"def p(x):\n    return torch.relu(x) * 2\ndef r(x):\n    return torch.{name}(x)\n",
            namespace,
        )
        return namespace

    first, second = make("tanh"), make("sin")
    for wrap in (
        lambda ns: from_callable(ns["shift"]),
        lambda ns: from_pattern(ns["p"], ns["r"], name="shift"),
    ):
        session = Session(Net(), X, passes=[wrap(first)])
        session.apply("shift")
        session.add(wrap(second))
        assert called(session) is torch.sin


def test_an_object_that_counts_its_calls_is_the_pass_that_it_was():
    class Counts:
        calls = 0

        def __call__(self, gm):
            self.calls += 1
            for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
                node.target = torch.tanh

    session, counts = Session(Net(), X), Counts()
    session.apply(counts)
    assert called(session) is torch.tanh
    session.revert(counts)
    assert session.graph_module is session.original
    assert not session.applied


def test_a_pass_with_other_arguments_still_needs_a_name():
    session = Session(Net(), X, passes=[fxlab.MergeLinears()])
    with pytest.raises(ValueError, match="offered already"):
        session.add(fxlab.MergeLinears().exclude("relu"))
