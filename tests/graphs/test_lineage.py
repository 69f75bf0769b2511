"""Nodes of two captures of one model lead to one another: by what torch notes, or by module, line and
order.
"""

import warnings
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from zoo import tiny

import fxlab
from fxlab import from_exported
from fxlab.graphs.lineage import is_same_capture, lineage
from fxlab.graphs.matching import match_nodes
from fxlab.graphs.provenance import Provenance
from fxlab.operators.node_info import module_path

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
MODELS = ("bert", "llama", "resnet")
"""Of these every call leads to another one after decomposition; see docs/any_graph.md."""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(4)

    def forward(self, x):
        y = torch.softmax(self.second(torch.relu(self.first(x))), dim=-1)
        return self.norm(y / 3 + x)


torch.manual_seed(0)
X = torch.randn(3, 4)


@cache
def captures(name):
    """Return a model, its inputs, and its graphs: traced, exported and decomposed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Block().eval() if name == "block" else tiny(name)
        if hasattr(model, "config"):
            model.config.use_cache = False
        if name in ("gpt2", "llama"):
            model.set_attn_implementation("eager")  # torch takes the other apart into views that do not run
        inputs = {"x": X} if name == "block" else fxlab.example_inputs(model)
        program = torch.export.export(model, (), inputs)
        decomposed = program.run_decompositions()
        return inputs, fxlab.symbolic_trace(model, inputs), from_exported(program), from_exported(decomposed)


def calls(graph_module):
    """Return the calls that come from the model, and not from a check of its sizes."""
    nodes = (node for node in graph_module.graph.nodes if node.op == "call_function" and node.users)
    return [node for node in nodes if node.meta.get("torch_fn")]


@pytest.mark.weekly
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.weekly if n == "llama" else ()) for n in MODELS]
)
def test_every_node_of_a_decomposed_model_leads_to_its_call(name):
    _, _, exported, decomposed = captures(name)
    origins = lineage(exported, decomposed).origins
    found = [node for node in calls(decomposed) if node in origins]
    assert len(found) == len(calls(decomposed))
    for node in found:
        # Another note of torch's than the one that was read.
        assert {other.meta["torch_fn"] for other in origins[node]} == {node.meta["torch_fn"]}
        assert {module_path(other) for other in origins[node]} == {module_path(node)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "bert" else pytest.mark.weekly) for n in MODELS]
)
@pytest.mark.parametrize(("before", "after"), [pytest.param(1, 2, marks=pytest.mark.weekly), (0, 2), (1, 0)])
def test_nodes_that_are_paired_compute_the_same(name, before, after):
    inputs, *graphs = captures(name)
    table = fxlab.compare_nodes(graphs[before], graphs[after], inputs)
    assert len(table) > 20
    assert (table.accumulated < 1e-4).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("bert", 0.95),
        pytest.param("resnet", 1.0, marks=pytest.mark.weekly),
        *(pytest.param(name, 0.95, marks=pytest.mark.weekly) for name in ("gpt2", "llama")),
    ],
)
def test_calls_of_an_exported_model_lead_to_those_of_its_trace(name, least):
    _, traced, exported, _ = captures(name)
    origins = lineage(traced, exported).origins
    found = [node for node in calls(exported) if node in origins]
    assert len(found) >= least * len(calls(exported))
    assert all(module_path(node) == module_path(other) for node in found for other in origins[node])


def test_a_layer_stands_for_what_it_is_decomposed_into_and_back():
    _, traced, exported, decomposed = captures("block")
    provenance = Provenance(exported, decomposed)
    products = [node for node in decomposed.graph.nodes if "addmm" in node.name]
    assert [[other.name for other in provenance.of(node)] for node in products] == [["linear"], ["linear_1"]]
    weights = [node for node in decomposed.graph.nodes if node.name.startswith("permute")]
    assert [[other.name for other in provenance.of(node)] for node in weights] == [["linear"], ["linear_1"]]
    back = Provenance(decomposed, exported)
    assert [other.name for other in back.of(exported.graph.find_nodes(op="get_attr")[0])] == ["first_weight"]
    linear = next(node for node in exported.graph.nodes if node.name == "linear")
    assert [other.name for other in back.of(linear)] == ["permute", "addmm"]
    modules = Provenance(traced, decomposed)
    assert [[other.name for other in modules.of(node)] for node in products] == [["first"], ["second"]]


def test_the_difference_of_two_dialects_is_one_of_targets():
    _, traced, exported, _ = captures("block")
    table = fxlab.graph_diff(traced, exported)
    assert table.loc["linear", "target_before"] == "first"
    assert table.loc["linear", "target"] == "aten.linear"
    assert table.loc["div", "target_before"] == "operator.truediv"
    assert not {"first", "second", "truediv"} & {*table.index[table.change == "removed"]}


def test_a_pass_changes_no_capture():
    _, traced, exported, decomposed = captures("block")
    for graph in (traced, exported, decomposed):
        session = fxlab.Session(graph, X)
        for pass_ in session.passes:
            session.apply(pass_)
        assert is_same_capture(session.original, session.graph_module)
    assert not is_same_capture(exported, decomposed)
    assert not is_same_capture(traced, exported)


def test_a_decomposition_as_a_pass_is_followed():
    _, _, exported, decomposed = captures("block")
    decompose = fxlab.from_callable(lambda graph_module: decomposed, name="decompose")
    session = fxlab.Session(exported, X, passes=[decompose])
    session.apply(decompose)
    assert fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).loc[
        "addmm", "before"
    ] == ["linear"]


LAYERS = st.lists(st.sampled_from(["linear", "norm", "relu", "half", "sum"]), min_size=1, max_size=5)


class Layers(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        self.linears = nn.ModuleList(nn.Linear(4, 4) for _ in kinds)
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in kinds)

    def forward(self, x):
        for number, kind in enumerate(self.kinds):
            if kind == "linear":
                x = self.linears[number](x)
            elif kind == "norm":
                x = self.norms[number](x)
            elif kind == "relu":
                x = torch.relu(x)
            elif kind == "half":
                x = x / 2
            else:
                x = x + x.sum(dim=-1, keepdim=True)
        return x


@pytest.mark.weekly
@pytest.mark.slow
@settings(max_examples=6)
@given(LAYERS)
def test_whatever_is_exported_each_call_leads_to_one_that_computes_the_same(kinds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Layers(kinds).eval(), (X,))
        exported, decomposed = from_exported(program), from_exported(program.run_decompositions())
    origins = lineage(exported, decomposed).origins
    assert all(node in origins for node in calls(decomposed))
    back = {other for others in origins.values() for other in others}
    assert all(node in back for node in calls(exported))
    assert (fxlab.compare_nodes(exported, decomposed, X).accumulated < 1e-4).all()
    assert not match_nodes(exported, exported).origins
