"""Tests of short products: what a comparison at other sizes finds in a model with large weights."""

import pytest
import torch
from torch import nn

from fxlab import symbolic_trace
from fxlab.tracing.bound_inputs import bound_arguments
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.verification.eager import EagerReference
from fxlab.tracing.verification.short_products import ShortProducts

SHORT = "large products shortened"


class Block(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x):
        return self.norm(x + self.down(self.up(x).relu()))


class Loop(Block):
    def forward(self, x):
        turns = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(
            lambda i, x: i < 2, lambda i, x: (i + 1, super(Loop, self).forward(x)), (turns, x)
        )


def faulty(forward):
    """Return a model like a block, which computes something else."""
    return type("Faulty", (Block,), {"forward": forward})()


def one_larger(x, at):
    """Return a tensor with one other number."""
    return x + (torch.arange(x.numel()).view(x.shape) == at) * 1e-3


FAULTS = {
    "the recorded size": lambda self, x: Block.forward(self, x[:2]),
    "one number of a product's input": lambda self, x: self.norm(
        x + self.down(one_larger(self.up(x).relu(), 777))
    ),
    "no bias": lambda self, x: self.norm(x + self.down((x @ self.up.weight.T).relu())),
    "other weights": lambda self, x: self.norm(x + self.down((-self.up(x)).relu())),
    "rows in another order": lambda self, x: self.norm(x + self.down(self.up(x.flip(0)).relu())),
    "features in another order": lambda self, x: self.norm(x + self.down(self.up(x.roll(1, 1)).relu())),
    "more of the input": lambda self, x: self.norm(2 * x + self.down(self.up(x).relu())),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_graph_computes_wrong_at_other_sizes_is_found_beside_short_products(fault):
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 512)
    other = faulty(FAULTS[fault])
    vars(other).update(vars(model))
    right, wrong = (symbolic_trace(each, x, check=False) for each in (model, other))
    plain = EagerReference(model, bound_arguments(model, x), has_data=True, around=Surroundings(model))
    eager = plain.with_short_products(right)
    values = {"x": torch.randn(3, 512)}
    assert not eager.difference(right, values)
    assert eager.is_short
    assert eager.difference(wrong, values) == plain.difference(wrong, values) != ""
    twin, twin_of_wrong = plain.with_short_products(wrong).varied(wrong)
    assert twin.difference(twin_of_wrong, values)
    assert twin.is_short


def test_each_number_of_an_input_counts_in_a_short_product():
    weight, x = torch.randn(600, 500), torch.randn(4, 500)
    with ShortProducts([weight]) as short:
        before = nn.functional.linear(x, weight)
        for at in (0, 499, 777, 1999):
            changed = nn.functional.linear(one_larger(x, at), weight)
            assert (changed != before).any(1).tolist() == [row == at // 500 for row in range(4)]
    assert short.is_used
    assert before.shape == (4, 600)
    assert not torch.allclose(before, nn.functional.linear(x, weight))


def test_a_report_says_where_products_were_short_and_the_given_inputs_are_run_as_they_are():
    large, small = (symbolic_trace(Block(width), torch.randn(2, width)).meta["trace"] for width in (512, 16))
    checks = [finding.what for finding in large.findings if finding.kind == "check"]
    assert [SHORT in what for what in checks] == [what != "the inputs" for what in checks]
    assert SHORT not in str(small)


def test_loops_run_without_a_mode_of_torch():
    traced = symbolic_trace(Loop(), torch.randn(2, 512))
    assert traced(torch.randn(5, 512))[1].shape == (5, 512)
    assert SHORT not in str(traced.meta["trace"])
