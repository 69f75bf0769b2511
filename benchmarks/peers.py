"""The first picture and validation beside other people's tools, on the same model in the same process.

They are no development dependencies, so they are installed into an environment of their own, which sees the
development environment's packages: ``python -m benchmarks.peers`` makes it in ``.venv-peers`` when it is not
there, runs itself in it, and prints its rows as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch.fx import GraphModule
from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

import fxlab
from benchmarks.measure import Comparison, measured
from fxlab.graph_module import share_tensors_copy

ENVIRONMENT = Path(__file__).parents[1] / ".venv-peers"
PACKAGES = ("torchview==0.2.7", "torchlens==2.36.1", "pydot==4.0.1", "pyparsing==3.3.3")


def main() -> None:
    """Measure in the environment that has the peers; make it first if need be."""
    python = ENVIRONMENT / "bin" / "python"
    if Path(sys.prefix) != ENVIRONMENT:
        if not python.exists():
            make_environment(python)
        raise SystemExit(subprocess.call([str(python), "-W", "ignore", "-m", "benchmarks.peers"]))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for comparison in comparisons():
        print(json.dumps(measured(comparison)), flush=True)


def make_environment(python: Path) -> None:
    """Make an environment with the peers alone that finds everything else in this one."""
    venv.create(ENVIRONMENT)
    packages = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    found_there = sysconfig.get_path("purelib"), ENVIRONMENT.parent
    (packages / "development.pth").write_text("".join(f"{path}\n" for path in found_there))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, *PACKAGES], check=True, stdout=sys.stderr)


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    models = {"BERT-base": BertModel(BertConfig()), "ResNet-50": ResNetModel(ResNetConfig())}
    for name, model in models.items():
        inputs = fxlab.example_inputs(model.eval())
        graph_module = fxlab.symbolic_trace(model, inputs, check=False)
        yield Comparison(
            f"picture of the graph of {name}",
            "FxGraphDrawer and dot",
            partial(drawn, graph_module),
            partial(drawn_by_torch, graph_module),
            rounds=3,
        )
        yield Comparison(
            f"from {name} to its first picture",
            "torchview and dot",
            lambda model=model, inputs=inputs: drawn(fxlab.symbolic_trace(model, inputs, check=False)),
            partial(drawn_by_torchview, model, inputs),
            rounds=3,
        )
    bert = models["BERT-base"]
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


def drawn(graph_module: GraphModule) -> str:
    """Draw by fxlab."""
    return fxlab.draw(graph_module).svg


def drawn_by_torch(graph_module: GraphModule) -> bytes:
    """Draw every node, by what torch has for that."""
    from torch.fx.passes.graph_drawer import FxGraphDrawer

    return laid_out(FxGraphDrawer(graph_module, "model").get_dot_graph().to_string())


def drawn_by_torchview(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> bytes:
    """Run a model and draw its modules and functions."""
    from torchview import draw_graph

    return laid_out(draw_graph(model, input_data=inputs, expand_nested=True).visual_graph.source)


def laid_out(dot: str) -> bytes:
    """Lay out by the Graphviz that fxlab uses as well."""
    import pygraphviz

    return pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot")


def logged_by_torchlens(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], object]:
    """Return what runs a model and keeps the value of each of its operations."""
    import torchlens

    log = getattr(torchlens, "log_forward_pass", None) or torchlens.trace
    return lambda: log(model, [], inputs)


if __name__ == "__main__":
    main()
