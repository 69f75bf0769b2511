"""``fxlab doctor``: installed packages, the parts of fxlab that work with them, and the passes on offer."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement

from fxlab._version import __version__
from fxlab.command_line.answer import Answer, ExitCode

if TYPE_CHECKING:
    from fxlab.session import Session


class _Finding(NamedTuple):
    """A line of the answer; the advice is empty where all is well."""

    what: str
    found: str
    works: bool
    is_needed: bool
    to_do: str

    @property
    def word(self) -> str:
        return "yes" if self.works else "no" if self.is_needed else "not here"


def doctor(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Compare versions with those that fxlab asks for, and try each part of it on a small model."""
    import pandas as pd

    from fxlab.transformations import offered

    packages = _packages()
    tried = [_tried(*trial) for trial in _TRIALS]
    columns = ["what", "found", "works", "what to do"]
    facts = {
        "fxlab": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "executable": sys.executable,
        "devices": _devices(),
        "compiler": shutil.which("c++") or "none, which only torch.compile needs",
    }
    tables = {
        name: pd.DataFrame([(f.what, f.found, f.word, f.to_do) for f in findings], columns=columns)
        for name, findings in (("packages", packages), ("parts", tried))
    }
    tables["passes"] = offered().table.reset_index()
    is_well = all(finding.works for finding in (*packages, *tried) if finding.is_needed)
    return Answer(facts, tables), ExitCode.DONE if is_well else ExitCode.FAULTY


def _packages() -> list[_Finding]:
    try:
        return [_package(Requirement(text)) for text in requires("fxlab") or ()]
    except PackageNotFoundError:
        return [_Finding("fxlab", "a folder that is not installed", False, True, "pip install fxlab")]


def _package(requirement: Requirement) -> _Finding:
    marker = str(requirement.marker)
    extra = next((name for name in _EXTRAS if f'extra == "{name}"' in marker), "")
    asked = f"{requirement.name}{requirement.specifier}"
    wanted = f'"fxlab[{extra}]"' if extra else f'"{asked}"'
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        to_do = f"pip install {wanted}" + (f", for {_EXTRAS[extra]}" if extra else "")
        return _Finding(requirement.name, "none", False, not extra, to_do)
    works = requirement.specifier.contains(installed, prereleases=True)
    to_do = "" if works else f"pip install --upgrade {wanted}"
    return _Finding(requirement.name, installed, works, not extra, to_do)


def _tried(what: str, trial: Callable[[], str], is_needed: bool, to_do: str) -> _Finding:
    try:
        return _Finding(what, trial(), True, is_needed, "")
    except Exception as error:  # any error of an installation is a finding
        words = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        return _Finding(what, words, False, is_needed, to_do)


def _small_session() -> Session:
    import torch

    from fxlab.session import Session

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    return Session(model, (torch.ones(2, 4, device="cpu"),))


def _trace_and_judge() -> str:
    session = _small_session()
    session.apply("fuse-bias-in-linear")
    return str(session.verdict().status.value)


def _trace_bert() -> str:
    from transformers import BertConfig, BertModel

    from fxlab.tracing.symbolic_trace import symbolic_trace

    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    return f"{len(symbolic_trace(BertModel(config).eval()).graph.nodes)} nodes"


def _private_names() -> str:
    from fxlab.base.torch_private import MISSING
    from fxlab.tracing.torch_private import require_all

    require_all()
    if MISSING:
        raise LookupError("; ".join(f"torch has no {name}: {lost}" for name, lost in MISSING.items()))
    return "all there"


def _draw() -> str:
    from fxlab.drawing import draw

    return f"{len(draw(_small_session().graph_module).svg):,} characters of SVG"


def _report() -> str:
    from fxlab.html_report.report import report

    with tempfile.TemporaryDirectory() as folder:
        return f"{report(_small_session(), path=Path(folder, 'report.html')).stat().st_size:,} bytes"


def _inspect() -> str:
    from fxlab.notebook import Inspector

    Inspector(_small_session()).close()
    return "a widget"


def _devices() -> str:
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *names])


_EXTRAS = {"notebook": "the inspector", "transformers": "configurations and names of models"}
"""Extras of fxlab, and their purposes."""

_TRIALS: tuple[tuple[str, Callable[[], str], bool, str], ...] = (
    ("trace, apply a pass, judge", _trace_and_judge, True, "reinstall torch and fxlab"),
    ("private names of torch", _private_names, False, "use a torch that fxlab is tested with"),
    ("models of transformers", _trace_bert, False, 'pip install --upgrade "fxlab[transformers]"'),
    ("draw", _draw, True, "pip install --force-reinstall pygraphviz"),
    ("report", _report, True, "pip install --force-reinstall fxlab"),
    ("inspector", _inspect, False, 'pip install "fxlab[notebook]", and restart Jupyter'),
)
"""The name of a trial, its function, whether fxlab is of no use without it, and the advice if it fails."""
