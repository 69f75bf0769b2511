"""What becomes of layers into which numbers were fused that are written to afterwards."""

import pytest
import torch
from torch import nn


def assert_zeros_are_named(fuse, gm):
    """Expect a warning where weights that were trained cannot be divided by what is zero by then."""
    fuse(gm)
    with torch.no_grad():
        gm.layer.weight.mul_(1.5)
        gm.gamma.zero_()
    with pytest.warns(UserWarning, match="cannot bring"):
        fuse(gm, reverse=True)


def assert_stale_once_written(fuse, gm, model):
    """Expect the layer to be stale as soon as the numbers of the model are others."""
    fuse(gm)
    assert fuse.get_stale_nodes(gm) == []
    nn.init.ones_(model.gamma)
    assert [node.name for node in fuse.get_stale_nodes(gm)] == ["layer"]
