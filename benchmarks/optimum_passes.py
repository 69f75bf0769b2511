"""Merging and parting the linears of BERT-base, beside optimum.fx, on the same graph in the same process.

optimum is no development dependency, so it is installed into an environment of its own, which sees the
development environment's packages: ``python -m benchmarks.optimum_passes`` makes it in ``.venv-optimum`` when
it is not there, and runs itself in it.
"""

import copy
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch.fx import GraphModule
from transformers import BertConfig, BertModel

import fxlab
from benchmarks.measure import Comparison, measured

ENVIRONMENT = Path(__file__).parents[1] / ".venv-optimum"
OPTIMUM = "optimum==2.3.0"


def main() -> None:
    """Measure in the environment that has optimum; make it first if need be."""
    python = ENVIRONMENT / "bin" / "python"
    if Path(sys.prefix) != ENVIRONMENT:
        if not python.exists():
            make_environment(python)
        raise SystemExit(subprocess.call([str(python), "-m", "benchmarks.optimum_passes"]))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = [measured(comparison) for comparison in comparisons()]
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def make_environment(python: Path) -> None:
    """Make an environment with optimum alone that finds everything else in this one."""
    venv.create(ENVIRONMENT)
    packages = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    found_there = sysconfig.get_path("purelib"), ENVIRONMENT.parent
    (packages / "development.pth").write_text("".join(f"{path}\n" for path in found_there))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", OPTIMUM]
    subprocess.run(pip, check=True)


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
            OPTIMUM,
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


if __name__ == "__main__":
    main()
