import pytest
import torch
from operator_calls import Run, call, torchs_own_calls
from torch.utils import _pytree as pytree


@pytest.fixture(scope="session")
def runs():
    """Some 1,500 calls of 500 operators."""
    found = []
    for function, args, kwargs in torchs_own_calls():
        node, given = call(function, *args, **kwargs)
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        versions, generator = [t._version for t in tensors], torch.get_rng_state()
        try:
            result = function(*args, **kwargs)
        except Exception:  # what needs a library that this torch was built without
            continue
        written = {given[id(t)] for t, v in zip(tensors, versions, strict=True) if t._version != v}
        drew = not torch.equal(generator, torch.get_rng_state())
        found.append(Run(function, node, args, kwargs, result, written, drew))
    assert len(found) > 1_000
    return found
