"""Parts of a batch: the inputs of a graph, and labels that only metrics read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from fxlab.base.checks import describe
from fxlab.models.running.running import Inputs
from fxlab.values.nested import flatten_objects, map_tensors, unflatten_objects
from fxlab.values.tensors import tensor_leaves


def check_batch(batch: Any, number: int) -> None:
    """Raise the ``TypeError`` for a value that is not a batch."""
    if not isinstance(batch, Mapping | tuple | list | torch.Tensor):
        raise TypeError(
            f"batches: expected mappings, tuples, lists or tensors, got "
            f"{describe(batch)} as batch {number}. Give each as the model is called with it."
        )


def copied_batch(batch: Any) -> Any:
    """Return a batch with copies of its tensors and arrays."""
    return unflatten_objects(
        map_tensors(lambda _, tensor: tensor.detach().clone(), flatten_objects(batch), other=_own_array)
    )


def _own_array(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def inputs_of_batch(graph_module: GraphModule, batch: Any) -> tuple[Inputs, tuple[str, ...]]:
    """Return the inputs that a graph takes of a batch, and the names or places of the rest."""
    names = [str(node.target).lstrip("*") for node in graph_module.graph.find_nodes(op="placeholder")]
    if isinstance(batch, torch.Tensor):
        return batch, ()
    if isinstance(batch, Mapping):
        taken = {name: value for name, value in batch.items() if name in names}
        return taken, tuple(str(name) for name in batch if name not in taken)
    return tuple(batch[: len(names)]), tuple(map(str, range(len(names), len(batch))))


def elements_of(inputs: Inputs) -> int:
    """Return how many elements a batch has: the first size of its first tensor that has one."""
    return next((tensor.shape[0] for tensor in tensor_leaves(_plain(inputs)) if tensor.dim()), 1)


def _plain(batch: Any) -> Any:
    return dict(batch) if isinstance(batch, Mapping) else batch
