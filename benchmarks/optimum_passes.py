"""Merging and parting the linears of BERT-base, beside optimum.fx, on the same graph in the same process."""

import copy
from collections.abc import Callable

from torch.fx import GraphModule
from transformers import BertConfig, BertModel

import fxlab
from benchmarks.measure import Comparison


def comparisons() -> list[Comparison]:
    """Return what is compared."""
    from optimum.fx.optimization import MergeLinears

    bert = BertModel(BertConfig()).eval()
    traced = fxlab.symbolic_trace(bert, check=False)
    ours, theirs = (copy.deepcopy(traced) for _ in range(2))
    for transformation, gm in ((fxlab.MergeLinears(), ours), (MergeLinears(), theirs)):
        merged = len(transformation.get_transformed_nodes(transformation(gm)))
        assert merged == 12, f"{merged} merged linears, where each of 12 layers has one"
        transformation(gm, reverse=True)
    return [
        Comparison(
            "merge the linears of BERT-base and part them again",
            "optimum.fx 2.3",
            there_and_back(fxlab.MergeLinears(), ours),
            there_and_back(MergeLinears(), theirs),
            rounds=15,
        )
    ]


def there_and_back(transformation: Callable, gm: GraphModule) -> Callable[[], None]:
    def run() -> None:
        transformation(gm)
        transformation(gm, reverse=True)

    return run
