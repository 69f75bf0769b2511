"""Lists that a model hands on as a whole: the graph holds for any number of items."""

import copy
import operator
import warnings

import pytest
import torch
from agreement import assert_agree
from torch import nn

import fxlab
from fxlab import TraceWarning
from fxlab.tracing.report import DYNAMIC
from fxlab.tracing.shapes.uncounted_lists import is_unread, items_of, uncounted


class Tower(nn.Module):
    """As vision models do: all images in one row, taken apart and put together again."""

    def __init__(self, between=lambda parts: parts) -> None:
        super().__init__()
        self.patches, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.between = between

    def features(self, x, grid):
        return torch.split(self.patches(x), (grid.prod(-1) // 4).tolist())

    def forward(self, x, grid):
        parts = self.between(self.features(x, grid))
        together = torch.cat(parts, dim=0)
        together += 1
        return self.head(together), parts


def images(*grids: tuple[int, int]) -> dict[str, torch.Tensor]:
    grid = torch.tensor(grids)
    return {"x": torch.randn(int(grid.prod(-1).sum()) // 4, 4), "grid": grid}


OTHER = (images((4, 4)), images((2, 2), (4, 2), (6, 2)), images(*[(2, 2)] * 7))


def traced(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return fxlab.symbolic_trace(model.eval(), inputs)


def test_what_is_taken_apart_and_put_together_holds_for_any_number_of_images():
    model = Tower()
    graph = traced(model, images((4, 4), (4, 4)))
    assert graph.meta["trace"].rung == DYNAMIC
    calls = [str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes]
    lists = [call for call in calls if call in ("tolist", "split", "cat", "getitem")]
    assert lists == ["tolist", "split", "cat"]
    for inputs in OTHER:
        assert_agree(graph, model, inputs)


@pytest.mark.parametrize("dim", [0, -2])
def test_a_dimension_may_be_counted_from_the_end(dim):
    class Parts(nn.Module):
        def forward(self, x, sizes):
            return torch.cat(x.sin().split(sizes.tolist(), dim=dim), dim)

    model = Parts()
    graph = traced(model, {"x": torch.randn(5, 3), "sizes": torch.tensor([2, 3])})
    assert_agree(graph, model, {"x": torch.randn(7, 3), "sizes": torch.tensor([4, 1, 2])})


READERS = {
    "its length": len,
    "an item": lambda parts: parts[0],
    "each item": lambda parts: [part * 2 for part in parts],
    "a copy": copy.copy,
    "a list": list,
    "behind another": lambda parts: operator.add(type(parts)((1,)), parts),
    "behind one of the usual kind": lambda parts: operator.add(items_of(parts), parts),
    "in front of another": lambda parts: operator.add(parts, items_of(parts)),
    "from the end": reversed,
    "twice": lambda parts: parts * 2,
    "as arguments": lambda parts: max(*parts),
    "taken apart": lambda parts: (lambda first, *others: others)(*parts),
    "whether there are any": bool,
    "whether one is among them": lambda parts: 3 in parts,
    "equal to another": lambda parts: parts == [1],
    "sorted": sorted,
    "with others": lambda parts: list(zip(parts, [1, 2], strict=True)),
    "as text": str,
}


@pytest.mark.parametrize("items", [[3, 4], (3, 4)], ids=["list", "tuple"])
def test_whatever_python_reads_of_a_list_is_noticed(items):
    for words, reader in READERS.items():
        sizes: list[int] = []
        parts = uncounted(items, 2, lambda size, seen=sizes: seen.append(size) or True)
        assert is_unread(parts)
        assert isinstance(parts, type(items))
        assert not sizes
        expected = reader(items)
        found = reader(parts)
        assert sizes == [2], words
        assert not is_unread(parts)
        assert str(found) == str(expected) or words == "from the end"


def test_a_list_of_numbers_that_is_read_is_held():
    class Sums(nn.Module):
        def forward(self, x, sizes):
            numbers = sizes.tolist()
            return torch.cat(x.split(numbers)) * sum(numbers)

    model = Sums()
    graph = traced(model, {"x": torch.randn(5, 3), "sizes": torch.tensor([2, 3])})
    assert_agree(graph, model, {"x": torch.randn(6, 3), "sizes": torch.tensor([5, 1])})
    with pytest.raises(AssertionError, match="traced for"):
        graph(torch.randn(6, 3), torch.tensor([2, 2, 2]))


def test_gradients_go_through_what_is_put_together():
    model = Tower()
    inputs = images((4, 4), (4, 4))
    graph = traced(model, inputs)
    more = OTHER[1]
    for module in (model, graph):
        module.zero_grad()
        module(**more)[0].sum().backward()
        assert model.patches.weight.grad is not None
        if module is model:
            expected = model.patches.weight.grad.clone()
    assert torch.equal(model.patches.weight.grad, expected)
