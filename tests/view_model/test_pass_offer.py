"""What can be added to a session from its screen, and what is made of what people type."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

import fxlab
from fxlab import MergeLinears, RemoveDeadCode, Session, Transformation, from_callable
from fxlab.view_model.pass_offer import add, offers


class Adjust(Transformation):
    """Adjusts nothing.

    At length.
    """

    def __init__(
        self, size, *, rate=0.5, word="a", dtype=torch.float32, flag=False, sizes=(1, 2), hook=print
    ):
        if size == 13:
            raise RuntimeError("13 brings bad luck")
        self.given = size, rate, word, dtype, flag, sizes, hook

    def transform(self, graph_module):
        return graph_module


class _Private(Adjust):
    pass


class Unfinished(Transformation):
    """Has no transform."""


KEY = f"{__name__}.Adjust"


@pytest.fixture
def session() -> Session:
    return Session(fx.symbolic_trace(nn.Linear(2, 2)), passes=[MergeLinears()])


def test_offered_are_fxlabs_passes_that_are_not_there_and_classes_of_ones_own(session: Session) -> None:
    keys = [offer.key for offer in offers(session)]
    assert keys[0].partition(".")[0] != "fxlab", "people's own come first"
    assert KEY in keys
    assert not [key for key in keys if "_Private" in key or "Unfinished" in key]
    titles = {offer.title for offer in offers(session)}
    assert "Remove dead code" in titles
    assert "Merge linears" not in titles


def test_a_default_session_offers_none_of_fxlabs_passes_twice() -> None:
    session = Session(fx.symbolic_trace(nn.Linear(2, 2)))
    assert not [offer.key for offer in offers(session) if offer.key.startswith("fxlab.")]


def test_an_offer_says_what_its_arguments_are(session: Session) -> None:
    (offer,) = (offer for offer in offers(session) if offer.key == KEY)
    state = offer.state()
    assert state["description"] == "Adjusts nothing."
    assert [(p["name"], p["required"], p["default"], p["isBool"]) for p in state["parameters"]] == [
        ("size", True, "", False),
        ("rate", False, "0.5", False),
        ("word", False, "a", False),
        ("dtype", False, "torch.float32", False),
        ("flag", False, "False", True),
        ("sizes", False, "(1, 2)", False),
    ]


def test_what_is_typed_becomes_arguments(session: Session) -> None:
    texts = {"size": "[3, 4]", "rate": "1e-3", "word": "two words", "dtype": "float16", "flag": "True"}
    made = add(session, KEY, texts)
    assert made.given == ([3, 4], 1e-3, "two words", torch.float16, True, (1, 2), print)  # type: ignore[attr-defined]
    assert session.passes[-1] is made
    second = add(session, KEY, {"size": "1"})
    third = add(session, KEY, {"size": "2"})
    assert [p.name for p in (made, second, third)] == ["adjust", "adjust-2", "adjust-3"]
    session.apply("adjust-3")


@pytest.mark.parametrize(
    ("key", "texts", "words"),
    [
        ("nowhere.Nothing", {}, "no transformation 'nowhere.Nothing'"),
        (KEY, {}, "size: Adjust requires a value"),
        (KEY, {"size": "  "}, "size: Adjust requires a value"),
        (KEY, {"size": "1", "colour": "red"}, "no argument 'colour'"),
        (KEY, {"size": "__import__('os')"}, "size: expected a literal"),
        (KEY, {"size": "(" * 500}, "size: expected a literal"),
        (KEY, {"size": "13"}, "13 brings bad luck"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_added(
    session: Session, key: str, texts: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        add(session, key, texts)
    assert len(session.passes) == 1
    assert not session._internals.can_undo


@pytest.mark.slow
@given(st.text())
def test_nothing_that_is_typed_is_run(text: str) -> None:
    session = Session(fx.symbolic_trace(nn.Linear(2, 2)), passes=[])
    try:
        made = add(session, KEY, {"size": text})
    except ValueError:
        assert session.passes == ()
    else:
        assert isinstance(
            made.given[0],
            int
            | float
            | complex
            | str
            | bytes
            | tuple
            | list
            | dict
            | set
            | bool
            | None
            | torch.dtype
            | type(...),
        )  # type: ignore[attr-defined]


def test_what_a_notebook_has_made_is_offered(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    own = from_callable(lambda graph_module: None, name="my-own")
    monkeypatch.setattr(sys.modules["__main__"], "tidy", own, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "_hidden", RemoveDeadCode(), raising=False)
    (key,) = (offer.key for offer in offers(session) if offer.title == "My own (tidy)")
    assert add(session, key, {}).signature == own.signature
    assert "My own (tidy)" not in {offer.title for offer in offers(session)}


def test_a_class_that_was_defined_anew_is_offered_as_it_is_now(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = type("Adjust", (Transformation,), {"transform": lambda self, gm: gm, "__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Adjust", newer)
    (offer,) = (offer for offer in offers(session) if offer.key == KEY)
    assert offer.make is newer


def test_the_code_of_a_stack_has_passes_that_were_added(session: Session) -> None:
    add(session, "fxlab.transformations.passes.remove_dead_code.remove-dead-code", {})
    session.apply("remove-dead-code")
    assert "fxlab.RemoveDeadCode()" in session.to_python()
    assert isinstance(fxlab.RemoveDeadCode(), Transformation)
