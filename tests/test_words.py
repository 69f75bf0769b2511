"""Docstrings begin with the noun or verb that names the concept; prose has few what-clauses."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
QUESTION = re.compile(r"(What|Which|How|Where|Who|That)\b")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree and its statements, without the expressions, which are most of it."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(node)


@functools.cache
def documented() -> list[tuple[Path, ast.AST, str]]:
    return [
        (file, node, text)
        for file in sorted((ROOT / "fxlab").rglob("*.py"))
        for node in statements(ast.parse(file.read_text()))
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))
    ]


def test_no_docstring_begins_with_a_question_word():
    # "Whether ..." says what a flag means, as everywhere; a module or a class is no flag.
    found = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {text}"
        for file, node, text in documented()
        if QUESTION.match(text)
        or (isinstance(node, ast.Module | ast.ClassDef) and text.startswith("Whether "))
    ]
    assert found == []


SENTENCE = re.compile(r"[.:](?:\s|$)|\n\n|\|")
"""The end of a sentence, a paragraph or a cell of a table."""
WHAT_CLAUSE = re.compile(r"\b(what|whatever|whoever)\b", re.IGNORECASE)
MOST_WHAT_CLAUSES = 0.01
"""The share of sentences, 9 of 8,044 in docstrings and 8 of 1,835 in pages on 2026-11-27, rounded up to a
whole percent. It may only fall."""
CODE = re.compile(r"^```.*?^```$|<!--.*?-->|^ {4}.*?$", re.MULTILINE | re.DOTALL)
"""Parts of a page that are code, or that readers do not see."""


def docstrings() -> Iterator[tuple[Path, str]]:
    yield from ((file, text) for file, _, text in documented())


def pages() -> Iterator[tuple[Path, str]]:
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield file, CODE.sub("", file.read_text())


@pytest.mark.parametrize("texts", [docstrings, pages])
def test_prose_names_the_noun_in_place_of_a_what_clause(texts):
    # "Return the changes", and not "Return what has changed": few clauses like this read well.
    sentences = [
        f"{file.relative_to(ROOT)}: {sentence.strip()}"
        for file, text in texts()
        for sentence in SENTENCE.split(text)
        if len(sentence.split()) > 3
    ]
    found = [sentence for sentence in sentences if WHAT_CLAUSE.search(sentence)]
    assert len(found) <= MOST_WHAT_CLAUSES * len(sentences), "\n".join(found)
