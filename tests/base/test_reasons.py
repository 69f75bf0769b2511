"""Reasons: every code is used, and gets the details that its words name."""

import ast
import functools
from pathlib import Path
from string import Formatter

import pytest

import fxlab
from fxlab.base.reasons import Reason, Refusal


@functools.cache
def used() -> list[tuple[str, set[str | None]]]:
    """``Reason.NAME(...)``, or given to a function with the details: ``fail(Reason.NAME, ...)``."""
    return [
        (part.attr, {keyword.arg for keyword in node.keywords})
        for file in sorted(Path(fxlab.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for part in (node.func, *node.args)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "Reason"
    ]


def details(reason: Reason) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(reason.value) if name}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_given_the_details_that_its_words_name(reason):
    given = [keywords for name, keywords in used() if name == reason.name]
    assert given
    for keywords in given:
        assert keywords == details(reason) or None in keywords  # **details


@pytest.mark.parametrize("reason", Reason)
def test_words_follow_the_name_of_a_candidate(reason):
    words = reason(**dict.fromkeys(details(reason), "x")).words
    assert not words[0].isupper()
    assert not words.endswith(".")
    assert "  " not in words


def test_a_refusal_has_a_code_and_words():
    refusal = Reason.SHARED_PARAMETER(parameter="weight", holder="other.{weight}")
    assert refusal == Refusal("shared-parameter", "its weight is also used by other.{weight}")
    assert str(refusal) == refusal.words
    assert refusal.prefixed("the linear").code == refusal.code
