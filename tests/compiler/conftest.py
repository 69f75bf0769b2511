"""One compile that the tests share; those that switch something take it back, or compile their own."""

import warnings

import pytest
import torch
from tiny_models import Blocks

import fxlab

with warnings.catch_warnings():  # of torch about itself
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch._inductor.compile_fx


@pytest.fixture(scope="session")
def blocks():
    torch.manual_seed(0)
    return Blocks().eval()


@pytest.fixture(scope="session")
def shared(blocks):
    return fxlab.compiler.compile_session(blocks, {"x": torch.randn(3, 8)})


@pytest.fixture
def session(shared):
    """The shared session, which has everything on again after the test."""
    yield shared
    while shared._internals.can_undo:
        shared.undo()
