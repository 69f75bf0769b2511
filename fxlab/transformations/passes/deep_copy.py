"""Copy the module."""

from dataclasses import dataclass

from torch.fx import GraphModule

from fxlab.models.graph_modules.copies import deep_copy
from fxlab.transformations.base import ReversibleTransformation


@dataclass(frozen=True)
class DeepCopy(ReversibleTransformation):
    """Make a deep copy of the module, marks and all, and leave the original alone.

    Reversing makes another copy: passes before a copy in a composition are then reverted on the copy.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    >>> DeepCopy()(traced) is traced
    False
    """

    preserves_computation = True
    copies_on_write = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Return a copy."""
        return deep_copy(graph_module)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Return a copy."""
        return deep_copy(graph_module)
