"""Five questions about a compiled function, asked of fxlab and of torch's own tools.

``python -m benchmarks.compile_jobs`` writes a table. Each job is a script with one thing to find, which runs
in a process of its own for each tool: a graph break, a recompile, a condition on a size, a wrong pass over a
compiled optimizer, and a wrong split of the joint graph. A
tool has found it if its output has the words that name the cause; a graph or code that is printed whole
accuses nothing. TORCH_TRACE is the log that tlparse shows as pages.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import measured

SECONDS = 900
START = """
import torch, warnings
from torch import nn
warnings.simplefilter("ignore")
torch.manual_seed(0)
aten = torch.ops.aten
"""
RECORDED = """
import fxlab
with fxlab.compiler.record_compile() as record:
    run()
print(record.story().to_string())
"""
BISECTOR = """
from torch._inductor.compiler_bisector import CompilerBisector
def test():
    torch._dynamo.reset()
    return is_right()
torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False
print(CompilerBisector.do_bisect(test))
"""


@dataclass(frozen=True)
class Job:
    """Something to be found in a compile."""

    name: str
    script: str
    """Defines ``run``, and ``is_right`` where numbers tell."""
    words: tuple[str, ...]
    """The words that name the cause, each with others for it."""
    fxlab: str = RECORDED
    steps: int = 1
    """Calls of fxlab, beside those of the script itself."""
    logs: str = ""
    """The logs of torch that are about it."""


JOBS = (
    Job(
        "break",
        """
def step(x):
    x = x + 1
    print("here")
    return x.cos()
def run():
    torch.compile(step, backend="eager")(torch.ones(3))
""",
        ('print("here")',),
        logs="graph_breaks",
    ),
    Job(
        "recompile",
        """
class Cache:
    pos = 0
cache = Cache()
def step(x):
    return x[cache.pos] + 1
def run():
    compiled = torch.compile(step, backend="eager", dynamic=False)
    for cache.pos in range(3):
        compiled(torch.ones(3, 2))
""",
        ("pos", "return x[cache.pos] + 1"),
        logs="recompiles_verbose",
    ),
    Job(
        "condition on a size",
        """
def step(x):
    if x.size(0) == 5:
        return x * 2
    return x + 1
def run():
    torch.compile(step, backend="eager", dynamic=True)(torch.ones(4, 2))
""",
        ("if x.size(0) == 5",),
        logs="dynamic",
    ),
    Job(
        "wrong pass over an optimizer",
        """
def careless(graph):
    for node in graph.find_nodes(op="call_function", target=aten.sqrt.default)[:1]:
        with graph.inserting_after(node):
            new = graph.call_function(aten.mul.Tensor, (node, 1.01))
        node.replace_all_uses_with(new, lambda user: user is not new)
        new.meta.update(node.meta)
def made():
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(4, 4))
    parameter.grad = torch.randn(4, 4)
    return parameter, torch.optim.AdamW([parameter], lr=0.1)
options = {"post_grad_custom_post_pass": careless}
def is_right():
    (eager, first), (compiled, second) = made(), made()
    first.step()
    torch.compile(second.step, options=options)()
    return torch.allclose(eager, compiled, atol=1e-5)
run = is_right
""",
        ("careless|post_grad_custom_post_pass",),
        """
import fxlab
with fxlab.compiler.record_compile() as record:
    run()
session = next(iter(record.sessions.values()))
print(fxlab.bisect(session))
""",
        3,
        "post_grad_graphs",
    ),
    Job(
        "wrong split",
        """
from functorch.compile import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn
class Careless(CustomPartitionerFn):
    def __call__(self, gm, joint_inputs, **kwargs):
        forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        node = backward.graph.find_nodes(op="call_function", target=aten.mm.default)[0]
        with backward.graph.inserting_after(node):
            new = backward.graph.call_function(aten.mul.Tensor, (node, 1.1))
        new.meta.update(node.meta)
        node.replace_all_uses_with(new, lambda user: user is not new)
        backward.recompile()
        return forward, backward
    def uuid(self):
        return None
model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(3, 4)
options = {"custom_partitioner_fn": Careless()}
def gradient(function):
    model.zero_grad()
    function(x).sum().backward()
    return model[0].weight.grad.clone()
def is_right():
    return torch.allclose(gradient(torch.compile(model, options=options)), gradient(model), atol=1e-5)
run = is_right
""",
        ("AOTAutograd/partition|partitioner",),
        """
import fxlab
session = fxlab.compiler.compile_session(model, x, training=True, options=options)
print(fxlab.bisect(session))
""",
        2,
        "aot_graphs",
    ),
)


def asked(job: Job) -> Iterator[dict[str, Any]]:
    """Ask each tool, and yield a row for each."""
    yield row(job, "fxlab", job.fxlab, job.steps, {})
    yield row(job, "TORCH_LOGS", "run()", 1, {"TORCH_LOGS": job.logs})
    with tempfile.TemporaryDirectory() as folder:
        yield row(job, "TORCH_TRACE", "run()", 2, {"TORCH_TRACE": folder}, Path(folder))
    if "is_right" in job.script:
        yield row(job, "CompilerBisector", BISECTOR, 2, {})


def row(
    job: Job, tool: str, script: str, steps: int, environment: dict[str, str], folder: Path | None = None
) -> dict[str, Any]:
    """Run a script with a tool, and tell whether it names the cause."""
    with tempfile.TemporaryDirectory() as cache:
        path = Path(cache) / "job.py"
        path.write_text(START + job.script + script, "utf-8")
        known = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/code", "OMP_NUM_THREADS": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, str(path)],
            env=os.environ | known | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = done.stdout if tool in ("fxlab", "CompilerBisector") else done.stderr
    if folder is not None:
        text = "".join(file.read_text("utf-8") for file in folder.iterdir())
        text = text.replace('\\"', '"')
    if tool == "CompilerBisector":
        text = text.rstrip().rpartition("\n")[2]  # its answer, after what it has tried
    is_printed_whole = tool.startswith("TORCH_") and "is_right" in job.script
    is_found = not is_printed_whole and all(
        any(word in text for word in words.split("|")) for words in job.words
    )
    return {"job": job.name, "tool": tool, "names it": is_found, "steps": steps, "seconds": round(seconds, 1)}


def main() -> None:
    """Ask all, print the table, and write it."""
    names = sys.argv[1:]
    rows = [row for job in JOBS if not names or job.name in names for row in asked(job)]
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if not names:
        found = table.groupby("tool", sort=False)["names it"].sum()
        figure = f"of {len(JOBS)} jobs found: " + ", ".join(
            f"{tool} {count}" for tool, count in found.items()
        )
        measured.write(
            "python -m benchmarks.compile_jobs",
            figure,
            {"compile_jobs": table},
            made_with=measured.versions("torch"),
        )


if __name__ == "__main__":
    main()
