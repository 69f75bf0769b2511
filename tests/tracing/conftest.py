"""After the tests of each file: torch is as it was, and nothing of the file leads to a tensor of a run."""

import gc
import os
import sys
from types import FunctionType, ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

import fxlab
from fxlab.exchanged import exchanged_names
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
_TESTS = os.path.dirname(__file__)


def _is_of_fxlab(value):
    """Tell whether a function, property or class is one that fxlab has put in the place of another."""
    if isinstance(value, type):
        return value.__module__.startswith("fxlab")
    function = value.__func__ if isinstance(value, classmethod) else value
    function = value.fget if isinstance(value, property) else function
    is_function = isinstance(function, FunctionType)
    return is_function and function.__code__.co_filename.startswith(os.path.dirname(fxlab.__file__))


def _left_in(namespace):
    """Return a path to each tensor of a run that can be reached from names other than by a graph."""
    found, seen, ahead = [], set(), [(value, name) for name, value in namespace.items()]
    for value, path in ahead:
        if id(value) in seen or isinstance(value, ModuleType | GraphModule):
            continue
        seen.add(id(value))
        if isinstance(value, FakeTensor):
            found += [path] if isinstance(value.fake_mode, FakeMode) else []
        elif isinstance(value, type) and value.__module__ != namespace["__name__"]:
            continue
        elif isinstance(value, FunctionType):
            ahead += [(part, path) for part in (value.__closure__, value.__defaults__, value.__dict__)]
        else:
            ahead += [(part, f"{path} > {type(value).__name__}") for part in gc.get_referents(value)]
    return found


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind():
    yield
    assert not exchanged_names()
    names = ((place.__name__, name, value) for place in _PLACES for name, value in [*vars(place).items()])
    assert [(place, name) for place, name, value in names if _is_of_fxlab(value)] == []
    modules = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
    files = [module for module in modules if str(vars(module).get("__file__")).startswith(_TESTS)]
    assert [path for module in files for path in _left_in(dict(vars(module)))] == []
