"""The values of all nodes, compared by fxlab, beside torchlens, which keeps those of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from transformers import BertConfig, BertModel

import fxlab
from benchmarks.measure import Comparison
from fxlab.models.graph_modules.copies import share_tensors_copy


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    bert = BertModel(BertConfig()).eval()
    inputs = fxlab.example_inputs(bert)
    original = fxlab.symbolic_trace(bert, inputs, check=False)
    merged = fxlab.MergeLinears()(share_tensors_copy(original))
    yield Comparison(
        "compare each node of BERT-base and of it merged",
        "torchlens: log each value of BERT-base",
        partial(fxlab.compare_nodes, original, merged, inputs),
        logged_by_torchlens(bert, inputs),
        rounds=3,
    )


def logged_by_torchlens(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], object]:
    """Return what runs a model and keeps the value of each of its operations."""
    import torchlens

    log = getattr(torchlens, "log_forward_pass", None) or torchlens.trace
    return lambda: log(model, [], inputs)
