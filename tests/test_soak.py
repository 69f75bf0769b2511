"""A long session: hundreds of switches with validation on leave nothing behind and change no bit."""

import contextlib
import ctypes
import gc
import os
import random

import psutil
import pytest
import torch
from torch.fx import graph_module as graph_module_of_torch
from transformers import BertConfig, BertModel

import fxlab
from fxlab.validation import Status

TOGGLES = 120
WARM = 40
"""Toggles after which caches (of torch, of Python) have what they are going to hold."""

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PASSES = (fxlab.MergeLinears, fxlab.FuseBiasInLinear, fxlab.FuseAttention, fxlab.ChangeTrueDivToMulByInverse)


@pytest.fixture
def session():
    """Return a session of a small BERT, or of BERT-base where ``FXLAB_SOAK=base`` asks for it."""
    torch.manual_seed(0)
    sizes = {} if os.environ.get("FXLAB_SOAK") == "base" else SMALL | {"vocab_size": 50}
    model = BertModel(BertConfig(**sizes, attn_implementation="eager")).eval()
    return fxlab.Session(model, passes=[cls() for cls in PASSES])


@pytest.mark.weekly
def test_hundreds_of_toggles_with_validation_leave_nothing_behind(session):
    """No object, no memory, no source, no drift: what was judged once is judged the same ever after."""
    before = {name: (id(p), p.detach().clone()) for name, p in session.original.named_parameters()}
    code = session.original.code
    choose = random.Random(0)
    judged = {}
    for step in range(TOGGLES):
        if step == WARM:
            session.revert()
            warm = held()
        chosen = choose.choice(session.passes)
        (session.revert if chosen in session.applied else session.apply)(chosen)
        stack = tuple(p.name for p in session.applied)
        found = (
            session.verdict().status,
            fxlab.compare_outputs(session.original, session.graph_module, session.inputs).to_csv(),
        )
        assert judged.setdefault(stack, found) == found
        assert found[0] is not Status.DIFFERENT, stack
    assert len(judged) == 2 ** len(PASSES)
    session.revert()
    for name, now in held().items():
        # The history grows, by a tuple of strings for each toggle.
        assert now <= warm[name] * 1.02 + 2 * TOGGLES * (name == "objects"), name
    assert session.graph_module is session.original
    assert session.original.code == code
    for name, parameter in session.original.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])


def held():
    """Return what the process holds: objects, bytes, and the sources that torch keeps of graph modules."""
    gc.collect()
    # What is free, but not given back, is more or less by chance.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # of glibc alone
    return {
        "objects": len(gc.get_objects()),
        "memory": psutil.Process().memory_info().rss,
        "sources": len(graph_module_of_torch._loader.eval_cache),
    }
