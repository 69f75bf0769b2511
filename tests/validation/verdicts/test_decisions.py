"""Comparisons and choices that rounding turns over, and what they excuse."""

import pytest
import torch
from planted import Of
from torch import fx, nn

from fxlab import compare, symbolic_trace, verdict
from fxlab.validation.verdicts.decisions import DecisionMode, Decisions, _read_at


def judged(a, b, x):
    return verdict(fx.symbolic_trace(Of(a)), fx.symbolic_trace(Of(b)), x)


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def compared(y):
    return y * (y > -100)


def less_precise(y, where):
    return torch.where(where, y.bfloat16().float(), y)


@pytest.mark.parametrize("elements", [1, 32])
def test_a_comparison_that_comes_out_alike_excuses_no_element(elements):
    few = torch.arange(64 * 32).reshape(64, 32) < elements
    found = judged(
        lambda x: compared(x.exp()), lambda x: compared(less_precise(x.exp(), few)), random(64, 32)
    )
    assert not found.agrees
    assert "rounds worse" in found.reason


SCORING, EXPERTS = random(16, 4, dtype=torch.bfloat16), random(4, 16, dtype=torch.bfloat16)


def routed(x, parts):
    """Route tokens to one of four experts by scores that are summed in parts."""
    slices = [slice(start, start + 16 // parts) for start in range(0, 16, 16 // parts)]
    scores = sum(x[:, part] @ SCORING[part] for part in slices)
    return x + nn.functional.one_hot(scores.argmax(-1), 4).to(torch.bfloat16) @ EXPERTS


def test_where_rounding_leads_to_other_choices_mistakes_in_other_rows_are_found():
    x = random(2000, 16, dtype=torch.bfloat16)
    assert not torch.equal(routed(x, 1), routed(x, 4))
    assert judged(lambda x: routed(x, 1), lambda x: routed(x, 4), x).agrees

    def coarse_rows(x):
        y = routed(x, 4)
        return torch.cat([y[:100].to(torch.float8_e5m2).to(torch.bfloat16), y[100:]])

    assert not judged(lambda x: routed(x, 1), coarse_rows, x).agrees


def test_many_more_other_choices_than_the_original_has_are_worse_rounding():
    steps = torch.linspace(-2, 2, 100)

    def counted(x, y):
        return x + (y[:, None] > steps).sum(-1)

    found = judged(lambda x: counted(x, x * 1.1), lambda x: counted(x, (x * 1.1).bfloat16()), random(4000))
    assert found.reason.startswith("output: it rounds worse: ")
    assert "of its comparisons and choices are others than in float64, 0 of the original's" in found.reason


def test_a_shape_that_depends_on_rounded_numbers_is_that_of_the_model():
    def third(x, by):
        return by(x)[(x / 3) * 3 > x]

    found = judged(
        lambda x: third(x, lambda x: x / 3), lambda x: third(x, lambda x: x * (1 / 3)), random(1000)
    )
    assert found.agrees, found


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.topk(3).values,
        lambda x: x.sort(-1, descending=True).values,
        lambda x: x.max(-1).values,
        lambda x: x.cummax(-1).values,
        lambda x: nn.functional.max_pool2d(x[None], 2),
        lambda x: x.round(),
    ],
    ids=["topk", "sort", "max", "cummax", "max_pool", "round"],
)
def test_numbers_that_were_chosen_otherwise_are_judged_by_their_rounding(choose):
    x = random(40, 40, dtype=torch.bfloat16)
    found = judged(lambda x: choose(x * 1.5 / 3 + 1), lambda x: choose(x * (1.5 / 3) + 1), x)
    assert found.agrees, found
    coarse = judged(lambda x: choose(x * 7.3), lambda x: choose(x * 7.3).to(torch.float8_e5m2).bfloat16(), x)
    assert not coarse.agrees


CHOICES = {
    "topk": lambda x: x.topk(2),
    "sort": lambda x: x.sort(-1, descending=True),
    "max": lambda x: x.max(-1),
    "cummax": lambda x: x.cummax(-1),
    "max_pool": lambda x: nn.functional.max_pool2d(x[None], 2, return_indices=True),
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_the_choices_of_another_run_come_with_the_numbers_at_their_places(choose):
    x, other = random(4, 4), random(4, 4).flip(0)
    with DecisionMode(own := Decisions()):
        values, places = choose(x)
    with DecisionMode(Decisions(given=own)):
        found, found_places = choose(other)
    assert torch.equal(found_places, places)
    assert not torch.equal(found, choose(other)[0])
    # At the places where the first run found its numbers, the second has those that it must give.
    rank = {number: place for place, number in enumerate(x.flatten().tolist())}
    assert [other.flatten()[rank[number]] for number in values.flatten().tolist()] == found.flatten().tolist()


@pytest.mark.parametrize("dims", [2, 3])
def test_numbers_at_the_places_of_a_pooling_are_read_there(dims):
    x = random(2, 3, *[4] * dims)
    pool = getattr(torch.nn.functional, f"max_pool{dims}d")
    values, places = pool(x, 2, return_indices=True)
    operator = getattr(torch.ops.aten, f"max_pool{dims}d_with_indices").default
    assert torch.equal(_read_at(operator, (x, [2] * dims), {}, places), values)


def test_numbers_of_an_operator_that_orders_nothing_are_not_read_at_its_choices():
    x = random(4, 3)
    _, inverse = x.unique(dim=0, return_inverse=True)
    assert _read_at(torch.ops.aten.unique_dim.default, (x, 0), {}, inverse[:, None]) is None


def ranked(y):
    """Return the rank of each number among those that differ, which rounding makes fewer."""
    return y + y.unique(return_inverse=True)[1]


def test_choices_that_float64_cannot_take_are_named_with_what_they_excuse():
    x = random(40, 5, dtype=torch.bfloat16)
    found = judged(lambda x: ranked(x * 1.1) * 1.7 / 3, lambda x: ranked(x * 1.1) * (1.7 / 3), x)
    assert "not judged: the largest 25% of the errors, since node unique" in found.reason
    assert "(_unique2 computes numbers beside its choices)" in found.reason


def test_an_error_while_choices_are_taken_is_named_and_the_node_stays_in_float64(monkeypatch):
    def broken(*_):
        raise RuntimeError("no such place\nand more")

    monkeypatch.setattr("fxlab.validation.verdicts.decisions._read_at", broken)
    x = random(40, 40, dtype=torch.bfloat16)
    found = judged(lambda x: (x * 7.3 / 3).topk(30).values, lambda x: (x * (7.3 / 3)).topk(30).values, x)
    assert "(topk: RuntimeError: no such place)" in found.reason
    assert not found.in_own_dtype


def saturated(x):
    """Return truth values that are true in float32 and false in float64."""
    return x.sigmoid() == 1


class Branching(nn.Module):
    def __init__(self, ask, factor):
        super().__init__()
        self.ask, self.factor = ask, factor

    def forward(self, x):
        return x * self.factor if self.ask(x) else x + 1


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize(
    "ask",
    [
        lambda x: saturated(x).any(),
        lambda x: torch.where(saturated(x))[0].numel() > 0,
        lambda x: x.sigmoid().sum().item() >= x.numel(),
    ],
)
def test_guards_on_data_are_decisions_of_the_model(ask):
    x = 20 + random(2, 4).abs()
    model, same, wrong = (Branching(ask, factor) for factor in (0.1, 0.1, 0.1001))
    assert compare(model, same, x).agrees
    assert not compare(model, wrong, x).agrees
    graph, other = symbolic_trace(model, x), symbolic_trace(wrong, x)
    found = verdict(graph, other, x, variants=True, gradients=True)
    assert not found.agrees
    assert "different function" in found.reason
    assert verdict(graph, symbolic_trace(same, x), x, variants=True, gradients=True).agrees


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(("factor", "agrees"), [(0.1, True), (0.1001, False)])
def test_a_graph_that_runs_with_its_own_decisions_alone_takes_them(factor, agrees, gradients):
    def largest(factor):
        return fx.symbolic_trace(Of(lambda x: x[torch.where(saturated(x))[0]].amax() * factor))

    def also_largest(x):
        return (x[torch.where(saturated(x))[0]] * factor).amax()

    x = 20 + random(2, 4).abs()
    found = verdict(largest(0.1), fx.symbolic_trace(Of(also_largest)), x, gradients=gradients)
    assert found.agrees is agrees
