"""A graph as a script that needs torch alone."""

import runpy
import subprocess
import sys

import pytest
import torch
from torch import nn

import fxlab


class Outputs(nn.Module):
    def forward(self, x):
        return {"a": x * float("inf"), "b": torch.where(x > 0, x, float("nan")), "c": x.to(torch.bfloat16)}


def compiled():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5)).train()
    return fxlab.compiler.compile_session(model, torch.randn(2, 4), training=True)


LAYERS = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
MADE = {
    "stage of a compile": (compiled, 3),
    "trace": (
        lambda: fxlab.Session(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 8, 8)),
        1,
    ),
    "large weights": (lambda: fxlab.Session(nn.Linear(300, 300), torch.randn(2, 300)), 1),
    "constants": (lambda: fxlab.Session(Outputs(), torch.randn(2, 3)), 3),
}


@pytest.mark.weekly
def test_each_script_runs_alone_and_compares(tmp_path):
    runs = {}
    for number, (name, (make, _)) in enumerate(MADE.items()):
        runs[name] = fxlab.testing.repro(make(), tmp_path / f"repro_{number}.py")
        assert "import fxlab" not in runs[name].read_text()
    # One process for all: most of the time is taken by importing torch.
    run = "import runpy, sys; [(print(p), runpy.run_path(p, run_name='__main__')) for p in sys.argv[1:]]"
    command = [sys.executable, "-c", run, *map(str, runs.values())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, script in runs.items():
        said = done.stdout.partition(f"{script}\n")[2].splitlines()[: MADE[name][1]]
        assert all(line.startswith("output ") for line in said)
        # The seeds of its dropout are Inductor's own; a convolution may be rounded otherwise.
        assert name == "stage of a compile" or all(float(line.split()[-1]) < 1e-6 for line in said)
    assert runs["large weights"].with_suffix(".pt").exists()


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()

    def forward(self, x):
        return self.dropout(x), torch.complex(x, x)


def test_a_graph_with_seeds_of_inductor_keeps_its_own_random_numbers(tmp_path):
    text = fxlab.testing.repro(compiled(), tmp_path / "seeds.py").read_text()
    assert "prims.inductor_seed" in text
    assert "fallback_random" not in text


def test_a_script_draws_the_same_numbers_twice_and_compares_imaginary_parts(tmp_path, monkeypatch, capsys):
    script = fxlab.testing.repro(fxlab.Session(Drawn(), torch.ones(50)), tmp_path / "repro.py")
    asked = []

    def conjugated(function, **options):
        asked.append(options)
        return lambda *args, **kwargs: [each.conj() for each in function(*args, **kwargs)]

    monkeypatch.setattr(torch, "compile", conjugated)
    runpy.run_path(str(script), run_name="__main__")
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["0", "2"]
    assert asked == [{"options": {"fallback_random": True}}]


def test_what_cannot_be_written_is_refused_in_words(tmp_path):
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match=r"ends in \.py"):
        fxlab.testing.repro(graph, tmp_path / "a.txt", inputs=torch.ones(2))
    (node,) = graph.graph.find_nodes(op="call_module")
    with graph.graph.inserting_after(node):
        new = graph.graph.call_function(lambda x: x, (node,))
    graph.graph.output_node().args = (new,)
    graph.recompile()
    with pytest.raises(ValueError, match="no package has under a name"):
        fxlab.testing.repro(graph, tmp_path / "a.py", inputs=torch.ones(2))
