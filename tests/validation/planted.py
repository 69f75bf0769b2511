"""Tiny models, correct passes on them, and mistakes to be found."""

from __future__ import annotations

import copy
import functools

import torch
from torch import nn
from torch.fx import GraphModule
from zoo import tiny

import fxlab
from fxlab import Transformation
from fxlab.models.graph_modules.copies import share_tensors_copy


class Of(nn.Module):
    """Computes a function of one input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@functools.cache
def traced(name: str, dtype: torch.dtype = torch.float32) -> tuple[GraphModule, dict[str, torch.Tensor]]:
    """Return a traced tiny model of transformers, and inputs. Not to be changed: it is shared."""
    model = tiny(name)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    model = model.to(dtype)
    return fxlab.symbolic_trace(model, check=False), fxlab.example_inputs(model)


def transformed(original: GraphModule, pass_: Transformation) -> GraphModule:
    """Return a transformed copy, with tensors shared where the pass leaves them alone."""
    return pass_(share_tensors_copy(original))


def scaled(module: GraphModule, target: str, factor: float, rows: slice = slice(None)) -> GraphModule:
    """Return a copy in which the weight of a layer is off by a factor."""
    result = copy.deepcopy(module)
    with torch.no_grad():
        result.get_submodule(target).weight[rows] *= factor
    return result
