"""Graphs that hold for training or for evaluation only refuse the other mode when they run."""

from collections.abc import Iterable

from torch import nn
from torch.fx import Graph, GraphModule, Node


class Mode(nn.Module):
    """Follows ``train()`` and ``eval()`` of the modules that hold it.

    Parameters
    ----------
    training
        The mode to begin with.
    """

    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training


class RequireModes(nn.Module):
    """Raises ``AssertionError`` unless modules are in the modes that a graph was made for.

    It is a module, as a graph's nodes see nothing of the mode of the module around them.

    Parameters
    ----------
    required
        What each module is to be called, the module, and whether it is to be in training mode. A
        :class:`Mode` stands for a module that the graph does not have.
    made
        How the graph came to depend on the mode, such as ``"traced for"``.
    advice
        What to do in the other mode.
    """

    _is_impure = True  # for torch.fx: kept although nothing reads it

    def __init__(self, required: Iterable[tuple[str, nn.Module, bool]], made: str, advice: str) -> None:
        super().__init__()
        # Other modules stay where they are: registered here as well, their parameters would have two names.
        self._required = tuple(required)
        self._made = made
        self._advice = advice
        for index, (_, module, _) in enumerate(self._required):
            if isinstance(module, Mode):
                self.add_module(f"mode_{index}", module)

    def forward(self) -> None:
        """Check the modes."""
        for name, module, training in self._required:
            if module.training != training:
                mode, other = ("training", "evaluation") if training else ("evaluation", "training")
                raise AssertionError(
                    f"{self._made} {mode} mode; {name} is in {other} mode now. {self._advice}"
                )


def put_required(graph_module: GraphModule, required: RequireModes) -> str:
    """Put a module that checks modes into a graph module, and return its name there."""
    modes = {training for _, _, training in required._required}
    name = "required_modes" if len(modes) > 1 else "training_mode" if modes == {True} else "evaluation_mode"
    number, free = 0, name
    while hasattr(graph_module, free):
        number += 1
        free = f"{name}_{number}"
    graph_module.add_module(free, required)
    return free


def first_computing(graph: Graph) -> Node:
    """Return the first node that is no placeholder."""
    first: Node = next(node for node in graph.nodes if node.op != "placeholder")
    return first
