"""Where along a graph the values start to move."""

import copy
import math

import pytest
import torch
from planted import scaled, traced, transformed
from torch import fx, nn

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    compare_nodes,
    first_divergence,
)
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.validation.nodes.lockstep_run import SideBySide


def chain(length=3):
    return fx.symbolic_trace(nn.Sequential(*(nn.Linear(4, 4) for _ in range(length))).eval())


def test_a_difference_is_introduced_at_one_node_and_accumulates_after_it():
    graph, x = chain(), torch.randn(2, 4)
    wrong = scaled(graph, "1", 1.5)
    table = compare_nodes(graph, wrong, x)
    assert table.index.tolist() == ["input_1", "_0", "_1", "_2"]
    assert (table["introduced"] > 0).tolist() == [False, False, True, False]
    assert (table["accumulated"] > 0).tolist() == [False, False, True, True]
    with torch.no_grad():
        expected, actual = graph(x), wrong(x)
    assert table.loc["_2", "accumulated"] == pytest.approx(
        float((actual - expected).norm() / expected.norm())
    )
    assert table.loc["_2", "max_accumulated"] == pytest.approx(float((actual - expected).abs().max()))


def test_a_scaled_weight_is_found_by_name():
    graph, inputs = traced("bert")
    for target in ("encoder.layer.0.attention.self.query", "encoder.layer.1.output.dense"):
        wrong = scaled(graph, target, 1.01)
        name = target.replace(".", "_")
        table = compare_nodes(graph, wrong, inputs)
        assert table.index[table["introduced"] > 0].tolist() == [name]
        found = first_divergence(graph, wrong, inputs)
        assert (found.node, found.original) == (name, name)
        assert str(found).startswith(f"{name}: a different function")


@pytest.mark.often(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pass_", "dtype"),
    [
        ("llama", MergeLinears(), torch.bfloat16),
        ("bert", FuseBiasInLinear(), torch.float32),
        ("resnet", FuseBatchNorm2dInConv2d(), torch.bfloat16),
        ("t5", ChangeTrueDivToMulByInverse(), torch.float32),
    ],
)
def test_a_correct_pass_diverges_nowhere(name, pass_, dtype):
    graph, inputs = traced(name, dtype)
    result = transformed(graph, pass_)
    assert pass_.get_transformed_nodes(result)
    assert first_divergence(graph, result, inputs) is None
    limit = 16 * torch.finfo(dtype).eps
    assert compare_nodes(graph, result, inputs)["introduced"].max() < limit


def test_a_node_of_another_shape_is_no_pair_and_what_follows_is_compared():
    class Model(nn.Module):
        def forward(self, x):
            y = x.reshape(2, 6)
            return y.sum() * 3 + x.sum()

    graph = fx.symbolic_trace(Model())
    other = share_tensors_copy(graph)
    other.graph.find_nodes(op="call_method", target="reshape")[0].args = (next(iter(other.graph.nodes)), 3, 4)
    table = compare_nodes(graph, other, torch.randn(12))
    assert "reshape" not in table.index
    assert table["accumulated"].max() < 1e-6
    assert first_divergence(graph, other, torch.randn(12)) is None


def test_values_are_dropped_in_float64_runs_as_well():
    graph, inputs = traced("resnet")
    fused = transformed(graph, FuseBatchNorm2dInConv2d())
    steps = SideBySide(graph, fused, inputs, in_float64=True)
    kept = []
    for pair in steps.pairs():
        if pair.introduced is not pair.expected:
            pair.exact()
        kept.append(len(steps._exact._kept))
    assert max(kept) <= 3


def test_random_numbers_are_the_same_in_both():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).train())
    x, state = torch.randn(2, 4), torch.get_rng_state()
    table = compare_nodes(graph, scaled(graph, "2", 2.0), x)
    assert (table["introduced"] > 0).tolist() == [False, False, False, True]
    assert torch.equal(state, torch.get_rng_state())


def test_gradients_are_as_the_caller_has_them_between_pairs():
    graph = chain()
    for pair in SideBySide(graph, graph, torch.randn(2, 4)).pairs():
        assert torch.is_grad_enabled()
        assert not pair.accumulated.requires_grad


def test_nan_in_one_of_the_two_is_infinitely_far():
    class Roots(nn.Module):
        def forward(self, x):
            return x.sqrt() + 1

    graph = fx.symbolic_trace(Roots())
    other = share_tensors_copy(graph)
    other.graph.find_nodes(op="call_method", target="sqrt")[0].target = "abs"
    table = compare_nodes(graph, other, torch.tensor([1.0, -1.0]))
    assert table["max_introduced"].tolist() == [0.0, math.inf, 0.0]
    assert "NaN" in first_divergence(graph, other, torch.tensor([1.0, -1.0])).judgement.reason
    assert compare_nodes(graph, graph, torch.tensor([math.nan]))["accumulated"].max() == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "ask",
    [
        lambda s: fxlab.compare_nodes(s.original, s.graph_module, s.inputs),
        fxlab.profile,
        lambda s: fxlab.node_values(s, "cos"),
    ],
)
def test_inside_of_vmap_nodes_do_not_run_one_by_one(ask):
    capture = fxlab.Capture()
    torch.compile(lambda x: torch.vmap(lambda row: row.cos() / 3)(x) + 1, backend=capture)(torch.randn(2, 3))
    session = fxlab.Session(capture.graphs[0])
    session.apply("change-true-div-to-mul-by-inverse")
    with pytest.raises(ValueError, match=r"begins a torch\.vmap"):
        ask(session)
    assert session.verdict().agrees
    assert torch._C._functorch.maybe_current_level() is None


def test_what_cannot_be_compared_is_said_in_words():
    graph, x = chain(), torch.randn(2, 4)
    for function in (compare_nodes, first_divergence):
        with pytest.raises(TypeError, match=r"candidate: expected a torch.nn.Module, .* got 'graph'"):
            function(graph, "graph", x)
        with pytest.raises(TypeError, match="inputs: expected a tensor"):
            function(graph, graph, "text")
        with pytest.raises(ValueError, match=r"transformed: node '_0' does not run on these inputs"):
            function(graph, graph, torch.randn(2, 5))
        with pytest.raises(ValueError, match=r"original: it does not take these inputs: missing a required"):
            function(graph, graph, {})
        with pytest.raises(ValueError, match="candidate: it is on the meta device"):
            function(graph, copy.deepcopy(graph).to("meta"), x)
    empty = fx.GraphModule(nn.Module(), fx.Graph())
    assert compare_nodes(empty, empty, ()).empty
    assert first_divergence(empty, empty, ()) is None


def test_numbers_that_are_nan_in_both_count_for_nothing():
    first = fx.symbolic_trace(lambda x: x * 2.0)
    second = fx.symbolic_trace(lambda x: x * torch.tensor([2.0, 2.0, 4.0]))
    table = compare_nodes(first, second, torch.tensor([math.nan, 3.0, 4.0]))
    assert table["accumulated"].iloc[-1] == pytest.approx(8 / 10)


class FoldedTwice(nn.Module):
    """Batch norms, each of which a pass folds into a layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.query, self.query_norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        for norm in (self.norm, self.query_norm):
            nn.init.uniform_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.query_norm(self.query(y)).sin()


@pytest.mark.often(2)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("source", ["trace", "export", "decomposed", "module"])
def test_a_call_that_is_given_another_weight_is_no_longer_the_same_step(source):
    model, x = FoldedTwice().eval(), torch.rand(2, 3, 6, 6)
    if source == "trace":
        graph = fxlab.symbolic_trace(model, (x,))
    else:
        program = torch.export.export(model, (x,))
        graph = program.module() if source == "module" else None
        graph = graph or fxlab.from_exported(
            program.run_decompositions() if source == "decomposed" else program
        )
    session = fxlab.Session(graph, (x,))
    for name in ("fuse-batch-norm2d-in-conv2d", "fuse-batch-norm1d-in-linear"):
        session.apply(name)
    table = compare_nodes(session.original, session.graph_module, session.inputs, judge=True)
    changed = table[table["introduced"] > 0]
    # Each layer computes what its batch norm did.
    assert len(changed) == 2
    assert not set(changed["original"]) & set(changed.index)
    assert not changed.index.str.contains("weight|bias").any()
    assert (table["introduced"] < 1e-6).all()
    assert first_divergence(session.original, session.graph_module, session.inputs) is None


def test_a_graph_is_compared_with_itself():
    model = fxlab.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4), dynamic=False)
    table = compare_nodes(model, model, torch.randn(2, 4), judge=True)
    assert set(table.status) == {"same bits"}
    assert first_divergence(model, model, torch.randn(2, 4)) is None


def test_a_write_into_what_a_removed_node_had_shown_introduces_nothing():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.identity, self.relu = nn.Identity(), nn.ReLU(inplace=True)

        def forward(self, x):
            y = x.clone()
            self.identity(y).add_(1)
            self.relu(self.identity(y))
            return y * 2

    x = torch.randn(2, 4)
    session = fxlab.Session(fx.symbolic_trace(Writes()), (x,))
    session.apply("remove-identities")
    assert len(fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)) == 2
    table = compare_nodes(session.original, session.graph_module, session.inputs, judge=True)
    assert {"add_", "relu"} <= set(table.index)
    assert (table["introduced"] == 0).all()
    assert (table["accumulated"] == 0).all()
    assert first_divergence(session.original, session.graph_module, session.inputs) is None


@pytest.mark.parametrize("trace", [fxlab.symbolic_trace, lambda model, _: fx.symbolic_trace(model)])
def test_graphs_captured_apart_match_by_values_and_not_by_names(trace):
    class Block(nn.Module):
        def __init__(self, low):
            super().__init__()
            self.linear, self.low = nn.Linear(6, 6), low
            self.a, self.b = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

        def forward(self, x):
            y = self.linear(x)
            return torch.tanh(y + self.b(self.a(x)) * 2.0 if self.low else y) * 0.5 + x

    torch.manual_seed(0)
    low, merged = (nn.Sequential(*(Block(low) for _ in range(3))).eval() for low in (True, False))
    merged.load_state_dict(low.state_dict())
    x = torch.randn(3, 6)
    with torch.no_grad():
        for block in merged:
            block.linear.weight += 2.0 * block.b.weight @ block.a.weight
    graph = trace(low, x)
    assert first_divergence(graph, trace(merged, x), x) is None
    table = compare_nodes(trace(low, x), trace(merged, x), x)
    assert table["accumulated"].max() < 1e-5
    assert len(table) >= 9  # of each block the merged linear, the activation and the sum
    with torch.no_grad():
        merged[2].linear.weight[0] *= 1.3
    assert first_divergence(graph, trace(merged, x), x).node == "_2_linear"


def test_functions_are_compared_as_models_are():
    functions, x = (lambda x: x.relu() * 2, lambda x: x.relu() * 2.001), torch.ones(3)
    assert first_divergence(*functions, x).node == "mul"
    assert compare_nodes(*functions, x)["accumulated"].max() > 1e-4
    assert not fxlab.compare_outputs(*functions, x)["same_bits"].any()


def test_tensors_that_a_graph_writes_are_as_before_a_comparison():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    graphs, x = [fxlab.symbolic_trace(Counts(), torch.ones(2)) for _ in range(2)], torch.ones(2)
    assert (compare_nodes(*graphs, x)["accumulated"] == 0).all()
    assert [int(graph.count) for graph in graphs] == [0, 0]


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning", "ignore::fxlab.TraceWarning")
def test_frozen_parts_of_torchscript_have_no_mode():
    frozen = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()))
    twice = nn.Sequential(nn.Linear(4, 4), frozen, nn.Dropout(), frozen).eval()
    session = fxlab.Session(twice, torch.randn(2, 4))
    session.apply("remove-identities")
    assert session.verdict().agrees
    table = compare_nodes(session.original, session.graph_module, session.inputs)
    assert len(table) > 3
    assert (table["introduced"] == 0).all()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_graphs_without_a_common_node_part_at_their_first():
    class Coarse(nn.Module):
        def forward(self, x):
            return torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)

    class Soft(nn.Module):
        def forward(self, x):
            return x.tanh()

    graphs = fx.symbolic_trace(Soft()), fx.symbolic_trace(Coarse())
    assert first_divergence(*graphs, torch.randn(9)).node == "quantize_per_tensor"
    assert not fxlab.verdict(*graphs, torch.randn(9))
