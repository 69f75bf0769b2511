"""Models of one process among several: traced with their DTensors, or refused in one sentence."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fxlab

X = torch.randn(2, 8)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()


def test_fsdp_is_refused_before_anything_runs(mesh):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    for sharded in (FullyShardedDataParallel(model(), device_id=torch.device("cpu")), fully_shard(model())):
        expected = sharded(X)
        with pytest.raises(ValueError, match="is sharded by FSDP"):
            fxlab.symbolic_trace(sharded, X)
        assert torch.equal(sharded(X), expected)


def test_data_parallel_models_are_traced(mesh):
    parallel = nn.parallel.DistributedDataParallel(model())
    assert torch.equal(fxlab.symbolic_trace(parallel, X, check=False)(X), parallel(X))


def test_tensor_parallel_models_are_traced_and_judged(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    parallel = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert fxlab.Session(parallel, X).verdict().agrees


def test_a_dtensor_is_an_input(mesh):
    from torch.distributed.tensor import Replicate, distribute_tensor

    class Doubles(nn.Module):
        def forward(self, x):
            return (x * 2).relu()

    x = distribute_tensor(X, mesh, [Replicate()])
    assert fxlab.Session(Doubles(), x).verdict().agrees
