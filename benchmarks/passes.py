"""Applying and reversing passes, and what the passes are worth when the model runs."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch.fx import GraphModule
from torch.fx.experimental.optimization import fuse
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

import fxlab
from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    resnet = fxlab.symbolic_trace(ResNetModel(ResNetConfig()).eval(), check=False)
    bert_model = BertModel(BertConfig()).eval()
    bert = fxlab.symbolic_trace(bert_model, check=False)
    inputs = fxlab.example_inputs(bert_model)
    fold, merge = fxlab.FuseBatchNorm2dInConv2d(), fxlab.MergeLinears()
    yield Comparison(
        "fold the 53 batch norms of ResNet-50 (and unfold them)",
        "torch.fx.experimental.optimization.fuse (cannot unfold)",
        _there_and_back(fold, resnet),
        lambda: fuse(resnet),
    )
    yield Comparison(
        "merge 36 linears of BERT-base (and part them)",
        "copy.deepcopy, to have the original back",
        _there_and_back(merge, bert),
        lambda: copy.deepcopy(bert),
    )
    merged = merge(fxlab.symbolic_trace(bert_model, check=False))
    run_merged, run_original = _forward(merged, inputs), _forward(bert, inputs)
    yield Comparison("run BERT-base merged", "not merged", run_merged, run_original, 9)


def _there_and_back(transformation: fxlab.ReversibleTransformation, gm: GraphModule) -> Callable[[], None]:
    def run() -> None:
        transformation(gm)
        transformation(gm, reverse=True)

    return run


def _forward(gm: GraphModule, inputs: dict[str, torch.Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode():
            gm(**inputs)

    return run
