"""The public names: each is in docs/reference.md once, with its signature, in one vocabulary."""

import inspect
import operator
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import fxlab
from fxlab.other_names import OF_FXLAB, OF_SESSIONS

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"^\.\. auto\w+:: ([\w.]+)\n(?:   :members: (.*)\n)?", re.M)
PUBLIC = [
    *(f"fxlab.{name}" for name in fxlab.__all__ if name != "__version__"),
    *(f"fxlab.rewriting.{name}" for name in fxlab.rewriting.__all__),
    *(f"fxlab.overlays.{name}" for name in fxlab.overlays.__all__),
    *(f"fxlab.transformations.{name}" for name in ("Match", "available", "installed", "offered")),
    # What few need.
    *("fxlab.transformations.FuseBatchNorm1dInConv1d", "fxlab.transformations.FuseBatchNorm3dInConv3d"),
    "fxlab.transformations.FuseBatchNormInConvTranspose",
    *("fxlab.validation.Reference", "fxlab.validation.Status", "fxlab.validation.compare_stages"),
    *("fxlab.validation.input_variants", "fxlab.validation.model_cost"),
    "fxlab.deployment.files.ExportError",
    # Results of functions, which nobody makes.
    *("fxlab.comparison.FirstDifference", "fxlab.comparison.RecordedRun", "fxlab.drawing.Drawing"),
    *("fxlab.compiler.CompileRecord", "fxlab.compiler.PassRecord", "fxlab.deployment.files.ExportedFile"),
    *("fxlab.graphs.changes_made.Changes", "fxlab.graphs.changes_made.changes_made"),
    *("fxlab.graphs.code_diff.CodeDiff", "fxlab.tracing.CapturedGraph", "fxlab.tracing.TraceReport"),
    *(
        "fxlab.steps.StepLoop",
        "fxlab.steps.StepsCompared",
        "fxlab.tracing.GraphBreak",
    ),
    *(
        f"fxlab.validation.{name}"
        for name in (
            *("Bisection", "Cost", "Divergence", "Evaluation", "Histogram", "MemoryUse", "NodeValues"),
            *("Slice", "Statistics", "TensorValue", "Times", "Variants", "WorstBatch"),
        )
    ),
]
ORDER = (
    *("session", "model", "reference", "candidate", "graph_module", "original", "transformed", "inputs"),
    *("path", "passes", "pass_"),
)
"""The names of the arguments that most functions have, in their order."""
OTHER_NAMES = {"gm", "p", "what", "a", "b", "transformation", "model_or_session"}
"""Names that arguments had, for which there is one above."""


ENTRIES = ENTRY.findall((ROOT / "docs/reference.md").read_text())
LISTED = [name for name, _ in ENTRIES]
MEMBERS = [f"{name}.{member}" for name, members in ENTRIES for member in filter(None, members.split(", "))]


def named(full_name: str):
    value = fxlab
    for part in full_name.removeprefix("fxlab.").split("."):
        if inspect.ismodule(value) and not hasattr(value, part):  # nothing has imported it yet
            value = import_module(f"{value.__name__}.{part}")
        else:
            value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def parameters(value) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(value).parameters.values() if p.name not in ("self", "cls")]


def test_the_reference_has_each_public_name_once():
    assert sorted(LISTED) == sorted(PUBLIC)
    assert len(set(MEMBERS)) == len(MEMBERS)


@pytest.mark.parametrize("name", [*LISTED, *MEMBERS])
def test_arguments_have_one_name_and_one_order(name):
    value = named(name)
    if not inspect.isfunction(value):
        return
    given = [p.name for p in parameters(value) if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert OTHER_NAMES.isdisjoint(p.name for p in parameters(value))
    is_assertion = name.startswith("fxlab.expect")  # its subject, the pass, comes first
    if name in LISTED and name.count(".") == 1 and not is_assertion:
        known = [argument for argument in given if argument in ORDER]
        assert known == sorted(known, key=ORDER.index)


def test_what_is_public_is_known_without_importing_torch():
    code = "import fxlab, sys; dir(fxlab); fxlab.__all__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each module is reached in a fork")
def test_modules_are_reached_after_importing_fxlab_alone():
    names = ["rewriting", "overlays", "transformations", "validation", "tracing"]
    code = f"""
import os, torch, fxlab
for name in {names}:
    if os.fork() == 0:
        assert getattr(fxlab, name).__all__
        os._exit(0)
    assert os.wait()[1] == 0, name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_names_of_passes_are_those_of_their_table():
    passes = fxlab.transformations.passes
    own = {*fxlab._EXPORTS["transformations.passes"].split()}
    assert own | {name for name in passes.__all__ if name in OF_FXLAB} == {*passes.__all__}
    assert own.isdisjoint(OF_FXLAB)
    assert {cls.__name__ for cls in fxlab.transformations.available()} < {*passes.__all__}


def test_what_other_names_stand_for_is_there():
    for other in OF_FXLAB:
        assert getattr(fxlab, other) is not None
    session = fxlab.Session(torch.fx.symbolic_trace(nn.ReLU()), torch.ones(2))
    for own in {*OF_SESSIONS.values()}:
        owners = session, fxlab.CompileSession, fxlab
        assert any(hasattr(owner, own) for owner in owners) or operator.attrgetter(own)(fxlab)


def test_only_the_height_of_an_inspector_is_a_public_trait():
    traits = fxlab.Inspector.class_own_traits(sync=True) | fxlab.Inspector.class_traits(sync=True)
    own = {name for name in traits if not name.startswith("_")} - {"comm", "keys", "layout", "tabbable"}
    assert own - {"tooltip"} == {"height"}


COMPARISONS = {
    "verdict": lambda found: found.status,
    "compare_outputs": lambda found: found.to_csv(),
    "compare_nodes": lambda found: found.to_csv(),
    "first_divergence": str,
    "graph_diff": lambda found: found.to_csv(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_take_modules_graph_modules_and_sessions(name):
    compare, text = getattr(fxlab, name), COMPARISONS[name]
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    x = torch.randn(3, 4)
    session = fxlab.Session(model, x)
    session.apply("fuse-bias-in-linear")
    expected = text(compare(session.original, session.graph_module, x))
    assert text(compare(session)) == expected
    assert text(compare(session.original, session)) == expected
    assert text(compare(session, session)) == text(compare(session.graph_module, session.graph_module, x))
    untraced = compare(model, session.graph_module, x)
    assert type(untraced) is type(compare(session))
    if name not in ("compare_nodes", "graph_diff"):
        assert text(untraced) == expected
