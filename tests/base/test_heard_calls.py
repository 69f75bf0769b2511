"""Functions of torch that are listened to take every call that they take without."""

import functools
import inspect
from importlib import import_module

import pytest
import torch
from tiny_models import Blocks, relus_to_clamps
from torch import nn

import fxlab
from fxlab.base import heard_calls
from fxlab.base.heard_calls import UnknownCallError, heard
from fxlab.compiler.scripts.hooks import listening_to_script
from fxlab.compiler.story.story import Story


def target(first):
    return first


def test_a_call_of_another_form_runs_and_leaves_one_remark():
    remarks = []
    run = heard(target, lambda call: call.given(7), "Passes are not seen", remarks)
    assert run(1) == run(1) == target(1)
    (remark,) = remarks
    assert remark.startswith("Passes are not seen: this torch")
    assert "target" in remark


def test_an_error_of_the_function_is_raised_and_not_tried_again():
    calls = []

    def fails(first):
        calls.append(first)
        raise UnknownCallError("of somebody inside")

    with pytest.raises(UnknownCallError):
        heard(fails, lambda call: call(), "", [])(1)
    assert calls == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_error_of_who_listens_is_a_remark(is_late):
    calls, remarks = [], []

    def hear(call):
        if is_late:
            call()
        raise KeyError("a mistake in here")

    def function(first):
        calls.append(first)
        return first + 1

    assert heard(function, hear, "Passes are not seen", remarks)(1) == 2
    assert calls == [1]
    assert "a mistake in here" in remarks[0]


class Deaf:
    """A listener that allows everything and notes nothing."""

    def __getattr__(self, name):
        def listen(*args, **kwargs):
            return True if name in ("begin_pass", "begin_match") else (lambda values: None)

        return listen


def listened_places(monkeypatch):
    """Return each function that is listened to, as ``module:path``."""
    places = []
    original = heard_calls.Patches.around

    def around(self, place, hear, lost):
        places.append(place)
        original(self, place, hear, lost)

    monkeypatch.setattr(heard_calls.Patches, "around", around)
    with listening_to_script(Deaf(), Story()):
        pass
    monkeypatch.undo()
    return list(dict.fromkeys(places))


def test_every_function_that_is_listened_to_takes_names_and_unknown_arguments(monkeypatch):
    places = listened_places(monkeypatch)
    assert len(places) > 15
    for place in places:
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        owner = functools.reduce(getattr, outer, import_module(module))
        original = inspect.getattr_static(owner, name)
        function = original.__func__ if isinstance(original, staticmethod | classmethod) else original
        parameters = [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        received = []

        @functools.wraps(function)
        def stand_in(*args, _received=received, **kwargs):
            _received.append((args, kwargs))
            return nn.Identity()

        stand_in.__signature__ = inspect.signature(function)
        is_static = isinstance(original, staticmethod)
        monkeypatch.setattr(owner, name, staticmethod(stand_in) if is_static else stand_in)
        values = [object() for _ in parameters]
        by_name = dict(zip(parameters, values, strict=True))
        with listening_to_script(Deaf(), Story()) as remarks:
            call = inspect.getattr_static(owner, name)
            call(*values)
            call(**by_name)
            call(*values, of_a_newer_torch=1)
            call(*values[:-1] if values else ())
        monkeypatch.undo()
        told = [dict(zip(parameters, args, strict=False)) | kwargs for args, kwargs in received]
        assert told[:2] == [by_name, by_name], place
        assert told[2] == {**by_name, "of_a_newer_torch": 1}, place
        assert len(told) == 4, place
        assert all(isinstance(remark, str) for remark in remarks)


def by_keyword(patterns):
    def apply(graph):
        return patterns.__self__.apply(gm=graph)

    return apply


def observed(graph):
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    observer = GraphTransformObserver(graph.owning_module, "observed")
    observer.apply_graph_pass(pass_fn=lambda graph: None)
    observer.apply_gm_pass(pass_fn=lambda graph_module: None)


def test_passes_of_users_may_call_torch_by_keywords():
    options = {
        "post_grad_custom_pre_pass": by_keyword(relus_to_clamps()),
        "post_grad_custom_post_pass": observed,
    }
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), options=options)
    assert session.remarks == ()
    assert session.verdict().agrees


class Without:
    """An object without one of its attributes."""

    def __init__(self, own, name):
        self._own, self._name = own, name

    def __getattr__(self, name):
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._own, name)


@pytest.mark.often(1)
@pytest.mark.parametrize("name", ["passname", "gm"])
def test_an_observer_without_an_attribute_is_a_remark(monkeypatch, name):
    given_place = heard_calls.Call.given

    def given(self, place, kind=object):
        value = given_place(self, place, kind)
        return Without(value, name) if type(value).__name__ == "GraphTransformObserver" else value

    monkeypatch.setattr(heard_calls.Call, "given", given)
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8))
    assert any(f"has no {name}" in remark for remark in session.remarks)
    assert session.verdict().agrees


@pytest.mark.often(1)
@pytest.mark.parametrize("training", [False, True])
def test_renamed_descriptors_of_inputs_are_a_remark(training):
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    PlainAOTInput.__name__ = "PlainInput"
    try:
        session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), training=training)
    finally:
        PlainAOTInput.__name__ = "PlainAOTInput"
    assert any("told by their order alone" in remark for remark in session.remarks)
    assert all(one.verdict().agrees for one in session.graphs.values())
    assert next(iter(session.inputs)) == "x"


@pytest.mark.often(2)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("phase", ["pre_grad", "joint_graph", "post_grad"])
def test_a_phase_of_another_name_is_a_remark(monkeypatch, phase, training):
    hidden = f"_recursive_{phase}_passes"

    class Module:
        def __getattr__(self, name):
            if name == hidden:
                raise AttributeError(name)
            return getattr(import_module("torch._inductor.compile_fx"), name)

        def __setattr__(self, name, value):
            setattr(import_module("torch._inductor.compile_fx"), name, value)

        def __delattr__(self, name):
            delattr(import_module("torch._inductor.compile_fx"), name)

    def without(place):
        return Module() if place == "torch._inductor.compile_fx" else import_module(place)

    monkeypatch.setattr(heard_calls, "import_module", without)
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), training=training)
    assert any(f"has no {hidden}" in remark for remark in session.remarks)
    assert all(one.verdict().agrees for one in session.graphs.values())
