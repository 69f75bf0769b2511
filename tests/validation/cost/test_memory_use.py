"""Memory that is computed of shapes is the memory that a run takes."""

import functools

import pytest
import torch
from step_models import batches, blocks, net, own_loss, squared
from torch import nn

import fxlab
from benchmarks import memory_use
from fxlab.validation.cost.memory import KINDS, PeakMemory

GIVEN = ["parameters", "buffers", "optimizer state", "inputs"]


@functools.cache
def step_of(checkpointed):
    if checkpointed is None:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())
        return fxlab.trace_step(model, batches(1)[0], loss=own_loss, optimizer=optimizer)
    model, x = blocks(3, checkpointed)
    return fxlab.trace_step(model, x.repeat(40, 1), loss=squared)


@pytest.mark.parametrize("checkpointed", [None, (), (0, 1, 2)])
def test_the_peak_is_that_of_a_run_with_counted_allocations(checkpointed):
    step = step_of(checkpointed)
    use = fxlab.memory(step)
    with torch.no_grad(), PeakMemory() as measured:
        result = step(**fxlab.Session(step).inputs)
    given = int(use.table[GIVEN].iloc[0].sum())
    assert use.peak - given == pytest.approx(measured.peak, rel=0.1)
    assert use.peak == use.table["live"].max() == use.alive["bytes"].sum()
    assert (use.table[list(KINDS)].sum(axis=1) == use.table["live"]).all()
    assert result["loss"] is not None


@pytest.mark.parametrize(
    "name",
    [
        "perceptron, lists",
        *(pytest.param(n, marks=pytest.mark.weekly) for n in ("checkpointed llama", "t5", "resnet")),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the tracker
def test_the_peak_of_training_is_that_of_torchs_own_tracker(name):
    (row,) = memory_use.rows([name])
    assert row["ratio"] == pytest.approx(1, abs=memory_use.NEAR)
    assert row["fxlab_pass"] == row["tracker_pass"]


def test_memory_is_told_by_kind_and_module():
    model, x = blocks(1)
    use = fxlab.memory(step_of(None))
    parameters = sum(p.numel() for p in net().parameters())
    assert (use.table["parameters"] == 4 * parameters).all()
    assert use.table["new state"].iloc[-1] > use.table["parameters"].iloc[-1]
    assert set(use.table["pass"]) == {"", "forward", "backward", "optimizer"}
    use = fxlab.memory(fxlab.trace_step(model, x, loss=squared))
    kept = use.table["activations"]
    assert kept.iloc[-1] == 0
    assert kept.max() > 0
    at_peak = use.alive
    assert at_peak.loc["blocks_0_up_weight", "module_path"] == "blocks.0.up"
    assert at_peak.loc["blocks_0_up_weight", "kept_until"] == ""
    assert at_peak.index.name == "node"
    assert "parameters" in str(use)
    assert use.peak_node in str(use)


def test_any_graph_has_a_memory_and_views_count_once():
    def function(x):
        flat = x.view(-1)
        return (flat + 1).view(4, 8) * 2

    graph = torch.fx.symbolic_trace(function)
    use = fxlab.memory(graph, torch.ones(8, 4))
    assert use.table["made"].tolist() == [0, 0, 128, 0, 128, 0]
    assert use.peak == 3 * 128
    with pytest.raises(ValueError, match="Give inputs"):
        fxlab.memory(graph)


def test_a_session_shows_its_present_stage():
    session = fxlab.Session(step_of(None))
    before = fxlab.memory(session)
    session.apply("eliminate-common-subexpressions")
    after = fxlab.memory(session)
    assert len(after.table) < len(before.table)


def test_a_model_on_the_meta_device_has_a_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
    step = fxlab.trace_step(model, torch.empty(64, 4096, device="meta"), loss=squared)
    use = fxlab.memory(step)
    assert use.table["parameters"].iloc[0] == 4 * 2 * (4096 * 4096 + 4096)


def test_weights_of_called_modules_are_there_all_the_time_and_count_once():
    first, tied = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
    tied.weight = first.weight
    model = nn.Sequential(first, nn.ReLU(), tied, nn.BatchNorm1d(64)).eval()
    x = torch.ones(32, 64)
    use = fxlab.memory(torch.fx.symbolic_trace(model), x)
    for kind, tensors in (("parameters", model.parameters()), ("buffers", model.buffers())):
        assert (use.table[kind] == sum(each.nbytes for each in tensors)).all()
    assert use.peak == fxlab.memory(torch.export.export(model, (x,))).peak == use.alive["bytes"].sum()
    assert "parameters" in use.alive["kind"].values


def test_a_constant_list_of_tensors_is_there_all_the_time():
    graph = torch.fx.Graph()
    graph.placeholder("x")
    graph.output((graph.get_attr("held"),))
    root = nn.Module()
    root.held = [torch.ones(8), torch.ones(8)]
    use = fxlab.memory(torch.fx.GraphModule(root, graph), torch.ones(1))
    assert (use.table["buffers"] == 64).all()


def test_sizes_that_depend_on_data_are_refused_in_words():
    class Chosen(nn.Module):
        def forward(self, x):
            return x[x > 0].exp()

    traced = fxlab.symbolic_trace(Chosen(), torch.randn(3, 4))
    for inputs in ((), (torch.randn(3, 4),)):
        with pytest.raises(ValueError, match=r"The shape of 'getitem' depends on data \(u0\)"):
            fxlab.memory(traced, *inputs)
