"""A graph that exists already is drawn, transformed and judged without the tracer, Dynamo and Inductor."""

import json
import textwrap
import tomllib
from pathlib import Path

import pytest
from fresh_python import run

MODEL = """
    import json, sys
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) / 3 + self.b(x)

    graph, x = torch.fx.symbolic_trace(Model().eval()), torch.ones(2, 4)
    before = {*sys.modules}
    import fxlab
"""
USES = {
    "pass": ("assert len(fxlab.MergeLinears()(graph).graph.nodes) > 6", 60),
    "drawing": ("assert len(fxlab.draw(graph).view.boxes) > 4", 70),
    "session": ("assert len(fxlab.Session(graph, x).passes) > 15", 135),
    "verdict": ("assert fxlab.verdict(graph, graph, x).status == 'same bits'", 120),
}
"""A use of fxlab -> code, and how many modules of fxlab it may import: some more than it does."""


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
def test_a_graph_needs_neither_the_tracer_nor_dynamo(use):
    code, most = USES[use]
    told = "print(json.dumps(sorted({*sys.modules} - before)))"
    imported = json.loads(run(f"{textwrap.dedent(MODEL)}{code}\n{told}"))
    heavy = ("torch._dynamo", "torch._inductor", "fxlab.tracing", "transformers", "IPython")
    assert [name for name in imported if name.startswith(heavy)] == []
    assert len([name for name in imported if name.partition(".")[0] == "fxlab"]) <= most


FIRST_PICTURE = """
    import json, sys
    import torch
    import torch._dynamo.source  # torch's own symbols for sizes need it

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x, mask):
            return self.a(x) * mask[:, None] + self.b(x.flip(0)).view(x.shape[0], -1)

    before = {*sys.modules}
    import fxlab
    model, inputs = Model(), (torch.ones(3, 4), torch.ones(3))
    assert "Linear" in {picture}.svg
    print(json.dumps(sorted({*sys.modules} - before)))
"""


PICTURES = {
    "drawing": (
        "fxlab.draw(fxlab.symbolic_trace(model, inputs))",
        ("IPython", "graphviz", "pandas", "fxlab.tracing.dynamo"),
        150,
    ),
    # Whatever a table is made of is imported when one is asked for.
    "inspector": ("fxlab.inspect(model, inputs)", ("pandas", "fxlab.validation.nodes"), 460),
}
"""A first picture -> its code, packages that it does without, and how many modules it may import."""


@pytest.mark.slow
@pytest.mark.parametrize("picture", PICTURES)
def test_a_first_picture_needs_neither_tables_nor_compilers(picture):
    code, without, most = PICTURES[picture]
    imported = json.loads(run(FIRST_PICTURE.replace("{picture}", code)))
    heavy = ("torch._dynamo", "torch._inductor", "torch.export", "networkx", "transformers", *without)
    assert [name for name in imported if name.startswith(heavy)] == []
    assert len(imported) <= most


def test_an_installation_has_no_entry_points_but_the_command():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert "entry-points" not in project
    assert [*project["scripts"]] == ["fxlab"]


QUIET = """
    import sys
    import torch, torch.optim.optimizer as optimizer

    before = dict(optimizer._global_optimizer_post_hooks), torch.compile, torch.nn.Module.__call__
    import fxlab
    assert "pandas" not in sys.modules
    fxlab.MergeLinears, fxlab.verdict, fxlab.symbolic_trace
    import fxlab.session, fxlab.models.state.tensor_state
    read = [name for name in sys.modules if name in ("IPython", "transformers")]
    assert read == [], read
    assert before == (optimizer._global_optimizer_post_hooks, torch.compile, torch.nn.Module.__call__)
"""


@pytest.mark.slow
def test_an_import_listens_to_nothing():
    run(QUIET)
