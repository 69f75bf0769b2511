"""What "exactly as it was" means, and the checks that the tests of all transformations share."""

import copy
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils._python_dispatch import TorchDispatchMode

from fxlab import ReversibleTransformation, Transformation, from_exported, symbolic_trace
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.values.tensors import bits_of


@dataclass
class Snapshot:
    """All of a graph module that a transformation could change."""

    nodes: list[tuple[Any, ...]]
    modules: list[tuple[str, int, type, bool]]
    tensors: list[tuple[str, int]]
    bits: dict[str, torch.Tensor]
    flags: dict[str, bool]
    meta: dict[str, Any]


def snapshot(gm: fx.GraphModule) -> Snapshot:
    """Take everything down, module and tensor objects by identity."""
    tensors = gm.state_dict(keep_vars=True)
    return Snapshot(
        [node_facts(node) for module in graphs_of(gm).values() for node in module.graph.nodes],
        [(name, id(m), type(m), m.training) for name, m in gm.named_modules() if name],
        [(name, id(tensor)) for name, tensor in tensors.items()],
        {name: tensor.detach().clone() for name, tensor in tensors.items()},
        {name: parameter.requires_grad for name, parameter in gm.named_parameters()},
        {
            f"{prefix}{key}": copy.copy(value)
            for prefix, module in graphs_of(gm).items()
            for key, value in module.meta.items()
        },
    )


def node_facts(node: fx.Node) -> tuple[Any, ...]:
    """Return what a node is, by names."""
    return (node.name, node.op, node.target, repr(node.args), repr(node.kwargs), node.type, dict(node.meta))


def without_values(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out the fake tensors that stand for results, and operators: a pickle has others, or none.

    Classes of modules are named, as a pickle names those outside of torch.
    """
    *others, meta = facts
    kept = {key: value for key, value in meta.items() if key not in ("val", "original_aten")}
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        if stack := kept.get(key):
            kept[key] = {place: (path, type_name(owner)) for place, (path, owner) in stack.items()}
    return (*others, kept)


def type_name(owner: type | str) -> str:
    """Return the whole name of a class, which may be given by it."""
    return owner if isinstance(owner, str) else f"{owner.__module__}.{owner.__qualname__}"


def assert_is(gm: fx.GraphModule, before: Snapshot) -> None:
    """Check that a module is, in every respect, what it was."""
    now = snapshot(gm)
    assert now.nodes == before.nodes
    assert now.modules == before.modules
    assert now.tensors == before.tensors
    assert now.flags == before.flags
    assert now.meta == before.meta
    assert_same_bits(now.bits, before.bits)
    gm.graph.lint()


def assert_equals(gm: fx.GraphModule, before: Snapshot) -> None:
    """Check that a copy is equal to what a module was, without being the same objects."""
    now = snapshot(gm)
    assert [without_values(facts) for facts in now.nodes] == [without_values(facts) for facts in before.nodes]
    assert [(name, plain(cls), mode) for name, _, cls, mode in now.modules] == [
        (name, plain(cls), mode) for name, _, cls, mode in before.modules
    ]
    assert now.flags == before.flags
    assert_same_bits(now.bits, before.bits)
    gm.graph.lint()


def plain(cls: type) -> type:
    """Return the class of a module; every graph module has one of its own."""
    return fx.GraphModule if issubclass(cls, fx.GraphModule) else cls


def assert_same_bits(now: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> None:
    """Check that two state dicts have the same names in the same order, and the same bits."""
    assert list(now) == list(before)
    for name, tensor in now.items():
        assert (tensor.dtype, tensor.device) == (before[name].dtype, before[name].device)
        if not tensor.is_meta:
            assert torch.equal(bits_of(tensor), bits_of(before[name])), name


class Apply(nn.Module):
    """A function of a module and its input, with attributes of the module for the function to use."""

    def __init__(self, function: Callable[..., Any], *, training: bool = False, **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, nn.Buffer(value) if type(value) is torch.Tensor else value)
        if not training:
            self.eval()

    def forward(self, x: Any) -> Any:
        """Call the function."""
        return self.function(self, x)


def traced(model: nn.Module) -> fx.GraphModule:
    """Trace as a user of plain torch.fx does."""
    return fx.symbolic_trace(model)


def traced_whole(model: nn.Module, *classes: type[nn.Module]) -> fx.GraphModule:
    """Trace a model, in which modules of some classes are called as a whole."""

    class Whole(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, classes) or super().is_leaf_module(m, module_qualified_name)

    return fx.GraphModule(model, Whole().trace(model))


def with_statistics(norm: Any, shift: bool = True) -> Any:
    """Return a batch norm in evaluation mode, with statistics and parameters that are not trivial."""
    with torch.no_grad():
        if norm.running_var is not None:
            norm.running_var.uniform_(0.5, 2.0)
        for tensor in (norm.running_mean, norm.weight, norm.bias) if shift else ():
            if tensor is not None:
                tensor.normal_()
    return norm.eval()


def shapes_known(model: Any, *inputs: torch.Tensor) -> fx.GraphModule:
    """Trace a model symbolically, and note the shapes of its values."""
    gm = fx.symbolic_trace(model)
    ShapeProp(gm).propagate(*inputs)
    return gm


def captured(source: str, model: nn.Module, *inputs: Any, sizes: Any = None) -> fx.GraphModule:
    """Return the graph of a model as ``fx``, ``trace``, ``export`` or ``decomposed`` gives it."""
    if source == "fx":
        return shapes_known(model, *inputs)
    if source == "trace":
        return symbolic_trace(model, inputs)
    program = torch.export.export(model, inputs, dynamic_shapes=sizes)
    return from_exported(program.run_decompositions() if source == "decomposed" else program)


def check(
    transformation: ReversibleTransformation,
    model: nn.Module,
    *inputs: Any,
    marked: int,
    gm: fx.GraphModule | None = None,
    tolerance: float | None = None,
    removes: bool = False,
) -> fx.GraphModule:
    """Apply, compare, count the marks, reverse, compare exactly; return the module transformed once more.

    Without a mark nothing may have changed, unless nodes are expected to be removed.
    """
    expected = model(*copy.deepcopy(inputs))
    gm = traced(model) if gm is None else gm
    model_before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    before, guards_before = snapshot(gm), guards(gm)
    transformed = transformation(gm)
    assert transformed is gm
    assert_close(gm(*copy.deepcopy(inputs)), expected, tolerance)
    assert len(transformation.get_transformed_nodes(gm)) == marked
    assert_same_bits(model.state_dict(), model_before)
    assert_close(model(*copy.deepcopy(inputs)), expected, 0.0)
    if marked == 0 and not removes:
        assert_is(gm, before)
    assert transformation(gm, reverse=True) is gm
    assert_is(gm, before)
    assert transformation.get_transformed_nodes(gm) == []
    assert guards(gm) == guards_before
    assert_close(gm(*copy.deepcopy(inputs)), expected, 0.0)
    return transformation(gm)


def check_copies(
    transformation: ReversibleTransformation,
    gm: fx.GraphModule,
    copied: Callable[[fx.GraphModule], fx.GraphModule],
    marked: list[str],
) -> None:
    """Apply, copy, reverse the copy, then the original: each is what it was, whatever became of the other."""
    before = snapshot(gm)
    other = copied(transformation(gm))
    assert [node.name for node in transformation.get_transformed_nodes(other)] == marked
    assert_equals(transformation(other, reverse=True), before)
    assert [node.name for node in transformation.get_transformed_nodes(gm)] == marked
    assert_is(transformation(gm, reverse=True), before)


def assert_close(actual: Any, expected: Any, tolerance: float | None = None) -> None:
    """Compare outputs of any structure in float64, within the rounding of their dtype; the dtype exactly."""
    if isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.is_meta:
            return
        if expected.is_floating_point():
            limit = 64 * torch.finfo(expected.dtype).eps if tolerance is None else tolerance
            torch.testing.assert_close(
                actual.double(), expected.double(), rtol=limit, atol=limit, equal_nan=True
            )
        else:
            assert torch.equal(actual, expected)
    elif isinstance(expected, dict):
        for key, value in expected.items():
            assert_close(actual[key], value, tolerance)
    elif isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, tolerance)
    else:
        assert actual == expected
        assert type(actual) is type(expected)


def guards(gm: fx.GraphModule) -> list[Any]:
    """Return what has been fixed of the symbolic sizes of a graph, which a transformation must not add to."""
    values = [node.meta.get("val") for node in gm.graph.nodes]
    environments = {v.fake_mode.shape_env for v in values if isinstance(v, FakeTensor)} - {None}
    return [guard.expr for environment in environments for guard in environment.guards]


def refused(transformation: Transformation, gm: fx.GraphModule) -> str:
    """Check that a graph module is left alone; return the codes of the reasons for it, each once."""
    before = snapshot(gm)
    assert transformation.get_transformed_nodes(transformation(gm)) == []
    assert_is(gm, before)
    return " ".join(dict.fromkeys(reasons(transformation, gm).values()))


def reasons(transformation: Transformation, gm: fx.GraphModule) -> dict[str, str]:
    """Return the code of the reason for which each refused node is refused."""
    frame = transformation.explain(gm)
    assert all(frame.reason)
    assert list(frame.code != "") == list(~frame.matched)
    return {row.Index: row.code for row in frame.itertuples() if not row.matched}


def before_and_after(transformation: Transformation, gm: fx.GraphModule) -> str:
    """Return what a graph module does, line by line, and what it does once it is transformed."""
    return f"{listing(gm)}\n\nbecomes\n\n{listing(transformation(gm))}\n"


def listing(gm: fx.GraphModule) -> str:
    """Return the nodes of a graph module as lines of code, with the modules that they call, but no checks."""
    checks = set[fx.Node]()
    for node in reversed(gm.graph.nodes):
        if node.target is torch._assert or (node.users and checks.issuperset(node.users)):
            checks.add(node)
    return "\n".join(_line(node, gm) for node in gm.graph.nodes if node not in checks)


def _line(node: fx.Node, gm: fx.GraphModule) -> str:
    arguments = [*map(repr, node.args), *(f"{name}={value!r}" for name, value in node.kwargs.items())]
    given = ", ".join(arguments)
    calls = {
        "placeholder": "input",
        "get_attr": f"self.{node.target}",
        "call_function": f"{getattr(node.target, '__name__', node.target)}({given})",
        "call_method": f"{arguments[0] if arguments else ''}.{node.target}({', '.join(arguments[1:])})",
        "call_module": f"self.{node.target}({given})",
        "output": f"return {given}",
    }
    if node.op == "output":
        return calls["output"]
    comment = f"  # {_module_line(gm.get_submodule(str(node.target)))}" if node.op == "call_module" else ""
    return f"{node.name} = {calls[node.op]}{comment}"


def _module_line(module: nn.Module) -> str:
    shapes = [f"{name} {tuple(parameter.shape)}" for name, parameter in module.named_parameters()]
    return ": ".join(filter(None, (type(module).__name__, ", ".join(shapes))))


class Allocations(TorchDispatchMode):
    """Adds up the bytes of the memory that operations return and that was not there before."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation, and note the memory of its results."""
        known = {tensor.untyped_storage()._cdata for tensor in args if isinstance(tensor, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known:
                self.storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return result

    @property
    def bytes(self) -> int:
        """All of that memory."""
        return sum(self.storages.values())


def pickled(gm: fx.GraphModule) -> fx.GraphModule:
    """Return what comes out of a pickle."""
    return pickle.loads(pickle.dumps(gm))


def saved(gm: fx.GraphModule) -> fx.GraphModule:
    """Return what comes out of torch.save and torch.load."""
    buffer = io.BytesIO()
    torch.save(gm, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES: dict[str, Callable[[fx.GraphModule], fx.GraphModule]] = {
    "deepcopy": copy.deepcopy,
    "pickle": pickled,
    "torch.save": saved,
}
"""The ways in which a module is copied, marks and all."""
