"""Check the graph and regenerate its code."""

from dataclasses import dataclass

from torch.fx import GraphModule

from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.transformations.base import ReversibleTransformation


@dataclass(frozen=True)
class LintAndRecompile(ReversibleTransformation):
    """Check the graph and regenerate the module's code; change nothing else.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    >>> LintAndRecompile()(traced) is traced
    True
    """

    preserves_computation = True
    copies_on_write = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Lint and recompile."""
        for module in graphs_of(graph_module).values():
            module.graph.lint()
            module.recompile()
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Lint and recompile."""
        return self.transform(graph_module)
