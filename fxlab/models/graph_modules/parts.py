"""Parts of a graph module, for passes and traces: names that are free, modules that hold others or check."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn
from uuid import uuid4

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_modules.generated_code import protect
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import storage_of


def free_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return paths for the tensors of a model in a graph module that its own attributes do not hide."""
    split = [path.split(".") for path in paths]
    taken = {tuple(names[:depth]) for names in split for depth in range(1, len(names) + 1)}
    found: dict[str, str] = {}
    for names in split:
        free = [_free_name(tuple(names[:depth]), name, taken) for depth, name in enumerate(names)]
        found[".".join(names)] = ".".join(free)
    return found


def _free_name(parent: tuple[str, ...], name: str, taken: Collection[tuple[str, ...]]) -> str:
    own = _own_names()[bool(parent)]
    if name not in own:
        return name
    return next(other for other in variants(name) if other not in own and (*parent, other) not in taken)


def variants(name: str) -> Iterator[str]:
    """Yield a name, and numbered variants of it: ``layer``, ``layer_1``, ``layer_2``."""
    return itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))


def unused_name(parent: nn.Module, wanted: str) -> str:
    """Return ``wanted``, or a numbered variant of it if the parent already has that attribute."""
    return next(name for name in variants(wanted) if not hasattr(parent, name))


@lru_cache
def _own_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes of graph modules, and of other modules that hold modules."""
    return frozenset(dir(GraphModule(nn.Module(), Graph()))), frozenset(dir(nn.Module()))


def graph_module_of(held: Mapping[str, Any], graph: Graph, class_name: str) -> GraphModule:
    """Return a graph module of a graph and the values at the paths that it names.

    ``held``: modules and attributes by their paths, maybe more than the graph names. ``graph``: becomes the
    graph of the module, and names :func:`free_paths`. ``class_name``: the name of the class.
    """
    readers = [node for node in graph.nodes if node.op in ("get_attr", "call_module")]
    paths = free_paths(dict.fromkeys(str(node.target) for node in readers))
    for node in readers:
        if (path := paths[str(node.target)]) != node.target:
            node.target = path
    root = {paths[path]: value for path, value in held.items() if path in paths}
    return GraphModule(root, protect(graph), class_name)


_KEY = "fxlab.names"


def new_naming() -> str:
    """Return a naming that no other graph has."""
    return uuid4().hex


def give_naming(graph_module: GraphModule, naming: str) -> None:
    """Note the naming of a graph's nodes; its copies and pickles have it as well."""
    graph_module.meta[_KEY] = naming


def share_naming(graph_module: GraphModule, other: GraphModule) -> None:
    """Give a graph the naming of another."""
    other.meta[_KEY] = graph_module.meta[_KEY]


def have_one_naming(first: GraphModule, second: GraphModule) -> bool | None:
    """Tell whether two graphs have the same naming; ``None`` if one of them has none."""
    ours, theirs = (module.meta.get(_KEY) for module in (first, second))
    return None if ours is None or theirs is None else ours == theirs


class Container(nn.Module):
    """A module whose ``forward`` became nodes of the graph; it refuses hooks, which would never run."""

    def _refuse_hook(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "The graph does not call this module, so a hook would never run: what its forward does is nodes "
            "of the graph. Register it before the model is traced, or on a module that the graph calls; "
            "leaf_modules of fxlab.symbolic_trace keeps a module whole."
        )

    register_forward_hook = _refuse_hook
    register_forward_pre_hook = _refuse_hook
    register_backward_hook = _refuse_hook
    register_full_backward_hook = _refuse_hook
    register_full_backward_pre_hook = _refuse_hook


def is_container(module: nn.Module) -> bool:
    """Tell whether a module has no ``forward``: one of fxlab's, or a bare one of torch's."""
    return type(module) in (nn.Module, Container)


def close_containers(module: nn.Module) -> None:
    """Make the bare modules in an unshared module refuse hooks."""
    for part in module.modules():
        if type(part) is nn.Module:
            part.__class__ = Container


class Mode(nn.Module):
    """Follows ``train()`` and ``eval()`` of the modules that hold it."""

    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training


class Requirement(nn.Module):
    """Raises ``AssertionError`` if a graph does not hold.

    It is a module, as a graph's nodes do not see the module around them. Other modules that it asks stay
    where they are: if they were registered here as well, their parameters would have two names.
    """

    _is_impure = True  # for torch.fx: kept although nothing reads it
    label: str
    """Its name in a graph module."""


class RequireModes(Requirement):
    """Raises ``AssertionError`` unless modules are in the modes for which a graph was made.

    ``required``: the name of each module, the module, and whether it must be in training mode. A
    :class:`Mode` stands for a module that the graph does not have. ``made``: how the graph came to depend on
    the mode, such as ``"traced for"``. ``advice``: the remedy in the other mode.
    """

    def __init__(self, required: Iterable[tuple[str, nn.Module, bool]], made: str, advice: str) -> None:
        super().__init__()
        self._required = tuple(required)
        self._made = made
        self._advice = advice
        for index, (_, module, _) in enumerate(self._required):
            if isinstance(module, Mode):
                self.add_module(f"mode_{index}", module)

    @property
    def label(self) -> str:  # type: ignore[override]
        """The name of the mode, or one for several."""
        modes = {training for _, _, training in self._required}
        if len(modes) > 1:
            return "required_modes"
        return "training_mode" if modes == {True} else "evaluation_mode"

    def forward(self) -> None:
        """Check the modes."""
        for name, module, training in self._required:
            if module.training != training:
                mode, other = ("training", "evaluation") if training else ("evaluation", "training")
                raise AssertionError(
                    f"{self._made} {mode} mode; {name} is in {other} mode now. {self._advice}"
                )


class RequireApart(Requirement):
    """Raises ``AssertionError`` if a written input shares memory with a parameter or buffer of modules."""

    label = "inputs_apart"

    def __init__(
        self, modules: Iterable[tuple[str, nn.Module]], names: Sequence[str], made: str, advice: str
    ) -> None:
        super().__init__()
        self._holders = tuple((path, module) for path, module in modules if any(_own_tensors(module)))
        self._names = tuple(names)
        self._made = made
        self._advice = advice

    def forward(self, *inputs: Any) -> None:
        """Compare the memory of the inputs with that of the tensors."""
        written = {
            storage_of(tensor): name
            for name, value in zip(self._names, inputs, strict=True)
            for _, tensor in tensors_inside(value)
            if tensor.layout is torch.strided
        }
        for path, module in self._holders if written else ():
            for name, tensor in _own_tensors(module):
                if (value := written.get(storage_of(tensor))) is not None:
                    raise AssertionError(
                        f"{self._made} inputs that share no memory with the model; {value}, which is "
                        f"written, does with {f'{path}.{name}' if path else name}. {self._advice}"
                    )

    @property
    def holds_for_all(self) -> bool:
        """Whether there are no tensors with which an input could share memory."""
        return not self._holders


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for attributes in (module._parameters, module._buffers, vars(module)):
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                yield name, value


def put_requirement(graph_module: GraphModule, required: Requirement) -> str:
    """Put a checking module into a graph module, and return its name there."""
    free = unused_name(graph_module, required.label)
    graph_module.add_module(free, required)
    return free


def first_compute(graph: Graph) -> Node:
    """Return the first node that is no placeholder."""
    first: Node = next(node for node in graph.nodes if node.op != "placeholder")
    return first
