"""Products of matrices in the operators that `torch.export` decomposes them to."""

import pytest
import torch
from torch import nn

from fxlab.transformations.calls.calls import Calls

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Multiply(nn.Module):
    def forward(self, a, b):
        return a @ b


@pytest.mark.parametrize(
    ("shapes", "is_whole"),
    [
        (((2, 3, 4, 5), (2, 3, 5, 6)), True),
        (((4, 5), (2, 5, 6)), False),
        (((2, 1, 4, 5), (2, 3, 5, 6)), False),
    ],
)
def test_a_product_of_batches_reads_its_operands_whole_unless_one_is_repeated(shapes, is_whole):
    program = torch.export.export(Multiply(), tuple(map(torch.ones, shapes))).run_decompositions()
    (returned,) = program.graph.output_node().all_input_nodes
    term = Calls(lambda module: None).term(returned)
    assert (term.name == "matmul" and str(term.args["self"]) == "a") is is_whole
