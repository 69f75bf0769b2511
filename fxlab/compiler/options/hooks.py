"""Options that Inductor's passes read, and torch's words on them: both from the source of this torch.

The private facts are where passes and options stand: ``torch._inductor.fx_passes`` and ``config.py``.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fxlab.compiler.recording.recorder import PHASES

_FILES = {phase: f"{phase}{'_graph' * (phase == 'joint')}.py" for phase in PHASES}
_CONFIGS = ("config", "inductor_config", "torch._inductor.config")
_ROOTS = {name.partition(".")[0] for name in _CONFIGS}
_ELSEWHERE = {"freezing": "Dynamo reads it too. Set torch._inductor.config.freezing before the compile"}
"""Options that not only passes read, and why they cannot be switched."""


OF_AUTOGRAD = ("activation_memory_budget",)
"""Options of AOTAutograd: the share of activations that is kept for the backward pass."""


@dataclass(frozen=True)
class Option:
    """An option that passes read."""

    name: str
    phases: tuple[str, ...]
    """Those whose passes read it."""
    place: str
    """The file and line where it is read first."""
    description: str
    """The comment above it; empty if there is none."""
    fixed: str
    """Why it cannot be switched; empty if it can."""


@functools.cache
def options_of_passes() -> dict[str, Option]:
    """Return the on/off options that the files of the phases, or those that they import, read."""
    # Torch does not say which passes read an option: only its source does.
    folder, comments = _package() / "fx_passes", _comments(_package() / "config.py")
    if not folder.is_dir():
        return {}
    known = values()
    found: dict[str, tuple[list[str], str]] = {}
    for phase, name in _FILES.items():
        own = folder / name
        if not own.exists():
            continue
        imported = sorted(folder / f"{other}.py" for other in _imported(_tree(own)))
        for file in (own, *(file for file in imported if file.exists() and file.name not in _FILES.values())):
            for option, line in _reads(_tree(file)):
                if isinstance(known.get(option), bool):
                    phases, _ = found.setdefault(option, ([], f"{file.name}:{line}"))
                    phases += [phase] if phase not in phases else []
    return {
        name: Option(name, tuple(phases), place, comments.get(name, ""), _ELSEWHERE.get(name, ""))
        for name, (phases, place) in sorted(found.items())
    }


def values() -> dict[str, Any]:
    """Return all options of Inductor as they are now, and those of AOTAutograd that are taken as well."""
    from torch._functorch import config as of_autograd
    from torch._inductor import config

    return {name: getattr(of_autograd, name) for name in OF_AUTOGRAD} | config.get_config_copy()


def mode_options(mode: str) -> dict[str, Any]:
    """Return the options that a mode of ``torch.compile`` stands for; ``ValueError`` if there is none."""
    known: dict[str, dict[str, Any]] = torch._inductor.list_mode_options()
    known = {"default": {}, **known}
    if mode not in known:
        raise ValueError(f"mode: torch.compile has no mode {mode!r}; it has {', '.join(known)}.")
    return dict(known[mode])


def _package() -> Path:
    spec = find_spec("torch._inductor")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _imported(tree: ast.Module) -> set[str]:
    """Return the names of files of the same folder that a file imports anywhere."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    whole = {node.module.partition(".")[0] for node in nodes if node.module}
    return whole | {alias.name for node in nodes if not node.module for alias in node.names}


def _reads(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each read of an option, and its line, in the order of lines."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _root(node) in _ROOTS]
    for node in sorted(nodes, key=lambda node: node.lineno):
        words = ast.unparse(node)
        for config in _CONFIGS:
            if words.startswith(f"{config}."):
                yield words.removeprefix(f"{config}."), node.lineno


def _root(node: ast.expr) -> str:
    """Return the name that an expression with dots begins with; empty if it begins with something else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _comments(file: Path) -> dict[str, str]:
    """Return the comment above each option: those of one group, without a line between, have one."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[f"{prefix}{target.id}"] = _above(lines, node.lineno - 1)

    collect(_tree(file).body, "")
    return found


def _above(lines: list[str], line: int) -> str:
    words: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        words.insert(0, lines[line].strip().lstrip("#").strip())
    return " ".join(word for word in words if word)
