"""A graph returns objects with the attributes that those of the model have, fields or not."""

import dataclasses
from collections import defaultdict

import pytest
import torch
from torch import nn
from transformers.utils import ModelOutput

from fxlab import symbolic_trace
from fxlab.values.tensors import tensors_by_path


@dataclasses.dataclass
class Scaled:
    values: torch.Tensor
    factor: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, factor):
        self.scaled = self.values * factor


@dataclasses.dataclass
class Output(ModelOutput):
    state: torch.Tensor | None = None


class Dict(dict):
    pass


def scaled(values):
    return Scaled(values, 5.0)


def with_parts(values):
    output = Output(state=values)
    output.parts, output.name = [values * 2], "parts"
    return output


def dict_with_attribute(values):
    output = Dict(values=values)
    output.doubled = values * 2
    return output


def test_defaults_and_sets_are_returned_too():
    class Makes(nn.Module):
        def forward(self, x):
            return defaultdict(list, values=[x.relu()], labels={1, "a"})

    traced = symbolic_trace(Makes(), torch.randn(2, 3), check=False)
    ours, theirs = traced(x := torch.randn(4, 3)), Makes()(x)
    assert type(ours) is defaultdict
    assert ours["missing"] == []
    assert ours["labels"] == theirs["labels"]
    assert torch.equal(ours["values"][0], theirs["values"][0])


@pytest.mark.parametrize("make", [scaled, with_parts, dict_with_attribute])
def test_attributes_of_outputs_are_those_of_the_model(make):
    class Makes(nn.Module):
        def forward(self, x):
            return make(x.relu())

    model, x = Makes(), torch.randn(2, 3)
    traced = symbolic_trace(model, (x,), check=False)
    for inputs in (x, torch.randn(4, 5)):
        ours, theirs = traced(inputs), model(inputs)
        assert type(ours) is type(theirs)
        assert vars(ours).keys() == vars(theirs).keys()
        assert tensors_by_path(vars(ours)).keys() == tensors_by_path(vars(theirs)).keys()
        for path, tensor in tensors_by_path(vars(ours)).items():
            assert torch.equal(tensor, tensors_by_path(vars(theirs))[path])
