"""Docstrings begin with the noun or verb that names the concept."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
QUESTION = re.compile(r"(What|Which|How|Where|Who|That)\b")


def first_lines(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node, text.splitlines()[0]


def test_no_docstring_begins_with_a_question_word():
    # "Whether ..." says what a flag means, as everywhere; a module or a class is no flag.
    found = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {line}"
        for file in sorted((ROOT / "fxlab").rglob("*.py"))
        for node, line in first_lines(file)
        if QUESTION.match(line)
        or (isinstance(node, ast.Module | ast.ClassDef) and line.startswith("Whether "))
    ]
    assert found == []
