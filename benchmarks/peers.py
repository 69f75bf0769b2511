"""Run the suites that compare fxlab with other people's tools.

The tools are no development dependencies, so they are installed into an environment of their own, which sees
the development environment's packages: it is made in ``.venv-peers`` when it is not there. Each suite runs in
it and prints its rows as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.environments import python_with

PACKAGES = (
    "optimum==2.3.0",
    "torchview==0.2.7",
    "torchlens==2.36.1",
    "torchvista==0.2.13",
    "ai-edge-model-explorer==0.1.34",
    "ai-edge-model-explorer-adapter==0.2.1",
    "dacite==1.9.2",
    "flask==3.1.3",
    "blinker==1.9.0",
    "werkzeug==3.1.9",
    "portpicker==1.6.0",
    "termcolor==3.3.0",
    "watchdog==7.1.0",
    "pydot==4.0.1",
    "pyparsing==3.3.3",
    "timm==1.0.31",
    "torchvision==0.29.1",
)


def rows(suite: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a suite, which runs in the environment that has the peers."""
    command = [str(python_with(".venv-peers", PACKAGES)), "-W", "ignore", "-m", "benchmarks.peers", suite]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
    if process.returncode:
        print(f"{suite} ended with {process.returncode}: its other comparisons are missing.", file=sys.stderr)


def let_torchvision_be_imported() -> None:
    """Declare operators that torchvision, whose library is for another build of torch, would not find."""
    import torch

    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou) -> Tensor")


def main() -> None:
    """Measure a suite in the environment that has the peers."""
    import torch
    from transformers.utils import logging

    let_torchvision_be_imported()
    from benchmarks import explorer, first_picture, optimum_passes, pictures, values, vision_models
    from benchmarks.measure import compared

    suites = {
        "optimum_passes": optimum_passes,
        "pictures": pictures,
        "explorer": explorer,
        "first_picture": first_picture,
        "values": values,
        "vision_models": vision_models,
    }
    logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for comparison in suites[sys.argv[1]].comparisons():
        print(json.dumps(compared(comparison)), flush=True)


if __name__ == "__main__":
    main()
