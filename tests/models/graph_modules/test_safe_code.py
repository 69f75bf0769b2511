"""Code computes what its graph says, whatever inputs, modules and arguments are called."""

import copy
import enum
import functools
import io
import keyword
import math
import operator
import pickle
from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

from fxlab import Session, symbolic_trace
from fxlab.models.graph_modules.generated_code import generated_code, protect
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.parts import graph_module_of

NAMES = ["x", "nan", "inf", "device", "torch", "slice", "fx_pytree", "pytree", "NoneType", "float", "getattr"]
NAMES += ["range", "input", "print", "operator", "torch_1", "nan_1", "args", "noted_call", "self_1"]
PATHS = ["linear", "class", "global", "None", 'a"b', "a'b", "a\\b", "a\nb", "1a", "a b", "ä", "torch", "nan"]
PATHS += [
    "block.class",
    "block.1",
    "graph",
    "code",
    "meta",
    "recompile",
    "forward",
    "parameters",
    "shape_env",
]


class Kind(enum.Enum):
    FIRST = 1


Pair = namedtuple("Pair", ["first", "second"])


class Thing:
    """An object whose text is no Python."""


def double(value):
    """Stand for a function that is an argument."""
    return value * 2


CONSTANTS = [
    *(1, -2, 0.5, float("nan"), float("inf"), float("-inf"), True, None, ..., "te'x\"t\n", b"\0", 1 + 2j),
    *(torch.float32, torch.device("cpu"), torch.strided, torch.channels_last, torch.Size([1, 2])),
    *(torch.ops.aten.add.Tensor, torch.ops.higher_order.cond, Kind.FIRST, Pair(1, 2.5), range(3)),
    *(double, torch.sin, len, Thing, Thing(), functools.partial(double, 3), lambda value: value + 1),
    *(nn.functional.gelu, torch.Tensor.add, math.sqrt, int, torch.Tensor),
]
arguments = st.recursive(
    st.sampled_from(CONSTANTS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["class", "a b", "k"]), inner, max_size=2)
        | st.builds(slice, inner, inner, inner)
    ),
    max_leaves=6,
)
SEEN: list = []


def noted_call(value, *args, **kwargs):
    """Note what a call is given, and return its first argument."""
    SEEN.append((args, kwargs))
    return value


def texts(value):
    """Return what tells arguments apart: of containers their types and parts, of others the object."""
    if isinstance(value, tuple | list):
        return (type(value) is tuple, hasattr(value, "_fields"), [texts(part) for part in value])
    if isinstance(value, dict):
        return [(key, texts(part)) for key, part in value.items()]
    if isinstance(value, slice):
        return ["slice", *map(texts, (value.start, value.stop, value.step))]
    is_plain = isinstance(value, int | float | complex | str | bytes)
    return (type(value), repr(value)) if is_plain else value


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(PATHS), max_size=3, unique=True),
    st.lists(arguments, max_size=3),
    st.dictionaries(st.sampled_from(["class", "torch", "a b", "k"]), arguments, max_size=2),
    st.randoms(use_true_random=False),
)
def test_code_computes_what_its_graph_says(names, paths, args, kwargs, random):
    SEEN.clear()
    graph, modules = fx.Graph(), {path: nn.Linear(2, 2) for path in paths}
    inputs = [graph.placeholder(name) for name in names]
    value = random.choice(inputs)
    for path in paths:
        value = graph.call_module(path, (value,))
    value = graph.call_function(noted_call, (value, *args), kwargs)
    value = graph.call_function(torch.where, (graph.call_method("isnan", (value,)), float("nan"), value))
    value = graph.call_function(torch.add, (value, random.choice(inputs)))
    graph.output((value, graph.call_function(getattr, (value, "device")), {"x": float("inf")}))
    gm = graph_module_of(modules, graph, "Named")
    ensure_picklable(gm)
    given_ = {name: torch.randn(2) for name in names}
    expected = fx.Interpreter(gm).run(*given_.values())
    for module in (gm, copy.deepcopy(gm)):
        got = module(**given_)
        torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0, equal_nan=True)
        assert got[1:] == expected[1:]
        assert texts(SEEN[-1]) == texts(SEEN[0])
    assert generated_code(gm).is_linked
    assert {name for names in generated_code(gm).nodes for name in names} >= {value.name, "noted_call"}


@pytest.mark.often(5)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "x"])
def test_a_model_whose_input_has_any_name_is_traced(name):
    source = f"""
def forward(self, x, {name}):
    return torch_.where({name} > 0, self.linear(x)[slice_(1)], float_("nan")) + float_("inf")
"""
    scope = {"torch_": torch, "slice_": slice, "float_": float}
    exec(source, scope)
    model = type("Model", (nn.Module,), {"forward": scope["forward"]})()
    model.linear = nn.Linear(2, 2)
    inputs = {"x": torch.ones(1, 2), name: torch.tensor([[1.0, -1.0]])}
    gm = symbolic_trace(model, inputs)
    assert torch.equal(gm(**inputs).isnan(), torch.tensor([[False, True]]))


@pytest.mark.often(6)
@pytest.mark.parametrize(
    "path", [path for path in PATHS if "." not in path and not hasattr(nn.Module(), path)]
)
def test_a_model_with_a_module_of_any_name_is_traced_changed_and_copied(path):
    model = nn.Sequential(OrderedDict([(path, nn.Linear(2, 2)), ("last", nn.Linear(2, 2))])).eval()
    x = torch.randn(3, 2)
    session = Session(model, x)
    session.apply("remove-dead-code")
    file = io.BytesIO()
    torch.save(session.graph_module, file)
    file.seek(0)
    copies = copy.deepcopy(session.graph_module), pickle.loads(pickle.dumps(session.graph_module))
    for module in (session.graph_module, *copies, torch.load(file, weights_only=False)):
        assert torch.equal(module(x), model(x))
    assert len(session.original.state_dict()) == 4
    assert session.verdict().agrees


def test_a_negative_number_is_raised_to_a_power_as_a_whole():
    graph = fx.Graph()
    graph.output(graph.call_function(operator.pow, (-2, graph.placeholder("x"))))
    assert fx.GraphModule(nn.Module(), protect(graph))(torch.tensor(2)) == 4


def test_nested_inputs_are_taken_apart_by_functions_that_no_input_hides():
    def function(pytree, fx_pytree):
        return [pytree["a"] + fx_pytree, float("nan")]

    given_ = {"pytree": {"a": fx.PH}, "fx_pytree": fx.PH}
    gm = fx.symbolic_trace(function, concrete_args=given_)
    ensure_picklable(gm)
    gm.graph.find_nodes(op="placeholder")[0].target = "nan"
    gm.recompile()
    one = torch.ones(1)
    assert gm(pytree={"a": one}, fx_pytree=one)[0] == 2


def test_every_keyword_is_taken_for_one():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for word in keyword.kwlist:
        x = graph.call_module(word, (x,))
    graph.output(x)
    gm = graph_module_of({word: nn.Identity() for word in keyword.kwlist}, graph, "Words")
    assert gm(1) == 1
