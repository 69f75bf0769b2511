"""Transformation: marks, signatures and calling conventions, for the classes that users write."""

import copy
import dataclasses
import functools
import operator
import re
from collections import OrderedDict
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from exactness import COPIES, assert_is, snapshot, traced
from fresh_python import run
from torch import fx, nn

from fxlab import MergeLinears, ReversibleTransformation, Transformation, compose


class AddToSub(ReversibleTransformation):
    """Subtract where the model adds.

    A second paragraph, which is not for the inspector.
    """

    preserves_computation = False

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.target is operator.add:
                node.target = operator.sub
                self.mark_as_transformed(node)
        return graph_module

    def reverse(self, graph_module):
        for node in self.get_transformed_nodes(graph_module):
            node.target = operator.add
            self.mark_as_restored(node)
        return graph_module


class AddToMul(Transformation):
    """Multiply where the model adds; arguments are plain attributes, super().__init__ is not called."""

    def __init__(self, factor=1, names=None):
        self.factor = factor
        self.names = names

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.target is operator.add and (self.names is None or node.name in self.names):
                node.target = operator.mul
                node.args = (node.args[0], self.factor)
                self.mark_as_transformed(node)
        return graph_module


class Configured(Transformation):
    """Holds any argument."""

    def __init__(self, **arguments):
        for name, value in arguments.items():
            setattr(self, name, value)

    def transform(self, graph_module):
        return graph_module


@dataclasses.dataclass(frozen=True)
class Fields(Transformation):
    """Arguments as fields."""

    value: object = None
    note: str = dataclasses.field(default="", compare=False)
    kinds: ClassVar = {"of": "all instances"}

    @functools.cached_property
    def derived(self):
        return object()

    def transform(self, graph_module):
        return graph_module


class Sums(nn.Module):
    def forward(self, x):
        return (x + 1) * (x + 2)


def sums():
    return traced(Sums())


def marked_names(transformation, gm):
    return [node.name for node in transformation.get_transformed_nodes(gm)]


def first_node(gm):
    return next(iter(gm.graph.nodes))


# Arguments


# Calling


def test_arguments_may_be_given_by_position():
    gm = AddToSub()(sums(), True)
    assert AddToSub()(gm, True, True)(torch.tensor(5.0)) == 42
    assert AddToSub()(gm, False, False) is gm


def test_an_irreversible_transformation_says_so_when_asked_to_reverse():
    gm = AddToMul()(sums())
    before = snapshot(gm)
    with pytest.raises(TypeError, match=r"AddToMul cannot be reversed.*ReversibleTransformation"):
        AddToMul()(gm, reverse=True)
    assert_is(gm, before)


@pytest.mark.parametrize("given", [Sums(), nn.Linear(2, 2), None, fx.Graph()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize(
    "use",
    [
        lambda t, gm: t(gm),
        lambda t, gm: t(gm, reverse=True),
        lambda t, gm: t.get_transformed_nodes(gm),
        lambda t, gm: t.explain(gm),
    ],
    ids=["call", "reverse", "get_transformed_nodes", "explain"],
)
@pytest.mark.parametrize("transformation", [AddToSub(), MergeLinears()], ids=lambda t: t.name)
def test_something_else_than_a_graph_module_is_refused_naming_both_types(transformation, use, given):
    with pytest.raises(TypeError, match=rf"torch\.fx\.GraphModule.*\b{type(given).__name__}\b") as error:
        use(transformation, given)
    assert "fxlab.symbolic_trace" in str(error.value)


@pytest.mark.parametrize(("method", "returned"), [("transform", 3), ("reverse", None)])
def test_a_method_that_returns_no_module_is_named(method, returned):
    forgetful = AddToSub()
    setattr(forgetful, method, lambda graph_module: returned)
    with pytest.raises(TypeError, match=rf"AddToSub\.{method} must return.*{type(returned).__name__}"):
        forgetful(sums(), reverse=method == "reverse")


@pytest.mark.parametrize("missing", ["transform", "reverse"])
def test_a_class_without_its_method_cannot_be_made(missing):
    class Half(ReversibleTransformation):
        pass

    setattr(Half, {"transform": "reverse", "reverse": "transform"}[missing], lambda self, gm: gm)
    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_a_graph_module_that_is_given_to_a_class_is_sent_to_its_instance():
    with pytest.raises(TypeError, match=r"MergeLinears: too many .*: MergeLinears\(\.\.\.\)\(graph_module\)"):
        MergeLinears(sums())


# Marks


def test_a_node_bears_the_marks_of_several():
    node = first_node(sums())
    several = (AddToSub(), AddToMul(1), AddToMul(2))
    for transformation in several:
        transformation.mark_as_transformed(node)
    AddToSub().mark_as_restored(node)
    assert [t.transformed(node) for t in several] == [False, True, True]


def test_a_restored_node_keeps_no_trace():
    node = first_node(sums())
    before = dict(node.meta)
    AddToSub().mark_as_transformed(node)
    AddToSub().mark_as_restored(node)
    assert node.meta == before


def test_restoring_an_unmarked_node_is_refused():
    gm = sums()
    with pytest.raises(ValueError, match="'x' was not transformed by add-to-sub"):
        AddToSub().mark_as_restored(first_node(gm))


class AddToSubElsewhere(AddToSub):
    """The same, under another name."""


def test_restoring_a_node_that_another_transformation_marked_is_refused():
    node = first_node(sums())
    AddToSub().mark_as_transformed(node)
    with pytest.raises(ValueError, match="was not transformed"):
        AddToSubElsewhere().mark_as_restored(node)
    assert AddToSub().transformed(node)


def test_only_nodes_can_be_marked():
    with pytest.raises(TypeError, match=r"torch\.fx\.Node.*str"):
        AddToSub().mark_as_transformed("add")


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_copies_do_not_share_marks(copied):
    gm = AddToSub()(sums())
    other = copied(gm)
    AddToMul().mark_as_transformed(AddToSub().get_transformed_nodes(other)[0])
    AddToSub().mark_as_restored(AddToSub().get_transformed_nodes(gm)[0])
    assert marked_names(AddToSub(), gm) == ["add_1"]
    assert marked_names(AddToMul(), gm) == []
    assert marked_names(AddToSub(), other) == ["add", "add_1"]
    assert marked_names(AddToMul(), other) == ["add"]


def test_marks_survive_copies_of_the_graph_alone_and_are_not_shared():
    gm = AddToSub()(sums())
    other = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    AddToSub()(other, reverse=True)
    assert marked_names(AddToSub(), other) == []
    assert marked_names(AddToSub(), gm) == ["add", "add_1"]


# Signatures

VALUES = {
    "none": None,
    "number": 0.1,
    "text": "é\ud800",
    "list": [1, [2.0, "three"]],
    "dict": {"b": [1], "a": {2, 3}},
    "set": {"x", "y", "zebra", 1, (2, 3)},
    "frozenset": frozenset({"x", "y", "zebra"}),
    "set of sets": {frozenset({"x", "y"}), frozenset({"z", "w"})},
    "tensor": torch.arange(6.0).reshape(2, 3),
    "bfloat16 tensor": torch.ones(3, dtype=torch.bfloat16),
    "scalar tensor": torch.tensor(2),
    "empty tensor": torch.ones(0, 3),
    "strided tensor": torch.arange(6.0).reshape(2, 3).t(),
    "sparse tensor": torch.eye(2).to_sparse(),
    "conjugate tensor": torch.tensor([1 + 2j]).conj(),
    "meta tensor": torch.ones(2, device="meta"),
    "parameter": nn.Parameter(torch.ones(2)),
    "array": np.arange(3),
    "array of objects": np.array(["a", None, {1}], dtype=object),
    "dtype": torch.float16,
    "device": torch.device("cpu"),
    "function": operator.add,
    "torch function": nn.functional.gelu,
    "method": torch.Tensor.add,
    "lambda": lambda x: x + 1,
    "partial": functools.partial(torch.add, alpha=2),
    "class": nn.Linear,
    "pattern": re.compile("a+"),
    "path": Path("a/b"),
    "slice": slice(1, None, 2),
    "range": range(3),
    "complex": 1 + 2j,
    "bytes": b"\x00",
    "ordered": OrderedDict(a=1),
    "dataclass": Fields(3),
    "ellipsis": ...,
}
"""Arguments of many types; equal in every process that imports this file."""


def signatures():
    return {name: Configured(value=value).signature for name, value in VALUES.items()}


@pytest.mark.slow
def test_signatures_are_the_same_in_every_process():
    program = "import test_transformation as t; print(*t.signatures().values(), t.AddToSub().signature)"
    expected = [*signatures().values(), AddToSub().signature]
    assert run(program, path=(Path(__file__).parent,)).split() == expected


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_signatures_of_equal_arguments_are_equal(value):
    signature = Configured(value=value).signature
    assert Configured(value=copy.deepcopy(value)).signature == signature
    assert re.fullmatch("[0-9a-f]{32}", signature)


def test_signatures_of_different_arguments_differ():
    assert len(set(signatures().values())) == len(VALUES)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        ([1, 2], (1, 2)),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        (["a", "b"], ["ab"]),
        ({"a": "b"}, {"b": "a"}),
        ({1}, frozenset({1})),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.zeros(2), -torch.zeros(2)),
        (torch.ones(1000), torch.cat([torch.ones(500), torch.zeros(1), torch.ones(499)])),
        (nn.Linear(2, 2), nn.Linear(2, 2)),
        (lambda x: x + 1, lambda x: x + 2),
        (functools.partial(torch.add, alpha=1), functools.partial(torch.add, alpha=2)),
        (None, "None"),
    ],
)
def test_signatures_tell_apart_what_is_alike(a, b):
    assert Configured(value=a).signature != Configured(value=b).signature


def test_signatures_end_on_arguments_that_contain_themselves():
    value = [1]
    value.append(value)
    assert Configured(value=value).signature == Configured(value=copy.deepcopy(value)).signature
    itself = Configured()
    itself.value = itself
    assert itself.signature != Configured(value=Configured()).signature


def test_signatures_of_dataclasses_leave_out_what_is_not_compared_or_derived():
    fields = Fields([1], note="a")
    signature = fields.signature
    assert fields.derived is not None
    assert fields.signature == signature == Fields([1], note="b").signature
    assert Fields([2]).signature != signature


class Remembers(ReversibleTransformation):
    """Notes in its own attributes what it does, and reverses from there."""

    def __init__(self):
        self.count = 0
        self.targets = {}

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.op == "call_function":
                self.count += 1
                self.targets[node.name] = node.target
                node.target = operator.sub
                self.mark_as_transformed(node)
        return graph_module

    def reverse(self, graph_module):
        for node in self.get_transformed_nodes(graph_module):
            node.target = self.targets.pop(node.name)
            self.mark_as_restored(node)
        return graph_module


def test_what_a_transformation_is_set_to_between_its_runs_changes_its_signature():
    remembers = Remembers()
    signature = remembers.signature
    remembers(sums())
    remembers.targets = {"add": operator.mul}
    assert remembers.signature != signature


def test_a_composition_keeps_its_signature_when_a_part_notes_something():
    composition = compose(Remembers(), AddToSub())
    signature = composition.signature
    gm = composition(sums())
    assert composition.signature == signature
    assert marked_names(composition, gm) == ["add", "add_1", "mul"]


# What is shown to people


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("MergeLinears", "merge-linears"),
        ("FuseBatchNorm1dInLinear", "fuse-batch-norm1d-in-linear"),
        ("ToONNXOps", "to-onnx-ops"),
        ("CSE", "cse"),
        ("fold", "fold"),
    ],
)
def test_names_are_those_of_the_classes_in_kebab_case(class_name, name):
    cls = type(class_name, (Configured,), {})
    assert cls.name == cls().name == name


def test_a_transformation_takes_another_name_and_stays_what_it_was():
    merge = MergeLinears()
    other = merge.named("merge some")
    assert (merge.name, other.name) == ("merge-linears", "merge some")
    assert merge.signature == MergeLinears().signature != other.signature
    assert other.signature == MergeLinears().named("merge some").signature


@pytest.mark.parametrize(
    ("name", "error"), [(3, TypeError), (None, TypeError), ("", ValueError), (" ", ValueError)]
)
def test_what_is_no_name_is_refused(name, error):
    with pytest.raises(error, match="name: expected"):
        MergeLinears().named(name)


def test_what_names_itself_takes_no_other_name():
    with pytest.raises(TypeError, match="names itself"):
        compose(MergeLinears(), MergeLinears()).named("twice")
