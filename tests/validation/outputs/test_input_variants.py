"""Other inputs that are made of those given: token ids stay in the vocabulary."""

import pytest
import torch
from torch import fx, nn
from zoo import tiny

import fxlab
from fxlab import example_inputs
from fxlab.validation.outputs.input_variants import input_variants, sizes_in_graph, vocabulary_of
from fxlab.values.tensors import same_bits


class Positions(nn.Module):
    """Looks up its input in one table, and numbers that it computes in a smaller one."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 4), nn.Embedding(5, 4)

    def forward(self, ids):
        return self.words(ids) + self.places(torch.cumsum(torch.ones_like(ids), 1) - 1)


def test_a_vocabulary_is_that_of_the_embedding_which_the_input_is_looked_up_in():
    assert vocabulary_of(fx.symbolic_trace(Positions())) == 11


def test_ids_that_are_looked_up_in_part_or_by_the_compilers_operators_are_of_a_vocabulary():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(7, 4)

        def forward(self, ids):
            return self.words(torch.ops.aten.view.default(ids[:, 1:], [-1]))

    assert vocabulary_of(fx.symbolic_trace(Parts())) == 7


def test_other_tokens_go_from_the_first_to_the_last_of_the_vocabulary():
    ids = torch.tensor([[1, 2, 3, 4]])
    drawn = [x for x in input_variants(ids, vocabulary=11).values() if x.shape == ids.shape]
    assert {0, 10} in [{int(x.min()), int(x.max())} for x in drawn]
    assert all(int(x.max()) < 11 and int(x.min()) >= 0 for x in drawn)


def test_ids_beyond_the_vocabulary_are_no_tokens_of_it():
    ids = torch.tensor([[1, 2, 3, 20]])
    variants = input_variants(ids, vocabulary=11)
    same_length = [x for x in variants.values() if x.shape == ids.shape]
    assert all(20 in x for x in same_length)


def test_half_of_a_mask_is_taken_at_either_end():
    given = {
        "input_ids": torch.tensor([[1, 2, 3, 4, 5, 6, 7]]),
        "attention_mask": torch.ones(1, 7, dtype=torch.int64),
    }
    variants = input_variants(given, vocabulary=11)
    assert variants["half masked"]["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0]]
    assert variants["left half masked"]["attention_mask"].tolist() == [[0, 0, 0, 1, 1, 1, 1]]
    # Attention over nothing gives NaN.
    assert not any("half" in name for name in input_variants(torch.ones(2, 1, dtype=torch.int64)))


def test_texts_are_shorter_and_longer_whatever_their_length():
    lengths = {x.shape[1] for x in input_variants(torch.ones(1, 100, dtype=torch.int64)).values()}
    assert lengths == {50, 100, 199, 200, 401}


def test_rows_of_a_mask_end_at_places_of_their_own():
    mask = torch.ones(3, 6, dtype=torch.int64)
    masked = input_variants(mask)["masked by row"]
    assert masked.tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]


def test_images_have_other_heights_and_widths_with_all_that_has_a_number_for_each_place():
    given = {
        "pixels": torch.randn(2, 3, 6, 8),
        "mask": torch.ones(2, 6, 8, dtype=torch.long),
        "t": torch.ones(2),
    }
    sizes = {
        name: tuple(one["pixels"].shape[-2:])
        for name, one in input_variants(given).items()
        if one["pixels"].shape[-2:] != (6, 8)
    }
    assert sizes == {
        **{"height 3": (3, 8), "height 7": (7, 8), "width 4": (6, 4), "width 9": (6, 9)},
        "size 11 x 15": (11, 15),
    }
    for name, size in sizes.items():
        assert input_variants(given)[name]["mask"].shape == (2, *size)
        assert input_variants(given)[name]["t"].shape == (2,)


def test_one_number_of_each_floating_tensor_is_nan():
    given = {"x": torch.randn(2, 3, dtype=torch.float16).t(), "ids": torch.ones(2, 3, dtype=torch.long)}
    with_nan = input_variants(given)["a NaN"]
    assert int(with_nan["x"].isnan().sum()) == 1
    assert torch.equal(with_nan["ids"], given["ids"])
    assert not given["x"].isnan().any()


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


class Pairs(nn.Module):
    """Two inputs whose second sizes are tied: each row of the first has a place in the second."""

    def forward(self, rows, places):
        return rows.gather(1, places[:, :, None].expand(-1, -1, rows.shape[2])) * (rows.shape[1] + 1)


@pytest.mark.parametrize("is_traced", [True, False])
def test_tied_sizes_change_together(is_traced):
    given = {"rows": torch.randn(2, 6, 3), "places": torch.arange(6).repeat(2, 1)}
    model = fxlab.symbolic_trace(Pairs(), given) if is_traced else Pairs()
    found = fxlab.verdict(model, Pairs(), given, variants=True)
    assert found.agrees
    assert not [name for name in found.not_compared if "length" in name]


class Flat(nn.Module):
    def forward(self, x):
        return x.reshape(2, 2)


def test_where_no_other_input_can_be_compared_the_answer_is_no_success():
    assert fxlab.verdict(Flat(), Flat(), torch.ones(4), variants=[2 * torch.ones(4)]).agrees
    refused = fxlab.verdict(Flat(), Flat(), torch.ones(4), variants=[torch.ones(5)])
    assert not refused.agrees
    assert "none could be compared" in refused.reason


def test_the_sizes_of_a_graph_are_known_by_its_inputs():
    x = torch.randn(2, 3)
    known = sizes_in_graph(fxlab.symbolic_trace(nn.Sequential(nn.Linear(3, 3)), x), (x,))
    (sizes,) = known.values()
    assert [str(sizes[0]).isidentifier(), sizes[1]] == [True, 3]
