"""Right uses of the public API: each result has a type that checkers know."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import pandas as pd
import torch
from torch import nn
from torch.fx import GraphModule

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBiasInLinear,
    MergeLinears,
    Session,
    Transformation,
    compose,
)
from fxlab.comparison.comparison import Comparison
from fxlab.drawing.drawing import Drawing
from fxlab.notebook.inspector import Inspector
from fxlab.validation import Bisection, Divergence, Evaluation, MemoryUse, NodeValues, Times, Verdict

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
x = torch.ones(2, 4)


def count(graph_module: GraphModule) -> int:
    return len(graph_module.graph.nodes)


assert_type(fxlab.symbolic_trace(model, x), GraphModule)
assert_type(fxlab.trace_step(model, x, loss=torch.sum), GraphModule)
session = Session(model, x, passes=[MergeLinears(), "fuse-bias-in-linear", count], dynamic=False)
assert_type(session, Session)
assert_type(session.apply("merge-linears", FuseBiasInLinear(), count), Session)
assert_type(session.revert().undo().redo(), Session)
assert_type(session.exclude("merge-linears", "linear"), Session)
assert_type(session.add(ChangeTrueDivToMulByInverse()), Session)
assert_type(session.graph_module, GraphModule)
assert_type(session.stages, tuple[GraphModule, ...])
assert_type(session.applied.names, tuple[str, ...])
assert_type(session.explain("merge-linears"), pd.DataFrame)
assert_type(session.why_not("merge-linears", "linear"), pd.DataFrame)
assert_type(session.verdict(variants=True), Verdict)
assert_type(session.evaluate([x, x]), Evaluation)
assert_type(session.save("stack.json"), Path)
assert_type(session.to_python(), str)
assert_type(fxlab.draw(session, overlay="time", highlight=["linear"]), Drawing)
assert_type(fxlab.inspect(session, height=400), Inspector)
assert_type(fxlab.report(session, "report.html", measure=False), Path)
assert_type(fxlab.verdict(model, model, x, gradients=True), Verdict)
assert_type(fxlab.compare(model, model, x), Comparison)
assert_type(fxlab.first_divergence(model, model, x), Divergence | None)
assert_type(fxlab.bisect(session), Bisection | None)
assert_type(fxlab.nodes(session, "linear"), pd.DataFrame)
assert_type(fxlab.node_values(session, "linear"), NodeValues)
assert_type(fxlab.memory(session), MemoryUse)
assert_type(fxlab.benchmark(session, rounds=3), Times)
assert_type(compose(MergeLinears(), FuseBiasInLinear()), Transformation)
assert_type(fxlab.register(MergeLinears()), Transformation)
assert_type(fxlab.as_backend(session), Callable[..., Any])
