"""Runs a graph as it is, node by node, for facts that a float64 run cannot tell: dtypes, decisions, draws."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, cast

import torch
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.exchanged import cached_property
from fxlab.base.interrupts import RestoringStack
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import generators_kept, gradients_for, seed_generators, torch_generators_now
from fxlab.models.state.model_state import state_kept
from fxlab.validation.verdicts.decisions import DecisionMode, Decisions
from fxlab.validation.verdicts.draws import Draw, Draws
from fxlab.values.nested import Path, flatten_objects, map_tensors, tensors_inside, unflatten_objects
from fxlab.values.tensors import tensors_by_path

Dtypes: TypeAlias = dict[Path, torch.dtype]
"""The dtypes of the tensors inside a value."""


class OwnRun:
    """The run of a graph in its own dtypes, made when it is first asked for."""

    def __init__(
        self,
        graph_module: GraphModule,
        inputs: Inputs,
        beside: GraphModule | None = None,
        given: Sequence[Draw] | None = None,
    ) -> None:
        self._graph_module, self._inputs, self._beside = graph_module, inputs, beside
        self._given = given
        self.needs_gradients = False
        """Whether it has run with gradients only, although no node tells that it needs them."""

    def setting(self) -> AbstractContextManager[Any]:
        """Return a context with gradients, if the graph needs them or the one that it is compared with."""
        if self.needs_gradients:
            return torch.enable_grad()
        return gradients_for(self._graph_module, self._beside)

    def dtypes(self, node: Node) -> Dtypes:
        """Return the dtypes of the tensors that a node makes."""
        return self.noted.dtypes[node]

    @cached_property
    def noted(self) -> "OwnInterpreter":
        """The run, with the dtypes, decisions and random numbers that it has noted."""
        interpreter = OwnInterpreter(self._graph_module, Draws(self._given))
        arguments = placeholder_values(self._graph_module, self._inputs)
        kept = generators_kept(), state_kept(self._graph_module)
        with RestoringStack(self.setting(), *kept):
            seed_generators(0)
            output = interpreter.run(*arguments)
            interpreter.returned = {path: t.detach() for path, t in tensors_by_path(output).items()}
        return interpreter


class OwnInterpreter(Interpreter):
    """Runs the nodes of a graph as they are, and notes dtypes, decisions and random numbers."""

    def __init__(self, graph_module: GraphModule, draws: Draws | None = None) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.dtypes: dict[Node, Dtypes] = {}
        self.returned: dict[str, torch.Tensor] = {}
        """The outputs by path, when it has run."""
        self.decisions = Decisions()
        self.draws = Draws() if draws is None else draws

    def run_node(self, n: Node) -> Any:
        """Run one node, on the values in ``env``."""
        self.decisions.begin(n)
        self.draws.begin(n)
        before, count = torch_generators_now(), len(self.draws.drawn)
        with DecisionMode(self.decisions, self.draws):
            result = super().run_node(n)
        if len(self.draws.drawn) == count and before != torch_generators_now():
            self.draws.unseen.append(n.name)
        self.dtypes[n] = dtypes_of(result)
        return result


class OtherTensors(Interpreter):
    """Runs nodes on other tensors in place of those that the module holds, into which nothing is written."""

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values to use for a parameter, buffer or constant."""
        raise NotImplementedError

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module on other tensors."""
        module = cast(torch.nn.Module, self.fetch_attr(target))
        tensors = [*module.named_parameters(), *module.named_buffers()]
        values = {name: self.value(tensor) for name, tensor in tensors}
        return torch.func.functional_call(module, values, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return an attribute, another one if it is a tensor."""
        value = self.fetch_attr(target)
        return self.value(value) if isinstance(value, torch.Tensor) else value


class OwnNode(OtherTensors, OwnInterpreter):
    """Runs single nodes as they are, on other tensors in place of those that the module holds.

    ``value``: returns the values to use for a parameter, buffer or constant. ``draws``: the random numbers.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        value: Callable[[torch.Tensor], torch.Tensor],
        draws: Draws | None = None,
    ) -> None:
        super().__init__(graph_module, draws)
        self._value = value

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values that were asked for in place of a tensor."""
        return self._value(tensor)


class Narrowed:
    """Values in the dtypes that they have where a graph runs as it is, and the wide values behind them."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def narrow(self, value: Any, dtypes: Dtypes) -> Any:
        """Return a value rounded to these dtypes."""

        def change(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            return self.to(tensor, dtypes.get(path, tensor.dtype))

        return unflatten_objects(map_tensors(change, flatten_objects(value)))

    def to(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor rounded to a dtype."""
        narrow = tensor.to(dtype, copy=True)
        self._pairs.append((narrow, tensor, narrow._version))
        return narrow

    def write_back(self) -> None:
        """Copy writes into the narrow tensors back into the wide ones."""
        for narrow, wide, version in self._pairs:
            if narrow._version != version:
                wide.copy_(narrow)

    def widened(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the wide tensor that a narrow one was made of."""
        return next((wide for narrow, wide, _ in self._pairs if narrow is tensor), None)


def dtypes_of(value: Any) -> Dtypes:
    """Return the dtypes of the tensors inside a value."""
    return {path: tensor.dtype for path, tensor in tensors_inside(flatten_objects(value))}
