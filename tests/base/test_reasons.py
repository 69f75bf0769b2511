"""Reasons: every code is used, and gets the details that its words name."""

import ast
from pathlib import Path
from string import Formatter

import fxlab
from fxlab.base.reasons import Reason, Refusal


def used() -> list[tuple[str, set[str | None]]]:
    """``Reason.NAME(...)``, or given to a function with the details: ``fail(Reason.NAME, ...)``."""
    return [
        (part.attr, {keyword.arg for keyword in node.keywords})
        for file in sorted(Path(fxlab.__file__).parent.rglob("*.py"))
        if "Reason." in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for part in (node.func, *node.args)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "Reason"
    ]


def details(reason: Reason) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(reason.value) if name}


def test_every_reason_is_given_the_details_that_its_words_name():
    found = used()
    assert {name for name, _ in found} >= {reason.name for reason in Reason}
    for name, keywords in found:
        assert None in keywords or keywords == details(Reason[name]), name  # **details


def test_words_follow_the_name_of_a_candidate():
    for reason in Reason:
        words = reason(**dict.fromkeys(details(reason), "x")).words
        assert not words[0].isupper(), words
        assert not words.endswith("."), words
        assert "  " not in words


def test_a_refusal_has_a_code_and_words():
    refusal = Reason.SHARED_PARAMETER(parameter="weight", holder="other.{weight}")
    assert refusal == Refusal("shared-parameter", "its weight is also used by other.{weight}")
    assert str(refusal) == refusal.words
    assert refusal.prefixed("the linear").code == refusal.code
