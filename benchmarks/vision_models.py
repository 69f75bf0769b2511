"""Tracing the vision models of timm, beside ``torch.export`` with a dynamic batch size: processor time."""

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.export import Dim

import fxlab
from benchmarks.measure import Comparison, Seconds
from fxlab.tracing import TraceWarning

MODELS = (
    "resnet18",
    "vit_tiny_patch16_224",
    "levit_128s",
    "swin_tiny_patch4_window7_224",
    "coatnet_pico_rw_224",
    "maxvit_rmlp_pico_rw_256",
)


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared: each model with the checks of its trace, and without."""
    import timm

    warnings.simplefilter("ignore", TraceWarning)
    for name in MODELS:
        model = timm.create_model(name, pretrained=False).eval()
        images = torch.randn(2, *model.default_cfg["input_size"])
        for words, check in (("with its checks", True), ("without checks", False)):
            yield Comparison(
                f"trace {name} {words}",
                "torch.export.export",
                processor_time(lambda m=model, x=images, c=check: fxlab.symbolic_trace(m, x, check=c)),
                processor_time(lambda m=model, x=images: exported(m, x)),
                rounds=3,
            )


def processor_time(task: Callable[[], Any]) -> Callable[[], Seconds]:
    """Return a task that takes the seconds which the processor spends on another."""

    def run() -> Seconds:
        gc.collect()
        start = time.process_time()
        task()
        return Seconds(time.process_time() - start)

    return run


def exported(model: nn.Module, images: torch.Tensor) -> torch.export.ExportedProgram:
    """Export an image model for any batch size and this height and width."""
    return torch.export.export(model, (images,), dynamic_shapes=({0: Dim("batch", max=1024)},))
