"""The error of a model that itself raises has the graph up to the call that failed, and its likely cause."""

import pytest
import torch
from torch import nn

import fxlab


class Block(nn.Module):
    def __init__(self, down):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), down

    def forward(self, x):
        return self.down(self.up(x).relu())


class Blocks(nn.Module):
    """Two blocks, of which the second has a call that does not fit."""

    def __init__(self, down):
        super().__init__()
        self.blocks = nn.Sequential(Block(nn.Linear(6, 4)), Block(down))

    def forward(self, x):
        return self.blocks(x)


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.ones(5, 5))

    def forward(self, x):
        return self.function(x, self.weight)


FAILING = {
    "linear": (nn.Linear(8, 4), "blocks.1.down (Linear)", "relu_1.shape[1] is 6, and would have to be 8"),
    "norm": (
        nn.BatchNorm1d(3),
        "blocks.1.down (BatchNorm1d)",
        "relu_1.shape[1] is 6, and would have to be 3",
    ),
    "product": (Calls(lambda x, w: x @ w), "blocks.1.down (Calls)", "would have to be 5"),
    "sum": (Calls(lambda x, w: x.add(w[0])), "blocks.1.down (Calls)", "would have to be"),
    "view": (Calls(lambda x, w: x.view(-1, 7)), "blocks.1.down (Calls)", "was given relu_1 (3, 6)"),
    "data": (Calls(lambda x, w: w[x.sum().abs().long() + 9]), "blocks.1.down (Calls)", "weight (5, 5)"),
}


def error_of(model, inputs=torch.ones(3, 4)):  # noqa: B008
    with pytest.raises(fxlab.TraceError, match="itself raises") as raised:
        fxlab.symbolic_trace(model, inputs)
    return raised.value


@pytest.mark.parametrize("name", FAILING)
def test_the_graph_ends_with_the_call_that_failed(name):
    down, place, cause = FAILING[name]
    error = error_of(Blocks(down))
    *before, failed, output = error.graph_module.graph.nodes
    assert "raised" in failed.meta
    assert not any("raised" in node.meta for node in before)
    assert output.args == (failed,)
    assert [node.target for node in before if node.op == "call_module"][:2] == [
        "blocks.0.up",
        "blocks.0.down",
    ]
    assert f"in {place}" in error.__notes__
    assert any(cause in note for note in error.__notes__)


def test_a_call_that_fits_has_no_cause_in_sizes():
    error = error_of(Blocks(Calls(lambda x, w: torch.linalg.cholesky(w * 0 - 1))))
    assert not any("would have to be" in note for note in error.__notes__)


def test_an_error_of_python_has_the_graph_up_to_it():
    error = error_of(Blocks(Calls(lambda x, w: x.exp() * (1 // 0))))
    assert [node.name for node in error.graph_module.graph.nodes][-2:] == ["exp", "output"]
    assert error.__notes__ == ["in blocks.1.down (Calls)"]


def test_it_is_drawn_with_the_call_in_sight():
    drawing = fxlab.draw(error_of(Blocks(nn.Linear(8, 4))))
    assert "1 highlighted" in repr(drawing)
    assert drawing.view.opened >= {"blocks", "blocks.1"}


def test_a_notebook_shows_the_models_lines_and_the_cells_alone():
    shown = "\n".join(error_of(Blocks(nn.Linear(8, 4)))._render_traceback_())
    assert "self.down(self.up(x).relu())" in shown
    assert "fxlab.symbolic_trace(model, inputs)" in shown
    assert "verification" not in shown
    assert len(shown.splitlines()) < 30


def test_the_model_and_what_it_holds_are_left_as_they_were():
    model = Blocks(nn.Linear(8, 4))
    before = {name: id(value) for name, value in model.state_dict(keep_vars=True).items()}
    error_of(model)
    assert {name: id(value) for name, value in model.state_dict(keep_vars=True).items()} == before
