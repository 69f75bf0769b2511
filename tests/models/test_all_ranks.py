"""All ranks of a fake group run in one process, and exchange what a real group would."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxlab
from fxlab.models.all_ranks import inputs_of_all_ranks, of_all_ranks
from fxlab.validation import compare_stages

WORLD = 4
functional = torch.ops._c10d_functional
ROWS = [torch.arange(8.0).view(4, 2) * (rank + 1) - rank for rank in range(WORLD)]
ROW, COLUMN = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    dist.destroy_process_group()


def run(function, *inputs):
    graph = torch.fx.symbolic_trace(function)
    given = {f"x_rank_{rank}": value for rank, value in enumerate(inputs)}
    return [result for _, result in sorted(of_all_ranks(graph)(**given).items())]


def expected(groups, of):
    """What each rank is given by a function of the tensors of its group, and of its place there."""
    found = {}
    for group in groups:
        given = [ROWS[rank] for rank in group]
        found.update({rank: of(given, place) for place, rank in enumerate(group)})
    return [found[rank] for rank in range(WORLD)]


CALLS = {
    "all_reduce avg": (
        lambda x, g: functional.all_reduce(x, "avg", g),
        lambda given, place: sum(given) / len(given),
    ),
    "all_reduce max": (
        lambda x, g: functional.all_reduce(x, "max", g),
        lambda given, place: torch.stack(given).amax(0),
    ),
    "all_gather": (
        lambda x, g: functional.all_gather_into_tensor(x, 2, g),
        lambda given, place: torch.cat(given),
    ),
    "reduce_scatter": (
        lambda x, g: functional.reduce_scatter_tensor(x, "sum", 2, g),
        lambda given, place: sum(given).chunk(2)[place],
    ),
    "broadcast": (lambda x, g: functional.broadcast(x, 1, g), lambda given, place: given[1]),
    "all_to_all": (
        lambda x, g: functional.all_to_all_single(x, [2, 2], [2, 2], g),
        lambda given, place: torch.cat([each.chunk(2)[place] for each in given]),
    ),
    "several at once": (
        lambda x, g: functional.all_gather_into_tensor_coalesced([x, x * 2], 2, g)[1],
        lambda given, place: torch.cat(given) * 2,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("dimension", "groups"), [("column", ROW), ("row", COLUMN)])
def test_each_rank_is_given_what_its_group_computes(mesh, name, dimension, groups):
    call, of = CALLS[name]
    group = mesh[dimension].get_group().group_name
    found = run(lambda x: functional.wait_tensor(call(x, group)), *ROWS)
    assert all(map(torch.equal, found, expected(groups, of)))


def test_replicas_average_the_gradients_of_their_batches(mesh):
    torch.manual_seed(0)
    model, batches = nn.Linear(3, 2), [torch.randn(5, 3) for _ in range(WORLD)]
    step = fxlab.trace_step(
        DistributedDataParallel(copy.deepcopy(model)), batches[0], loss=lambda output: output.square().mean()
    )
    inputs = inputs_of_all_ranks(step, fxlab.Session(step).inputs)
    (name,) = (n.name for n in step.graph.find_nodes(op="placeholder") if n.meta["desc"].kind == "batch")
    assert not torch.equal(inputs[f"{name}_rank_1"], inputs[f"{name}_rank_0"])
    inputs |= {f"{name}_rank_{rank}": batch for rank, batch in enumerate(batches)}
    found = of_all_ranks(step)(**inputs)
    model(torch.stack(batches)).square().mean().backward()
    for rank in range(WORLD):
        result = found[f"rank {rank}"]["grad of module.weight"]
        assert torch.allclose(result, model.weight.grad, atol=1e-6)


def other_reduction(graph_module):
    """A pass with a mistake: the first reduction of gradients adds them up."""
    reductions = [n for n in graph_module.graph.nodes if "reduce_scatter" in str(n.target)]
    reductions[0].update_arg(1, "sum")
    return graph_module


def test_a_step_of_a_fake_group_is_judged_on_all_ranks(mesh):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    fully_shard(model, mesh=mesh["row"])
    step = fxlab.trace_step(model, torch.randn(6, 8), loss=lambda output: output.square().mean())
    session = fxlab.Session(step, passes=["remove-redundant-views", fxlab.from_callable(other_reduction)])
    session.apply("remove-redundant-views")
    verdict = session.verdict()
    assert verdict.same_bits
    assert "rank 3.loss" in verdict.outputs
    assert (
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs)["max_abs_diff"].max()
        == 0
    )
    assert compare_stages(session)["status"].tolist() == ["same bits", "same bits"]
    session.apply(session.passes[-1])
    wrong = session.verdict()
    assert wrong.status == "different"
    assert {path for path, one in wrong.outputs.items() if one.status == "different"} == {
        f"rank {rank}.grad of 2.bias" for rank in range(WORLD)
    }


def test_collectives_that_are_not_computed_here_are_told(mesh):
    def reduced_in_place(x):
        return functional.all_reduce_(x, "sum", "0")

    graph = torch.fx.symbolic_trace(reduced_in_place)
    with pytest.raises(ValueError, match=r"all_reduce_.* is not computed in one process"):
        fxlab.verdict(graph, copy.deepcopy(graph), torch.ones(2))
    with pytest.raises(ValueError, match="A verdict runs all ranks in this process"):
        fxlab.first_divergence(graph, copy.deepcopy(graph), torch.ones(2))
