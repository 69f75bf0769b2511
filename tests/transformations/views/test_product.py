"""Products of matrices in the operators that `torch.export` decomposes them to."""

import pytest
import torch
from torch import nn

from fxlab.transformations.calls.product import as_product, transposed

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Multiply(nn.Module):
    def forward(self, a, b):
        return a @ b


def operands(*shapes):
    program = torch.export.export(Multiply(), tuple(map(torch.ones, shapes))).run_decompositions()
    return [
        (str(found.left), str(found.right)) for node in program.graph.nodes if (found := as_product(node))
    ]


def test_a_product_of_batches_reads_them_whole():
    assert operands((2, 3, 4, 5), (2, 3, 5, 6))[-1] == ("a", "b")


@pytest.mark.parametrize("shapes", [((4, 5), (2, 5, 6)), ((2, 1, 4, 5), (2, 3, 5, 6))])
def test_a_product_that_repeats_an_operand_does_not_read_it_whole(shapes):
    assert "a" not in {name for names in operands(*shapes) for name in names}


@pytest.mark.parametrize(
    ("dims", "is_transposed"),
    [((0, 2, 1), True), ((0, -1, -2), True), ((1, 0, 2), False), ((0, 1, 2), False)],
)
def test_only_the_last_two_dimensions_exchanged_are_a_transposition(dims, is_transposed):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.permute.default, (x, dims))
    node.meta["val"] = torch.empty(2, 3, 4).permute(dims)
    assert transposed(node) is (x if is_transposed else None)
