"""The peak of memory of a training step, from shapes alone, beside torch's MemTracker.

``python -m benchmarks.memory_use`` trains one step of each model under ``MemTracker``, once the state of the
optimizer exists, and computes the same from the graph of the step. It writes a row of ``docs/measured.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
import transformers
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

import fxlab
from benchmarks import measured

TOKENS, WIDTH, LAYERS = 64, 128, 3
NEAR = 0.1
"""How far the two peaks may be from each other, as a share."""


def language_model(model: Callable[..., nn.Module], config: Any, tokens: int = TOKENS) -> Any:
    """Return a language model and a batch that it computes its own loss of."""
    ids = torch.zeros(8, tokens, dtype=torch.long)
    return model(config), {"input_ids": ids, "labels": ids}


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=2000,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
    )
    return language_model(transformers.BertForMaskedLM, config)


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=2000, n_positions=TOKENS, n_embd=WIDTH, n_layer=LAYERS, n_head=4
    )
    return language_model(transformers.GPT2LMHeadModel, config)


def llama(vocabulary: int = 2000, width: int = WIDTH, tokens: int = TOKENS) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return language_model(transformers.LlamaForCausalLM, config, tokens)


def wide_llama() -> Any:
    return llama(500, 4 * WIDTH, 8)


def checkpointed_llama() -> Any:
    model, batch = llama()
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # it has another name from v6 on
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model, batch


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=2000,
        d_model=WIDTH,
        d_kv=32,
        d_ff=4 * WIDTH,
        num_layers=LAYERS,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return language_model(transformers.T5ForConditionalGeneration, config)


def vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        image_size=64,
        patch_size=8,
        num_labels=10,
    )
    batch = {"pixel_values": torch.zeros(8, 3, 64, 64), "labels": torch.zeros(8, dtype=torch.long)}
    return transformers.ViTForImageClassification(config), batch


def resnet() -> Any:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], layer_type="basic", num_labels=10
    )
    batch = {"pixel_values": torch.zeros(8, 3, 64, 64), "labels": torch.zeros(8, dtype=torch.long)}
    return transformers.ResNetForImageClassification(config), batch


def convnext() -> Any:
    config = transformers.ConvNextConfig(hidden_sizes=[24, 48], depths=[2, 2], num_stages=2, num_labels=10)
    batch = {"pixel_values": torch.zeros(8, 3, 64, 64), "labels": torch.zeros(8, dtype=torch.long)}
    return transformers.ConvNextForImageClassification(config), batch


class Perceptron(nn.Module):
    """A few wide layers: weights are most of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return transformers.modeling_outputs.ModelOutput(
            loss=nn.functional.cross_entropy(self.layers(x), labels)
        )


def perceptron() -> Any:
    return Perceptron(), {"x": torch.zeros(32, 256), "labels": torch.zeros(32, dtype=torch.long)}


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=False)


def adamw_of_lists(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=True)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, momentum=0.9, weight_decay=0.01)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters)


PLACES: dict[str, tuple[Callable[[], Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "bert": (bert, adamw),
    "gpt2": (gpt2, torch.optim.AdamW),
    "llama": (llama, momentum),
    "wide llama": (wide_llama, adamw),
    "wide llama, lists": (wide_llama, adamw_of_lists),
    "checkpointed llama": (checkpointed_llama, adamw),
    "t5": (t5, torch.optim.Adam),
    "vit": (vit, adamw_of_lists),
    "resnet": (resnet, momentum),
    "convnext": (convnext, torch.optim.AdamW),
    "perceptron": (perceptron, adamw),
    "perceptron, lists": (perceptron, adamw_of_lists),
    "perceptron, sgd": (perceptron, sgd),
    "perceptron, Adam": (perceptron, lambda p: torch.optim.Adam(p, amsgrad=True)),
    "perceptron, RMSprop": (perceptron, torch.optim.RMSprop),
}
"""Models with their batches, and optimizers."""


def made(name: str) -> tuple[nn.Module, dict[str, torch.Tensor], torch.optim.Optimizer]:
    """Return a model in training mode, its batch, and an optimizer that has made a step."""
    build, optimizer_of = PLACES[name]
    torch.manual_seed(0)
    model, batch = build()
    model.train()
    optimizer = optimizer_of(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return model, batch, optimizer


def tracked(
    model: nn.Module, batch: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> tuple[int, str]:
    """Return the peak of a step in bytes, as MemTracker sees it, and the pass that reaches it."""
    tracker = MemTracker()
    tracker.track_external(model, optimizer, *batch.values())
    peaks = {}

    def peak() -> int:
        snapshot = tracker.get_tracker_snapshot("peak")
        return max(
            (sum(v for k, v in one.items() if "Total" in str(k)) for one in snapshot.values()), default=0
        )

    with tracker:
        loss = model(**batch).loss
        peaks["forward"] = peak()
        loss.backward()
        peaks["backward"] = peak()
        optimizer.step()
        peaks["optimizer"] = peak()
    most = max(peaks.values())
    return most, next(name for name, value in peaks.items() if value == most)


def rows(names: Iterator[str] | list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each model."""
    for name in names:
        model, batch, optimizer = made(name)
        step = fxlab.trace_step(model, batch, optimizer=optimizer)
        use = fxlab.memory(step)
        ours = str(use.table["pass"][use.peak_node])
        theirs, place = tracked(model, batch, optimizer)
        yield {
            "model": name,
            "optimizer": type(optimizer).__name__,
            "fxlab_mib": use.peak / 2**20,
            "tracker_mib": theirs / 2**20,
            "ratio": use.peak / theirs,
            "fxlab_pass": ours,
            "tracker_pass": place,
        }


def main() -> None:
    """Compare, print, and write the row of the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(PLACES)}; all write the row")
    chosen = parser.parse_args().models
    transformers.utils.logging.set_verbosity_error()
    table = pd.DataFrame(rows(chosen or list(PLACES)))
    print(table.round(3).to_string(index=False))
    if chosen:
        return
    near = (table["ratio"] - 1).abs() <= NEAR
    alike = table["fxlab_pass"] == table["tracker_pass"]
    figure = f"{near.sum()} of {len(table)} peaks within {NEAR:.0%} of its, {alike.sum()} in the same pass"
    measured.write("python -m benchmarks.memory_use", figure, {"memory_use": table})


if __name__ == "__main__":
    main()
