"""A deep model that several tests of where it goes wrong share."""

import pytest
import torch
import zoo

import fxlab


@pytest.fixture(scope="module")
def twelve_layers():
    torch.manual_seed(0)
    model = zoo.bert(12, vocab_size=50)
    return fxlab.symbolic_trace(model, check=False), fxlab.example_inputs(model)
