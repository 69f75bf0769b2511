"""What holds for inputs that share memory, with each other or with the model, holds after passes.

They are right for such inputs as the original is, or the graph refuses them. Graphs are traced on others.
"""

import copy

import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from random_modules import Recipe
from strategies import recipes
from test_laws import pytestmark, sequences
from torch import fx

from fxlab.models.graph_modules.copies import share_tensors_copy

__all__ = ["pytestmark"]

OVERLAPS = ("one tensor", "views", "a view of the model")


@pytest.mark.weekly
@given(recipes(takes_two=True), sequences, st.data())
def test_inputs_that_overlap_are_computed_with_as_before(recipe, passes, data):
    gm = recipe.trace(recipe.build())
    original = share_tensors_copy(gm)
    for pass_ in passes:
        pass_(gm)
    for how in OVERLAPS:
        inputs = data.draw(overlapping(how, original, recipe))
        try:
            expected = called(original, inputs)
        except RuntimeError:  # torch refuses to write some views
            continue
        try:
            actual = called(gm, inputs)
        except AssertionError as error:
            refusal = str(error)
        else:
            refusal = ""
        event(f"{how}: {'refused' if refusal else 'computed'}")
        if refusal:
            assert (how, "share no memory" in refusal) == ("a view of the model", True)
            continue
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


@st.composite
def overlapping(
    draw: st.DrawFn, how: str, original: fx.GraphModule, recipe: Recipe
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw two inputs of which one shares memory with the other, or with a parameter or buffer."""
    x, y = recipe.inputs()
    if how == "one tensor":
        return x, x
    count = x.numel()
    if how == "views":
        memory = torch.cat([x.reshape(-1), y.reshape(-1)[:1]])
        return memory[:count].view(x.shape), memory[memory.numel() - count :].view(x.shape)
    held = [*original.parameters(), *original.buffers()]
    fits = [tensor.detach().reshape(-1)[:count] for tensor in held if tensor.numel() >= count > 0]
    views = [tensor.view(x.shape) for tensor in fits if tensor.dtype == x.dtype]
    if not views:
        return x, y
    view = draw(st.sampled_from(range(len(views))).map(views.__getitem__))
    return (x, view) if draw(st.booleans()) else (view, y)


def called(gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Call a copy of a graph on copies; return its outputs, and the inputs as it leaves them."""
    gm, inputs = copy.deepcopy((gm, inputs))
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        return [*gm(*inputs), *inputs]
