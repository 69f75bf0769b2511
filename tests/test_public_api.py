"""The public names: one stub lists them, and completion offers them and no others."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import fxlab
from fxlab.base.hints import MOVED
from fxlab.notebook.inspector import Inspector

ROOT = Path(__file__).parents[1]
STUB = (ROOT / "fxlab/__init__.pyi").read_text()
MODULES = ("compiler", "overlays", "rewriting", "runs", "steps", "testing")
ORDER = ("session", "model", "reference", "candidate", "graph", "inputs", "passes", "pass_")
"""The names of the arguments that most functions have, in their order."""


def session():
    return fxlab.Session(lambda x: torch.relu(x) / 2, torch.ones(2))


def public_functions():
    places = [
        (fxlab, fxlab.__all__),
        *((getattr(fxlab, name), getattr(fxlab, name).__all__) for name in MODULES),
    ]
    found = {id(getattr(place, name)): getattr(place, name) for place, names in places for name in names}
    members = [value for name, value in vars(fxlab.Session).items() if not name.startswith("_")]
    return [each for each in (*found.values(), *members, fxlab.Session.__init__) if inspect.isfunction(each)]


def test_the_stub_lists_what_completion_offers_and_no_more():
    imported = [
        (statement.module, name.name)
        for statement in ast.parse(STUB).body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    ]
    names = {name for module, name in imported if module != "fxlab"} | {"__version__"}
    assert {name for module, name in imported if module == "fxlab"} == {*MODULES}
    assert dir(fxlab) == fxlab.__all__ == sorted(names)
    assert len(fxlab.__all__) <= 64


def test_a_session_has_few_members():
    assert len([name for name in dir(session()) if not name.startswith("_")]) <= 34


def test_each_name_is_imported_when_it_is_first_used():
    code = "import fxlab, sys; dir(fxlab); fxlab.__all__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in fxlab.__all__:
        assert getattr(fxlab, name) is not None
    for name in MODULES:
        assert getattr(fxlab, name) is import_module(f"fxlab.{name}")


@pytest.mark.parametrize("function", public_functions(), ids=lambda each: each.__qualname__)
def test_signatures_are_explicit_and_in_one_vocabulary(function):
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    for parameter in parameters:
        assert parameter.kind is not parameter.VAR_KEYWORD, parameter
        if parameter.kind is parameter.VAR_POSITIONAL:
            assert parameter.annotation not in ("Any", inspect.Parameter.empty), parameter
    given = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name in ORDER]
    if not function.__qualname__.startswith(("expect", "Session.")):  # their subject, the pass, comes first
        assert given == sorted(given, key=ORDER.index)


def test_no_file_imports_a_part_of_fxlab_by_a_string():
    found = []
    for file in (ROOT / "fxlab").rglob("*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "import_module" in text else ():
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
            ):
                texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                found += [(file.name, text) for text in texts if str(text).startswith("fxlab")]
    assert found == []


def test_import_contracts_have_no_exceptions():
    text = (ROOT / "pyproject.toml").read_text()
    assert "ignore_imports" not in text
    assert "exclude_type_checking_imports = false" in text


def test_hints_are_few_and_name_what_is_there():
    assert len(MOVED) <= 60
    for name, sentence in MOVED.items():
        assert name not in fxlab.__all__
        for dotted in re.findall(r"\bfxlab\.([\w.]*\w)", sentence):
            value = fxlab
            for part in dotted.split("."):
                value = (
                    import_module(f"fxlab.{part}")
                    if value is fxlab and part not in dir(fxlab)
                    else getattr(value, part)
                )
        for member in re.findall(r"\bsession\.(\w+)", sentence):
            assert hasattr(fxlab.Session, member) or member == "original", sentence


def test_only_the_height_of_an_inspector_is_a_public_trait():
    traits = Inspector.class_own_traits(sync=True) | Inspector.class_traits(sync=True)
    own = {name for name in traits if not name.startswith("_")} - {"comm", "keys", "layout", "tabbable"}
    assert own - {"tooltip"} == {"height"}


@pytest.mark.weekly
def test_type_checkers_take_right_uses_and_find_each_wrong_one():
    """By the settings of fxlab, as what mypy has kept of it saves most of the time."""
    files = [ROOT / "tests/typing" / name for name in ("right_uses.py", "wrong_uses.py")]
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", *map(str, files)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for file in files:
        wrong = {number for number, line in enumerate(file.read_text().splitlines(), 1) if "# wrong" in line}
        errors = {int(line) for line in re.findall(rf"{file.name}:(\d+): error", found.stdout)}
        assert errors == wrong, found.stdout + found.stderr
