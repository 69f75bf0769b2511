"""Running a graph in float64, node by node: what it would compute if nothing were rounded."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fxlab.interrupts import RestoringStack
from fxlab.model_state import state_kept, value_at
from fxlab.running import Inputs, call_arguments, cuda_devices_in_use, generators_kept, named_arguments
from fxlab.tensors import tensors_by_path
from fxlab.validation.outputs import INPUT, STATE

Widen: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Takes a tensor that a module holds and returns its values in float64."""


def run_in_float64(
    graph_module: GraphModule,
    inputs: Inputs,
    *,
    widen: Widen | None = None,
    mode: "Float64Mode | None" = None,
    written: Iterable[str] = (),
) -> Any:
    """Run a graph with every floating-point number in float64.

    Casts to a floating-point dtype are casts to float64, so the result is that of the graph in (very nearly)
    exact arithmetic, whatever the dtypes of the model. Parameters and buffers are widened for the node that
    uses them and dropped after it: the peak is the float64 copy of one module, not of the model. Nothing is
    written into the module.

    Parameters
    ----------
    graph_module
        The module to run, in the mode (training or not) that it is in.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor.
    widen
        What is taken for the values of a parameter, buffer or constant. Left out, the values themselves.
    mode
        The mode to run in, to be asked afterwards what it has seen. Left out, one of its own.
    written
        Inputs, buffers and parameters that the graph writes, as
        :func:`~fxlab.validation.outputs.observed` names them.

    Returns
    -------
    Any
        The output, with float64 (complex128) where the module returns other floating-point tensors. If
        anything is ``written``, a pair of it and of what is written, by name.

    Raises
    ------
    ValueError
        If a node draws random numbers, which another dtype draws differently, or cannot be run in float64.

    Examples
    --------
    >>> class Thirds(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.to(torch.bfloat16) / 3
    >>> run_in_float64(torch.fx.symbolic_trace(Thirds()), torch.ones(1))
    tensor([0.3333], dtype=torch.float64)
    """
    args, kwargs = widened(call_arguments(inputs))
    arguments = bound_values(graph_module, args, kwargs)
    mode = mode or Float64Mode()
    interpreter = Float64Interpreter(graph_module, widen)
    state = interpreter.keep(path.removeprefix(STATE) for path in written if path.startswith(STATE))
    kept = state_kept(graph_module, watch=False)
    with RestoringStack(torch.no_grad(), generators_kept(), kept, mode):
        output = interpreter.run(*arguments)
    if not written:
        return output
    inputs_now = tensors_by_path(named_arguments(graph_module, args, kwargs))
    now = {INPUT + path: tensor for path, tensor in inputs_now.items()}
    now |= {STATE + name: tensor for name, tensor in state.items()}
    return output, {path: now[path] for path in written if path in now}


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives every operator float64 tensors, lets it make no others, and reads other dtypes as float64.

    Attributes
    ----------
    picks : bool
        Whether an operator made integers or booleans of floating-point numbers (``argmax``, ``topk``, ``>``),
        so that a difference by rounding may become another choice.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.picks = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.view.dtype:
            raise ValueError("it reads the bits of a tensor as another dtype")
        args, kwargs = widened((args, kwargs or {}))
        result = func(*args, **kwargs)
        self.picks = self.picks or (any(map(_is_real, _tensors(args, kwargs))) and _has_integers(result))
        return pytree.tree_map_only(torch.Tensor, _wide, result)


class Float64Interpreter(Interpreter):
    """Runs the nodes of a graph in float64, within a :class:`Float64Mode`."""

    def __init__(self, graph_module: GraphModule, widen: Widen | None = None) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self._widen = widen or _wide_copy
        self._devices = cuda_devices_in_use()
        self._kept: dict[int, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node, on what is in ``env``."""
        before = self._generators()
        try:
            result = super().run_node(n)
        except Exception as error:
            raise ValueError(f"Node {n.name!r} cannot be run in float64: {error}") from error
        if any(map(_differ, before, self._generators())):
            raise ValueError(
                f"Node {n.name!r} draws random numbers, so there is no float64 run to compare with. "
                "Put the model in evaluation mode (model.eval()) and trace it again."
            )
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, to which dtypes are float64 too: the graph may ask for that of an input."""
        # Lists and dictionaries are handed on as they are, as a function may write into them.
        dtypes_wide = tuple(_wide(arg) if isinstance(arg, torch.dtype) else arg for arg in args)
        return super().call_function(target, dtypes_wide, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module with its tensors in float64."""
        module = cast(torch.nn.Module, self.fetch_attr(target))
        tensors = [*module.named_parameters(), *module.named_buffers()]
        values = {name: self._value(tensor) for name, tensor in tensors}
        return torch.func.functional_call(module, values, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return an attribute, a tensor in float64."""
        value = self.fetch_attr(target)
        return self._value(value) if isinstance(value, torch.Tensor) else value

    def keep(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Let all nodes use one copy of each of some tensors of the module, and return the copies by name."""
        held = {name: value_at(self.module, name) for name in names}
        tensors = {name: tensor for name, tensor in held.items() if isinstance(tensor, torch.Tensor)}
        self._kept = {id(tensor): self._value(tensor) for tensor in tensors.values()}
        return {name: self._kept[id(tensor)] for name, tensor in tensors.items()}

    def _value(self, tensor: torch.Tensor) -> torch.Tensor:
        if (kept := self._kept.get(id(tensor))) is not None:
            return kept
        return self._widen(tensor) if tensor.is_floating_point() else _wide_copy(tensor)

    def _generators(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]


def widened(value: Any) -> Any:
    """Return a value with the tensors and dtypes inside in float64 (complex128)."""
    return pytree.tree_map(_wide, value)


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy, as a node may write into it."""
    return tensor.detach().to(_wide_dtype(tensor.dtype), copy=True)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(_wide_dtype(value.dtype))
    return _wide_dtype(value) if isinstance(value, torch.dtype) else value


def _wide_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return not torch.equal(a, b)


def _has_integers(value: Any) -> bool:
    return any(not tensor.is_floating_point() and not tensor.is_complex() for tensor in _tensors(value))


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _tensors(*values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def placeholder_values(graph_module: GraphModule, inputs: Inputs) -> tuple[Any, ...]:
    """Return copies of the values of the placeholders, in their order."""
    return bound_values(graph_module, *call_arguments(inputs))


def bound_values(graph_module: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values of the placeholders, in their order."""
    try:
        bound = inspect.signature(graph_module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"it does not take these inputs: {error}") from error
    bound.apply_defaults()
    return (*bound.args, *bound.kwargs.values())
