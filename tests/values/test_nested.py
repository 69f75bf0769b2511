"""Nested values: objects taken apart and put together."""

import collections
import copy
import enum
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxlab.models.running.arguments import call_arguments
from fxlab.values.nested import (
    Attribute,
    ObjectParts,
    flatten_objects,
    is_object,
    is_same_constant,
    map_tensors,
    name_of_part,
    tensors_inside,
    texts_inside,
    unflatten_objects,
)


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class Word(str):
    pass


class Colour(enum.Enum):
    RED = 1


def test_what_is_taken_apart_is_put_together_from_new_parts():
    x, y = torch.ones(2), torch.zeros(3)
    inner = Thing(y=y, flags={"a": [True, None]})
    thing = Thing(x=x, inner=[inner], name="n", cls=Thing)
    parts = flatten_objects({"thing": thing, "other": (1, "b")})
    assert [(name_of_part("in", path), tensor) for path, tensor in tensors_inside(parts)] == [
        ("in['thing'].x", x),
        ("in['thing'].inner[0].y", y),
    ]
    twice = map_tensors(lambda path, _: path, collections.OrderedDict(a=x, b=x))
    assert twice == {"a": ("a",), "b": ("b",)}
    again = unflatten_objects(map_tensors(lambda _, tensor: tensor + 1, parts))
    assert again["other"] == (1, "b")
    new = again["thing"]
    assert (type(new), new.name, new.cls) == (Thing, "n", Thing)
    assert torch.equal(new.x, x + 1)
    assert new.inner is not thing.inner
    assert new.inner[0] is not inner
    assert new.inner[0].flags == {"a": [True, None]}
    assert new.inner[0].flags is not inner.flags
    assert torch.equal(thing.x, torch.ones(2)), "the object itself is left alone"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_parts_are_copied_with_their_class(copied):
    parts = copied(ObjectParts(Thing, {Attribute("a"): 1}))
    assert (parts.cls, dict(parts)) == (Thing, {"a": 1})
    assert isinstance(next(iter(parts)), Attribute)


@pytest.mark.parametrize(
    "value",
    [
        *(1, 2.0, "a", None, torch.ones(2), torch.float32, torch.Size([1]), [1], (1,), {"a": 1}, {1}),
        *(nn.ReLU(), nn.ReLU, len, Word("a"), Colour.RED, np.ones(2), np.int64(1), Path("a")),
        *(
            pd.Timestamp(0),
            collections.OrderedDict(),
            slice(1),
            range(3),
            torch.device("cpu"),
            torch.Generator(),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_more_than_its_attributes_stays_whole(value):
    assert not is_object(value)


def test_a_model_is_called_with_copies_of_objects():
    thing = Thing(x=torch.ones(2), seen=[])
    (), arguments = call_arguments({"thing": thing})
    given = arguments["thing"]
    given.x.add_(1)
    given.seen.append(1)
    assert torch.equal(thing.x, torch.ones(2))
    assert thing.seen == []


def test_an_object_that_holds_itself_is_left_whole_inside():
    thing = Thing(x=1)
    thing.me = thing
    assert flatten_objects(thing)[Attribute("me")] is thing


def test_a_symbolic_number_holds_no_text_though_it_leads_to_all_that_is_known_of_sizes():
    size = ShapeEnv().create_unbacked_symint()
    assert list(texts_inside({"a": ["b", (size, size > 3)]})) == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "other", "same"),
    [(2, 2.0, False), (0.0, -0.0, False), (float("nan"), float("nan"), True), (2, 2, True)],
)
def test_plain_values_are_the_same_if_no_model_tells_them_apart(value, other, same):
    assert is_same_constant(value, other) is same
