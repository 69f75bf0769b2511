"""Sources of new weights: what they were computed from, and copies of that."""

import copy

import torch
from torch import nn

from fxlab.transformations.journal.journal import WeightSource


def test_a_source_has_changed_once_its_tensor_is_written_or_replaced():
    linear = nn.Linear(2, 2)
    weight, bias = WeightSource(linear, "weight"), WeightSource(linear, "bias")
    assert not weight.has_changed
    with torch.no_grad():
        linear.weight.add_(1)
    linear.bias = nn.Parameter(torch.ones(2))
    assert weight.has_changed
    assert bias.has_changed


def test_a_copy_is_of_the_copied_module_and_one_for_all_that_share_it():
    linear = nn.Linear(2, 2)
    source = WeightSource(linear, "weight")
    module, first, second = copy.deepcopy((linear, source, source))
    assert first is second
    assert first.holder is module
    assert not first.has_changed
    with torch.no_grad():
        module.weight.add_(1)
    assert first.has_changed
    assert not source.has_changed


def test_a_copy_of_what_had_changed_says_so():
    linear = nn.Linear(2, 2)
    source = WeightSource(linear, "weight")
    with torch.no_grad():
        linear.weight.add_(1)
    assert copy.deepcopy(source).has_changed
