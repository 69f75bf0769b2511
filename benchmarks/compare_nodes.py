"""What comparing two models costs, in time and (``python -m benchmarks.compare_nodes``) in peak memory."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule
from transformers import BertConfig, BertModel

import fxlab
from benchmarks.measure import Comparison
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.running.running import run
from fxlab.validation.cost.memory import PeakMemory


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    original, merged, inputs = _bert_and_merged()

    def both() -> None:
        run(original, inputs)
        run(merged, inputs)

    for function in (fxlab.compare_nodes, fxlab.first_divergence, fxlab.verdict):
        yield Comparison(
            f"{function.__name__}, BERT-base and merged",
            "one eager forward of each",
            partial(function, original, merged, inputs),
            both,
        )


def main() -> None:
    """Print the peak memory of each, in relation to that of one forward (activations, not weights)."""
    torch.set_num_threads(1)
    original, merged, inputs = _bert_and_merged()
    forward = _peak(partial(run, original, inputs))
    for function in (fxlab.compare_nodes, fxlab.first_divergence, fxlab.verdict):
        ratio = _peak(partial(function, original, merged, inputs)) / forward
        print(f"{function.__name__}: {ratio:.2f} times the peak of one forward ({forward / 2**20:.1f} MiB)")


def _bert_and_merged() -> tuple[GraphModule, GraphModule, dict[str, torch.Tensor]]:
    model = BertModel(BertConfig()).eval()
    original = fxlab.symbolic_trace(model, check=False)
    merged = fxlab.MergeLinears()(share_tensors_copy(original))
    return original, merged, fxlab.example_inputs(model, batch_size=2, sequence_length=128)


def _peak(task: Callable[[], Any]) -> int:
    with PeakMemory() as memory:
        task()
    return memory.peak


if __name__ == "__main__":
    main()
