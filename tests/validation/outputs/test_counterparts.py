"""Names of tensors in two models."""

import pytest
import torch
from torch import nn

from fxlab.validation.outputs.counterparts import same_tensors


@pytest.mark.parametrize(
    "make",
    [lambda: torch.empty(0), lambda: torch.empty(2, device="meta"), lambda: torch.eye(2).to_sparse()],
    ids=["empty", "meta", "sparse"],
)
def test_tensors_without_a_place_in_memory_are_known_by_what_they_are(make):
    first, second = nn.Module(), nn.Module()
    for name in ("a", "b"):
        first.register_buffer(name, make())
        second.register_buffer(f"other_{name}", first.get_buffer(name))
    assert same_tensors(first, second) == {"other_a": "a", "other_b": "b"}


def test_two_views_of_one_place_have_the_name_of_the_first():
    first, second = nn.Module(), nn.Module()
    first.register_buffer("a", torch.ones(2))
    first.register_buffer("b", first.a[:])
    second.register_buffer("b", first.b)
    assert same_tensors(first, second) == {"b": "a"}
