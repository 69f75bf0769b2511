"""Steps of models that are spread over ranks: by fully_shard, by tensor parallelism, by replicas."""

import textwrap

import pytest
import torch
import torch.distributed as dist
from fresh_python import Fresh
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxlab
from fxlab import TraceError
from fxlab.drawing import build_hierarchy
from fxlab.models.parallel.placements import known_placement
from fxlab.overlays import Subject, source
from fxlab.view_model.details import Describer

X = torch.ones(6, 8)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Model(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.bn, self.head = norm(8), nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.bn(x))


def loss(output):
    return output.float().square().mean()


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (8,), mesh_dim_names=("dp",))
    dist.destroy_process_group()


def sharded(mesh, norm=nn.BatchNorm1d, **settings):
    model = Model(norm)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def test_fully_sharded_parameters_are_gathered_twice_and_their_gradients_scattered(mesh):
    model = sharded(mesh)
    before = [parameter.to_local().clone() for parameter in model.parameters()]
    step = fxlab.trace_step(model, X, loss=loss, optimizer=torch.optim.AdamW(model.parameters()))
    counts = fxlab.steps.collectives(step).groupby(["pass", "kind"]).size().to_dict()
    # The root keeps what it has gathered, blocks do not.
    assert counts == {
        ("forward", "all_gather"): 16,
        ("backward", "all_gather"): 8,  # of the weights of norms and linears that the backward pass reads
        ("backward", "reduce_scatter"): 16,
    }
    placeholder = next(node for node in step.graph.nodes if node.name == "blocks_0_up_weight")
    assert tuple(placeholder.meta["val"].shape) == (2, 8)
    assert known_placement(placeholder) == "Shard(0) over dp of (16, 8)"
    results = step.graph.output_node().args[0]
    assert known_placement(results["grad of blocks.0.up.weight"]) == "Shard(0) over dp of (16, 8)"
    assert {f"new {name}" for name, _ in model.named_parameters()} <= results.keys()
    where = set(fxlab.steps.collectives(step)["module_path"])
    assert {"blocks.0.up", "blocks.1.norm", "head"} <= where
    assert all(map(torch.equal, before, [parameter.to_local() for parameter in model.parameters()]))


def test_tensor_parallel_layers_reduce_and_placements_of_values_are_known(mesh):
    model = Model()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    step = fxlab.trace_step(model, X, loss=loss)
    table = fxlab.steps.collectives(step)
    assert set(table["kind"]) == {"all_reduce"}
    assert set(table["pass"]) == {"forward", "backward"}
    overlay = source("placements").overlay(Subject(step))
    assert overlay.title == "Placements"
    assert {"Shard(0) over dp", "Shard(1) over dp", "Replicate over dp"} <= set(overlay.values.values())
    describer = Describer(build_hierarchy(step), {})
    weight = next(node for node in step.graph.nodes if node.name == "blocks_0_down_weight")
    assert {"label": "Placement", "value": "Shard(1) over dp of (8, 16)", "code": False} in (
        describer.node(weight)["fields"]
    )


def test_parallel_layers_that_are_sharded_over_another_dimension_are_gathered_and_reduce(mesh):
    both = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
    model = Model(nn.Identity)
    for block in model.blocks:
        parallelize_module(block, both["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=both["data"])
    step = fxlab.trace_step(fully_shard(model, mesh=both["data"]), X, loss=loss)
    kinds = fxlab.steps.collectives(step).groupby("pass")["kind"].agg(set)
    assert {"all_gather", "all_reduce"} <= kinds["forward"]
    assert {"reduce_scatter", "all_reduce"} <= kinds["backward"]


def test_replicas_average_gradients_and_begin_with_the_buffers_of_the_first(mesh):
    step = fxlab.trace_step(DistributedDataParallel(Model()), X, loss=loss)
    table = fxlab.steps.collectives(step)
    assert table["kind"].value_counts().to_dict() == {"all_reduce": 16, "broadcast": 3}
    assert set(table.loc[table["kind"] == "all_reduce", "pass"]) == {"backward"}


@pytest.mark.filterwarnings("ignore:.*FSDP")
def test_steps_that_cannot_be_recorded_as_they_run_are_refused_in_words(mesh):
    hooked = DistributedDataParallel(Model())
    hooked.register_comm_hook(None, lambda state, bucket: None)
    with pytest.raises(TraceError, match="communication hook"):
        fxlab.trace_step(hooked, X, loss=loss)
    with pytest.raises(TraceError, match="Put it around the whole model"):
        fxlab.trace_step(nn.Sequential(DistributedDataParallel(Model())), X, loss=loss)
    flat = FullyShardedDataParallel(Model(nn.Identity), device_id=torch.device("cpu"))
    with pytest.raises(TraceError, match="fully_shard, and trace that"):
        fxlab.trace_step(flat, X, loss=loss)
    half = sharded(mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16))
    with pytest.raises(TraceError, match="with float32 or bfloat16"):
        fxlab.trace_step(half, X, loss=loss)
    model = fully_shard(nn.Linear(8, 8, bias=False), mesh=mesh)
    with pytest.raises(TraceError, match=r"Muon computes .* of whole parameters"):
        fxlab.trace_step(model, X, loss=loss, optimizer=torch.optim.Muon(model.parameters()))


SCRIPT = textwrap.dedent(
    """
    import sys, warnings
    warnings.simplefilter("ignore")
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    sys.path.insert(0, folder)
    from test_spread_steps import *

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def parallel():
        model = Model()
        for block in model.blocks:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return model

    def part(tensor):
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    def trained(make, x, by_graph):
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        if by_graph:
            step = fxlab.trace_step(model, x, loss=loss, optimizer=optimizer)
            train = fxlab.steps.as_step(fxlab.Session(step))
            losses = [train(x) for _ in range(2)]
        else:
            losses = []
            for _ in range(2):
                optimizer.zero_grad()
                losses.append(loss(model(x)))
                losses[-1].backward()
                optimizer.step()
        state = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
        return [*losses, *map(part, (*model.parameters(), *model.buffers(), *state))]

    cases = {
        "sharded": (lambda: sharded(mesh, nn.Identity, mp_policy=policy), rank),
        "replicas": (lambda: DistributedDataParallel(Model()), rank),
        "parallel": (parallel, 0),
    }
    for name, (make, seed) in cases.items():
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        pairs = zip(trained(make, x, True), trained(make, x, False), strict=True)
        print(name, all(torch.equal(one.detach(), other.detach()) for one, other in pairs))

    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            functional, group = torch.ops._c10d_functional, dist.group.WORLD.group_name
            total = functional.all_reduce(self.linear(x).sum(), "sum", group)
            return nn.functional.gelu(x), functional.wait_tensor(total)

    def approximate(gm):
        for node in gm.graph.nodes:
            if "gelu" in node.name:
                node.kwargs = {"approximate": "tanh"}

    torch.manual_seed(0)
    x = torch.randn(6, 8)
    program = torch.export.export(ByHand(), (x,))
    # Of zeros both are the same, so that this rank needs no second run.
    for given in (x, x if rank else torch.zeros(6, 8)):
        session = fxlab.Session(program, given)
        session.add(fxlab.from_callable(approximate))
        session.apply("approximate")
        try:
            print("by hand", session.verdict().status)
        except ValueError as error:
            print("by hand", "refused", "different numbers of runs" in str(error))
    dist.destroy_process_group()
    """
)


@pytest.mark.weekly
def test_two_ranks_train_by_graphs_bit_for_bit_as_eagerly_and_end_whatever_each_finds(tmp_path):
    folder = str(__file__).rpartition("/")[0]
    ranks = [Fresh(SCRIPT, rank, tmp_path / "store", folder, cwd=tmp_path) for rank in (0, 1)]
    said = {rank.wait() for rank in ranks}
    both = "sharded True\nreplicas True\nparallel True\nby hand different\nby hand "
    assert said == {f"{both}same bits\n", f"{both}refused True\n"}
