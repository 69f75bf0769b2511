"""Torch is as it was after a compile, however that ends, and a recording changes nothing."""

import importlib

import pytest
import torch
from tiny_models import Blocks, relus_to_clamps
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import compile_fx, config, pattern_matcher
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

import fxlab
from fxlab.base import heard_calls
from fxlab.compiler.graphs import torch_private as graph_hooks

X = torch.randn(3, 8)


def patched():
    entries = ("LoweringPatternEntry", "GraphPatternEntry", "ReplacementPatternEntry")
    return [
        *(vars(GraphTransformObserver)[name] for name in ("apply_graph_pass", "apply_gm_pass", "__enter__")),
        *(getattr(pattern_matcher, entry).apply for entry in entries),
        *(
            getattr(compile_fx, f"_recursive_{name}_passes")
            for name in ("pre_grad", "joint_graph", "post_grad")
        ),
        pattern_matcher.PatternMatcherPass.apply,
    ]


def left_behind(model):
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list(type(model).forward.__code__)
    return (
        list(map(id, patched())),
        [entry for entry in entries if not hasattr(entry.guard_manager, "invalidation_reason")],
        {name: dict(counter) for name, counter in counters.items()},
        config.save_config(),
        torch.get_rng_state().tolist(),
        torch.is_grad_enabled(),
        list(vars(model)),
    )


class Recorded(Exception):
    pass


@pytest.mark.often(2)
@pytest.mark.parametrize("error", [None, Recorded, KeyboardInterrupt])
def test_torch_is_as_it_was_however_a_compile_ends(error):
    model = Blocks().eval()

    def fails(graph):
        if error is not None:
            raise error("halfway")

    before = left_behind(model)
    options = {"post_grad_custom_post_pass": fails}
    if error is None:
        fxlab.compiler.compile_session(model, X, options=options)
    elif error is Recorded:
        (remark,) = fxlab.compiler.compile_session(model, X, options=options).remarks
        assert remark.startswith("post_grad/fails has failed: Recorded: halfway (test_hooks.py:")
    else:
        with pytest.raises(KeyboardInterrupt):
            fxlab.compiler.compile_session(model, X, options=options)
    assert left_behind(model) == before


def test_a_switch_that_fails_leaves_the_session_as_it_was():
    ok = True

    def sometimes(graph):
        if not ok:
            raise Recorded("now")

    session = fxlab.compiler.compile_session(
        Blocks().eval(), X, options={"post_grad_custom_post_pass": sometimes}
    )
    ok = False
    with pytest.raises(RuntimeError, match="Recorded: now"):
        session.revert("joint/remove_noop_ops")
    assert session.applied == session.passes
    assert session.verdict().agrees


def test_what_others_have_compiled_stays():
    model, calls = Blocks().eval(), []

    def backend(graph_module, example_inputs):
        calls.append(graph_module)
        return graph_module.forward

    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        compiled(X)
        fxlab.compiler.compile_session(model, X)
        compiled(X)
    assert len(calls) == 1


def test_without_a_hook_the_session_says_what_cannot_be_told(monkeypatch):
    def without_matcher(name):
        if name == "torch._inductor.pattern_matcher":
            raise ImportError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(heard_calls, "import_module", without_matcher)
    options = {"post_grad_custom_pre_pass": relus_to_clamps()}
    session = fxlab.compiler.compile_session(Blocks().eval(), X, options=options)
    assert any(remark.startswith("Matches are not told apart: this torch") for remark in session.remarks)
    assert session.passes["post_grad/relus_to_clamps"].fixed == ""
    with pytest.raises(TypeError, match="does not tell them apart"):
        session.exclude("post_grad/relus_to_clamps", "relu")
    assert session.verdict().agrees


class Named(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        return "named"


def test_wrong_arguments_are_refused_in_words():
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module or a function"):
        fxlab.compiler.compile_session("model", X)
    with pytest.raises(TypeError, match="options: expected a mapping"):
        fxlab.compiler.compile_session(Blocks(), X, options=["a"])
    with pytest.raises(ValueError, match="Inductor has no setting 'nonsense'"):
        fxlab.compiler.compile_session(Blocks(), X, options={"nonsense": 1})
    with pytest.raises(ValueError, match="Dynamo has captured no graph"):
        fxlab.compiler.compile_session(nn.Identity(), X)


def test_a_torch_that_does_not_say_what_nodes_were_made_of_is_a_remark(monkeypatch):
    monkeypatch.setattr(graph_hooks, "root_names", lambda node: ())
    (remark,) = fxlab.compiler.compile_session(Blocks().eval(), X).remarks
    assert remark.startswith("Nodes of ATen operators have neither modules nor names of Dynamo's nodes: this")
