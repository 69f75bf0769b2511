"""Placements of spread tensors, in words."""

from types import SimpleNamespace

from torch.distributed.tensor import Replicate, Shard

from fxlab.models.parallel.placements import Layout


def test_each_dimension_of_the_mesh_is_named():
    mesh = SimpleNamespace(mesh_dim_names=("dp", "tp"), ndim=2)
    layout = Layout(mesh, (Replicate(), Shard(0)), (64, 32), (32, 1))
    assert str(layout) == "Replicate over dp, Shard(0) over tp of (64, 32)"
