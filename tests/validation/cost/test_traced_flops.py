"""Operations that are counted from shapes alone are those that a run makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, ResNetConfig, ResNetModel

import fxlab
from fxlab import profile
from fxlab.validation.cost.traced_flops import TracedFlops

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MODELS = [
    lambda: BertModel(BertConfig(**SMALL, attn_implementation="eager")),
    lambda: LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=99)),
    lambda: ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
]


def counts(gm: fx.GraphModule) -> dict[str, int]:
    counted = TracedFlops(dict(gm.named_modules()))
    return {node.name: count for node in gm.graph.nodes if (count := counted.of_node(node))}


@pytest.mark.weekly
@pytest.mark.parametrize("make", MODELS, ids=["eager", "decoder", "convolutions"])
def test_they_are_those_of_a_run(make: Any) -> None:
    model = make().eval()
    inputs = fxlab.example_inputs(model)
    gm = fxlab.symbolic_trace(model, inputs)
    table = profile(gm, inputs, rounds=1)["flops"]
    assert counts(gm) == table[table > 0].to_dict()
    assert TracedFlops(dict(gm.named_modules())).of(gm.graph.nodes) == table.sum()


@pytest.mark.slow
def test_a_model_without_weights_has_them_too() -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2)).eval()
    gm = fxlab.symbolic_trace(model)
    assert sum(counts(gm).values()) > 10**9
    assert ">FLOPs<" in fxlab.draw(gm, overlay="flops").svg


class Counted(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return x @ x


def test_what_others_have_made_is_not_called() -> None:
    gm = fxlab.symbolic_trace(
        nn.Sequential(Counted(), nn.Linear(3, 3)), torch.ones(3, 3), leaf_modules=[Counted]
    )
    before = Counted.calls
    assert list(counts(gm).values()) == [2 * 27]
    assert Counted.calls == before


def test_a_graph_without_shapes_has_none() -> None:
    gm = fx.symbolic_trace(nn.Linear(2, 2))
    counted = TracedFlops(dict(gm.named_modules()))
    assert counted.of(gm.graph.nodes) is None
    with pytest.raises(ValueError, match="no inputs to run it on"):
        fxlab.draw(gm, overlay="flops")


def test_a_module_is_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    gm = fxlab.symbolic_trace(model, torch.ones(2, 3, 8, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert counts(gm)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_calls_that_are_known_are_not_counted_again() -> None:
    gm = fxlab.symbolic_trace(nn.Linear(4, 8), torch.ones(2, 4))
    known: dict[Any, float | None] = {}
    assert TracedFlops(dict(gm.named_modules()), known).of(gm.graph.nodes) == 128
    assert 128 in known.values()
    poisoned = dict.fromkeys(known, 7.0)
    assert TracedFlops(dict(gm.named_modules()), poisoned).of(gm.graph.nodes) == 7 * len(known)


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        (torch.mv, [(3, 4), (4,)], 2 * 12),
        (torch.addmv, [(3,), (3, 4), (4,)], 2 * 12),
        (torch.dot, [(4,), (4,)], 2 * 4),
        (torch.addr, [(3, 4), (3,), (4,)], 2 * 12),
        (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 2 * 2 * 3 * 4 * 5),
    ],
)
def test_products_count_a_product_and_a_sum_for_each_pair(operator: Any, shapes: Any, expected: int) -> None:
    names = "abc"[: len(shapes)]
    model = eval(f"lambda {', '.join(names)}: operator({', '.join(names)})", {"operator": operator})
    gm = fxlab.symbolic_trace(model, tuple(map(torch.ones, shapes)))
    assert sum(counts(gm).values()) == expected
