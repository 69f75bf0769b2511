"""After each file torch is as it was and nothing leads to a tensor of a run; in the end no run is left."""

import gc
import os
import sys
from types import FunctionType, ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

import fxlab
from fxlab.base.exchanged import patched_names
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.shapes.fake_mode import FakeMode

_PLACES = (
    torch,
    torch._C,
    torch._subclasses,
    torch.autograd.Function,
    torch.autocast,
    torch.fx.experimental.sym_node.SymNode,
    torch.nn.Module,
    torch.nn.functional,
    torch.overrides,
    torch.UntypedStorage,
    FakeTensor,
    *(module for name, module in sys.modules.items() if name.startswith("torch.backends")),
)
_DEEPEST, _MOST_SEARCHED = 6, 20_000


def _is_of_fxlab(value):
    """Tell whether a function, property or class is one that fxlab has put in the place of another."""
    if isinstance(value, type):
        return value.__module__.startswith("fxlab")
    function = value.__func__ if isinstance(value, classmethod) else value
    function = value.fget if isinstance(value, property) else function
    is_function = isinstance(function, FunctionType)
    return is_function and function.__code__.co_filename.startswith(os.path.dirname(fxlab.__file__))


def _left_in(namespace):
    """Return the names from which a tensor of a run can be reached other than by a graph, near by."""
    found, seen, ahead = set(), set(), [(value, name, _DEEPEST) for name, value in namespace.items()]
    for value, name, depth in ahead:
        if len(seen) == _MOST_SEARCHED:
            break
        if id(value) in seen or isinstance(value, ModuleType | GraphModule):
            continue
        seen.add(id(value))
        if isinstance(value, FakeTensor):
            found |= {name} if isinstance(value.fake_mode, FakeMode) else set()
        elif depth == 0 or (isinstance(value, type) and value.__module__ != namespace["__name__"]):
            continue
        elif isinstance(value, FunctionType):
            ahead += [(part, name, depth) for part in (value.__closure__, value.__defaults__, value.__dict__)]
        else:
            ahead += [(part, name, depth - 1) for part in gc.get_referents(value)]
    return found


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind(request):
    yield
    assert not patched_names()
    names = ((place.__name__, name, value) for place in _PLACES for name, value in [*vars(place).items()])
    assert [(place, name) for place, name, value in names if _is_of_fxlab(value)] == []
    assert _left_in(dict(vars(request.module))) == set()


@pytest.fixture(autouse=True, scope="session")
def no_run_is_left():
    yield
    gc.collect()  # once, as looking through all objects takes seconds
    left = [run for run in gc.get_referrers(RecordingState) if type(run) is RecordingState]
    assert [type(run.model).__name__ for run in left] == []
