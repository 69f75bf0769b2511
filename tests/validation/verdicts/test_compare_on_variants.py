"""Inputs of several kinds, and what they bring to light."""

import pytest
import torch
from planted import traced, transformed
from torch import fx, nn
from zoo import tiny

from fxlab import MergeLinears, compare_on_variants, example_inputs, input_variants
from fxlab.values.tensors import same_bits


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def disagreeing(a, b, x):
    """Return the inputs on which two functions do not agree."""
    table = compare_on_variants(Model(a), Model(b), x)
    return table.index.get_level_values("inputs")[table["status"] == "different"].unique().tolist()


@pytest.mark.slow
def test_a_model_agrees_with_its_trace_on_all_inputs():
    graph, inputs = traced("bert")
    table = compare_on_variants(tiny("bert"), graph, inputs)
    assert (table["status"] == "same bits").all()
    assert table.index.names == ["inputs", "output"]
    assert table.index.get_level_values("inputs").unique().tolist() == [
        *("as given", "other values", "batch of 1", "batch of 5", "batch of 17"),
        *("length 6", "length 23", "length 49", "length 130"),
        *("half masked", "left half masked", "masked by row"),
    ]
    assert table.attrs["not_compared"] == {}


@pytest.mark.slow
def test_inputs_are_made_if_left_out():
    graph, _ = traced("bert")
    assert not (compare_on_variants(graph, transformed(graph, MergeLinears()))["status"] == "different").any()


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x: x.clone() if len(x) == 3 else x + 1, {"batch of 1", "batch of 7", "batch of 25"}),
        (lambda x: x.clamp(-20, 20), {"large values", "very large values"}),
        (lambda x: x + (x.abs().max() == 0), {"zeros"}),
    ],
)
def test_a_mistake_that_the_given_inputs_do_not_reach_is_found(function, found):
    x = torch.randn(3, 2)
    assert set(disagreeing(torch.clone, function, x)) == found


def test_a_lost_mask_is_found():
    class Masked(nn.Module):
        def __init__(self, uses_mask):
            super().__init__()
            self.uses_mask = uses_mask

        def forward(self, ids, mask):
            return (ids * mask if self.uses_mask else ids).sum(1)

    inputs = {"ids": torch.randint(1, 9, (2, 6)), "mask": torch.ones(2, 6, dtype=torch.long)}
    table = compare_on_variants(Masked(True), Masked(False), inputs)
    names = table.index.get_level_values("inputs")
    assert set(names[table["status"] == "different"]) == {"half masked", "left half masked", "masked by row"}


def test_what_only_the_second_does_not_run_on_is_a_row_with_a_note():
    graph = fx.symbolic_trace(nn.Linear(2, 2))
    narrow = Model(lambda x: graph(x) if len(x) == 3 else x.view(3, 2))
    table = compare_on_variants(graph, narrow, torch.randn(3, 2))
    assert (table.loc["batch of 1", "status"] == "different").all()
    assert table.loc[("batch of 1", "output"), "note"].startswith(
        "transformed: the Model does not run on these inputs"
    )


def test_what_the_first_does_not_run_on_is_left_out_with_the_reason():
    model = Model(lambda x: x.view(3, 2))
    table = compare_on_variants(model, model, torch.randn(3, 2))
    assert (table["status"] == "same bits").all()
    assert set(table.attrs["not_compared"]) == {"batch of 1", "batch of 7", "batch of 25"}
    assert (
        "view" in table.attrs["not_compared"]["batch of 1"]
        or "shape" in table.attrs["not_compared"]["batch of 1"]
    )


def test_own_inputs_by_name():
    model = nn.Linear(2, 2)
    table = compare_on_variants(model, model, variants={"one": torch.ones(1, 2), "two": (torch.ones(2, 2),)})
    assert table.index.tolist() == [("one", "output"), ("two", "output")]


def test_other_values_keep_range_masks_and_what_is_no_tensor():
    inputs = {**example_inputs(tiny("bert")), "return_dict": True}
    other = input_variants(inputs)["other values"]
    assert other["return_dict"] is True
    assert torch.equal(other["attention_mask"], inputs["attention_mask"])
    assert not torch.equal(other["input_ids"], inputs["input_ids"])
    assert sorted(other["input_ids"].flatten()) == sorted(inputs["input_ids"].flatten())


def test_variants_are_the_same_each_time_and_leave_the_inputs_alone():
    x = torch.randn(3, 2)
    given, state = x.clone(), torch.get_rng_state()
    first, second = input_variants(x), input_variants(x)
    assert all(same_bits(first[name], second[name]) for name in first)
    assert torch.equal(x, given)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("inputs", [torch.tensor(2.0), (), {}, torch.zeros(0, 3), {"flag": True}])
def test_inputs_with_little_to_change_have_few_variants(inputs):
    assert "as given" in input_variants(inputs)


def test_what_cannot_be_compared_is_said_in_words():
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"original: expected a torch.nn.Module, .* got 'model'"):
        compare_on_variants("model", model, torch.ones(1, 2))
    with pytest.raises(TypeError, match="inputs: expected a mapping"):
        compare_on_variants(model, model, "text")
    with pytest.raises(
        ValueError, match="inputs: there are none that the original runs on: original: the Linear"
    ):
        compare_on_variants(model, model, torch.ones(1, 3))
    with pytest.raises(ValueError, match="variants: there are no inputs in it"):
        compare_on_variants(model, model, variants={})
    with pytest.raises(ValueError, match="atol: expected a number that is not negative"):
        compare_on_variants(model, model, torch.ones(1, 2), atol=-1)


@pytest.mark.parametrize(
    ("tokens", "is_drawn"),
    [([[5, 6, 7]], True), ([[5]], False), ([[5, 40, 7]], False), ([[1, 0, 1]], False)],
    ids=["tokens", "one token", "beyond the vocabulary", "mask"],
)
def test_other_tokens_are_drawn_where_there_are_tokens_of_the_vocabulary(tokens, is_drawn):
    variants = input_variants({"input_ids": torch.tensor(tokens)}, vocabulary=40)
    assert ("other tokens" in variants) is is_drawn
    if is_drawn:
        drawn = variants["other tokens"]["input_ids"]
        assert (int(drawn.min()), int(drawn.max())) == (0, 39)
