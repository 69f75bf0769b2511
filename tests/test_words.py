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


SENTENCE = re.compile(r"[.:](?:\s|$)")
WHAT_CLAUSE = re.compile(r"\b(what|whatever|whoever)\b", re.IGNORECASE)
MOST_WHAT_CLAUSES = 0.01
"""The share of sentences, 10 of 9,027 on 2026-11-27, rounded up to a whole percent. It may only fall."""


def what_clauses(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            for sentence in filter(str.strip, SENTENCE.split(text)):
                yield bool(WHAT_CLAUSE.search(sentence)), f"{file.relative_to(ROOT)}: {sentence.strip()}"


def test_docstrings_name_the_noun_in_place_of_a_what_clause():
    # "Return the changes", and not "Return what has changed": few clauses like this read well.
    sentences = [each for file in sorted((ROOT / "fxlab").rglob("*.py")) for each in what_clauses(file)]
    found = [sentence for has_clause, sentence in sentences if has_clause]
    assert len(found) <= MOST_WHAT_CLAUSES * len(sentences), "\n".join(found)
