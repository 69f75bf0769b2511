"""A compile in the inspector: switches, matches and what cannot be switched."""

import pytest
import torch
from inspected import Page
from tiny_models import Blocks, relus_to_clamps

import fxlab
from fxlab.notebook.inspector import Inspector


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(0)
    options = {"post_grad_custom_pre_pass": relus_to_clamps(wrong={1})}
    return fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), options=options)


@pytest.fixture
def page(session):
    yield Page(Inspector(session))
    while session._internals.can_undo:
        session.undo()


@pytest.mark.weekly
def test_a_pass_is_switched_by_compiling_again(page, session):
    clamps = session.passes["post_grad/relus_to_clamps"]
    assert "clamp_min_default_1" in page.names()
    page.switches(clamps, False)
    assert not session._internals.is_on(clamps.name)
    assert "clamp_min_default_1" not in page.names()
    page.sends({"type": "undo"})
    assert session._internals.is_on(clamps.name)


def test_a_match_is_excluded_from_the_details_of_its_node(page, session):
    name = "post_grad/relus_to_clamps"
    clamps = session.passes[name]
    assert page.card(clamps)["canExclude"]
    page.sends({"type": "exclude", "signature": clamps.signature, "node": "clamp_min_default_1"})
    assert session._internals.excluded(name) == (("relu_1",),)
    assert {"relu_1", "clamp_min_default"} <= page.names()
    assert session.verdict().agrees


def test_what_cannot_be_switched_off_is_said_at_the_switch(page, session):
    page.switches(session.passes["AOTAutograd"], False)
    assert session._internals.is_on("AOTAutograd")
    assert "AOTAutograd cannot be switched off: it writes the graph in ATen operators" in str(page.error)
