"""Runs a graph in float64, node by node, for verdicts: its results if nothing were rounded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, Unpack, cast

import torch
from torch.fx import GraphModule, Node

from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import HigherOrderOperator, TorchDispatchMode, modes_disabled, pytree
from fxlab.models.graph_modules.bodies import run_under
from fxlab.models.running import running
from fxlab.models.running.arguments import (
    Inputs,
    bound_values,
    call_arguments,
    memoize_by_tensor,
    named_arguments,
)
from fxlab.models.running.attention import in_steps, is_attention_kernel
from fxlab.models.state.model_state import state_kept, value_at
from fxlab.transformations.calls.graph_index import is_guard
from fxlab.validation.outputs.computed_tensors import INPUT, STATE
from fxlab.validation.verdicts.decisions import Decisions
from fxlab.validation.verdicts.draws import CannotReplayError, Draw, Draws, draws, may_draw
from fxlab.validation.verdicts.own_run import Dtypes, Narrowed, OtherTensors, OwnNode, OwnRun
from fxlab.values.memory import overlapping_groups
from fxlab.values.nested import RequireParts
from fxlab.values.tensors import is_floating, storage_of, tensors_by_path, to_float64, wide_device, wide_dtype

Widen: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Takes a tensor that a module holds and returns its values in float64."""
Visit: TypeAlias = Callable[[Node, Any], None]
"""Is given a node and its result."""


@dataclass(frozen=True)
class Float64Result:
    """The result of :func:`run_in_float64`."""

    output: Any
    in_own_dtype: tuple[str, ...]
    """The nodes that have no float64."""
    returned: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors in the output, by path."""
    written: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors that it wrote in place, of those asked for, by name."""


class Settings(TypedDict, total=False):
    """The settings of a float64 run."""

    widen: Widen | None
    """Returns the values to use for a parameter, buffer or constant. Left out, the values themselves."""
    decisions: Decisions | None
    """Where the decisions of operators are noted, or taken from."""
    move: Widen | None
    """Returns the values to use for a tensor that a node computed in its own dtype. Left out, its values."""
    everywhere: bool
    """Whether that is taken for inputs as well, and for each result of an operator."""
    drawn: Sequence[Draw]
    """The random numbers for operators."""


def run_in_float64(
    graph_module: GraphModule,
    inputs: Inputs,
    *,
    own: OwnRun | None = None,
    written: Iterable[str] = (),
    visit: Visit | None = None,
    **settings: Unpack[Settings],
) -> Float64Result:
    """Run a graph with every floating-point number in float64.

    Casts to a floating-point dtype are casts to float64, so the result is that of the graph in (very nearly)
    exact arithmetic, for all dtypes of the model. A node that has no float64 (a product of grouped matrices,
    of quantized or of 8-bit ones) runs in its own dtypes, on rounded values.

    Parameters and buffers are widened for the node that uses them and dropped after it: the peak is the
    float64 copy of one module, not of the model. Nothing is written into the module.

    ``own``: the same graph on the same inputs as it is; left out, it is run if a node has no float64.
    ``written``: inputs, buffers and parameters that the graph writes. ``visit``: called with each node and
    its result. Raises ValueError if a node draws other random numbers than the given ones, or runs
    neither in float64 nor in its own dtypes.
    """
    args, kwargs = wide_arguments(inputs, settings.get("move") if settings.get("everywhere") else None)
    arguments = bound_values(graph_module, args, kwargs)
    own = own or OwnRun(graph_module, inputs)
    interpreter = Float64Interpreter(graph_module, own_dtypes=own.dtypes, visit=visit, **settings)
    written = tuple(written)
    # Nothing is watched, as nodes write into float64 copies.
    kept = running.generators_kept(), state_kept(graph_module, watch=False)
    with RestoringStack(own.setting(), *kept):
        names = [path.removeprefix(STATE) for path in written if path.startswith(STATE)]
        state = interpreter.keep([*names, *differentiated(graph_module)])
        running.seed_generators(0)
        output = interpreter.run(*arguments)
    now = {STATE + name: state[name] for name in names if name in state}
    if written:
        inputs_now = tensors_by_path(named_arguments(graph_module, args, kwargs))
        now |= {INPUT + path: tensor for path, tensor in inputs_now.items()}
    asked = {path: now[path].detach() for path in written if path in now}
    returned = {path: tensor.detach() for path, tensor in tensors_by_path(output).items()}
    return Float64Result(running.detached(output), tuple(interpreter.in_own_dtype), returned, asked)


def differentiated(graph_module: GraphModule) -> list[str]:
    """Return the names of the tensors that a graph differentiates by, so that all nodes use one copy."""
    taken = (node for node in graph_module.graph.nodes if running.takes_derivatives(node))
    read = (each for node in taken for each in node.all_input_nodes if each.op == "get_attr")
    return [*dict.fromkeys(str(node.target) for node in read)]


class NoFloat64Error(ValueError):
    """A graph that runs as it is does not run in float64."""


class DrawsRandomNumbersError(NoFloat64Error):
    """A node draws random numbers that cannot be given to it, so that there is no float64 run."""

    def __init__(self, node: Node, why: str = "") -> None:
        self.node = node.name
        because = f" ({why})" if why else ""
        super().__init__(
            f"Node {node.name!r} draws random numbers that cannot be given to it in float64{because}, so "
            "there is no float64 run to compare with. Put the model in evaluation mode (model.eval()) and "
            "trace it again."
        )


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives every operator float64 tensors, lets it make no others, and reads other dtypes as float64.

    On a device that has no float64 it gives, and lets make, tensors on the CPU.

    ``decisions``: where the decisions of operators are noted, or taken from. ``move``: returns the values to
    use for each result. Left out, the result itself. ``drawn``: random numbers, if any are given.
    """

    supports_higher_order_operators = True

    def __init__(
        self, decisions: Decisions | None = None, move: Widen | None = None, drawn: Draws | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._decisions = decisions or Decisions()
        self._move, self._drawn = move, drawn

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # The bits differ in float64, so the node has to run in its own dtypes.
        if func is torch.ops.aten.view.dtype:
            raise ValueError("it reads the bits of a tensor as another dtype")
        args, kwargs = widened((args, kwargs or {}))
        if isinstance(func, HigherOrderOperator):
            result = func(*run_under(self, args), **run_under(self, kwargs))
        elif self._drawn is not None and draws(func, args, kwargs):
            given = self._drawn.result(func, args, kwargs)
            return _mapped(_wide, given)
        elif is_attention_kernel(func, args, kwargs):
            result = in_steps(func, args, kwargs)
        else:
            if self._drawn is not None and may_draw(func):
                self._drawn.inside = str(func)
            result = self._decisions.decided(func, args, kwargs, func(*args, **kwargs))
        result = _mapped(_wide, result)
        return result if self._move is None else _moved_results(func, (args, kwargs), result, self._move)


class Float64Interpreter(OtherTensors):
    """Runs the nodes of a graph in float64, and those that have no float64 in their own dtypes.

    Nothing is written into the module. The arguments are those of :class:`Settings`, and ``own_dtypes``:
    returns the dtypes of a node's value where the graph runs as it is. Left out, a node that has no float64
    is an error. ``visit``: called with each node and its result.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        widen: Widen | None = None,
        *,
        own_dtypes: Callable[[Node], Dtypes] | None = None,
        decisions: Decisions | None = None,
        move: Widen | None = None,
        everywhere: bool = False,
        drawn: Sequence[Draw] = (),
        visit: Visit | None = None,
    ) -> None:
        super().__init__(graph_module)
        self._visit = visit
        # The interpreter would append the node and a traceback to the message of each error.
        self.extra_traceback = False
        self.in_own_dtype: list[str] = []
        """The nodes that had to run in their own dtypes."""
        self._decisions = decisions or Decisions()
        self._draws = Draws(drawn)
        self._mode = Float64Mode(self._decisions, move if everywhere else None, self._draws)
        self._widen, self._move = widen or _wide_copy, move or _wide
        self._own_dtypes = own_dtypes
        self._kept: dict[int, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node, on the values in ``env``."""
        before, count = running.torch_generators_now(), len(self._draws.drawn)
        self._decisions.begin(n)
        self._draws.begin(n)
        try:
            try:
                with self._mode:
                    result = super().run_node(n)
            except CannotReplayError:
                raise
            except Exception as error:
                # The node runs once more, and shall get the same numbers again.
                self._draws.back_to(count)
                result = self._run_in_own_dtype(n, error)
        except CannotReplayError as error:
            raise DrawsRandomNumbersError(n, str(error)) from error
        # A generator that has moved shows draws inside an operator, which no mode sees.
        if before != running.torch_generators_now():
            inside = f"{self._draws.inside} draws them inside" if self._draws.inside else ""
            raise DrawsRandomNumbersError(n, inside)
        if self._visit is not None:
            self._visit(n, result)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, to which dtypes are float64 too: the graph may ask for that of an input."""
        if isinstance(target, RequireParts):  # of inputs, which had the dtypes that it asks for
            return True
        # Lists and dictionaries are handed on as they are, as a function may write into them.
        dtypes_wide = tuple(
            _wide(arg) if isinstance(arg, torch.dtype | torch.device) else arg for arg in args
        )
        return super().call_function(target, dtypes_wide, kwargs)

    def give(self, drawn: Sequence[Draw]) -> None:
        """Give the operators of the next nodes these random numbers, the first of them first."""
        self._draws.given = drawn
        self._draws.back_to(0)

    def keep(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Replace some tensors of the module by one copy each for all nodes; return the copies by name."""
        held = {name: value_at(self.module, name) for name in names}
        tensors = {name: tensor for name, tensor in held.items() if isinstance(tensor, torch.Tensor)}
        self._kept = {id(tensor): self.value(tensor) for tensor in tensors.values()}
        return {name: self._kept[id(tensor)] for name, tensor in tensors.items()}

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float64."""
        if (kept := self._kept.get(id(tensor))) is not None:
            return kept
        with modes_disabled():  # or the mode would widen it first, to be copied
            wide = self._widen(tensor) if tensor.is_floating_point() else _wide_copy(tensor)
        # A model may differentiate by its own weights.
        return wide.requires_grad_() if tensor.requires_grad and torch.is_grad_enabled() else wide

    def _run_in_own_dtype(self, node: Node, reason: Exception) -> Any:
        """Run a node as the graph itself does, on values rounded to the dtypes that they have there."""
        first_line = str(reason).partition("\n")[0]
        message = f"Node {node.name!r} cannot be run in float64: {first_line}"
        if self._own_dtypes is None:
            raise ValueError(message) from reason
        if is_guard(node):
            _ = self._own_dtypes(node)  # the graph as it is has run, and passed it: that decision is taken
            return None
        narrowed = Narrowed()
        graph_module = cast(GraphModule, self.module)
        own = OwnNode(graph_module, lambda tensor: self._own_value(tensor, narrowed), self._draws)
        try:
            own.env = {
                value: narrowed.narrow(self.env[value], self._own_dtypes(value))
                for value in node.all_input_nodes
            }
            result = own.run_node(node)
        except CannotReplayError:
            raise
        except Exception as error:
            raise ValueError(message) from error
        self.in_own_dtype.append(node.name)
        narrowed.write_back()

        def wide(tensor: torch.Tensor) -> torch.Tensor:
            written = narrowed.widened(tensor)
            if written is not None:
                return written
            return self._moved(tensor) if _can_be_moved(tensor) else _wide_or_itself(tensor)

        return pytree.tree_map_only(torch.Tensor, wide, result)

    def _own_value(self, tensor: torch.Tensor, narrowed: Narrowed) -> torch.Tensor:
        """Return a tensor of the module for a node that runs in its own dtype, which may write into it."""
        kept = self._kept.get(id(tensor))
        if kept is None:
            own = tensor.detach().to(wide_device(tensor.device), copy=True)
            return own.requires_grad_(tensor.requires_grad and torch.is_grad_enabled())
        return narrowed.to(kept, tensor.dtype)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.requires_grad:
            return self._move(tensor)
        wide = cast(torch.Tensor, _wide(tensor))
        # The move is a constant to autograd: gradients go through the value itself.
        return wide + (self._move(tensor) - wide).detach().nan_to_num(0.0)


def widened(value: Any) -> Any:
    """Return a value with the tensors and dtypes inside in float64 (complex128)."""
    return _mapped(memoize_by_tensor(_wide), value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a nested value with changed leaves; operators have nearly all in plain lists and tuples."""
    if type(value) is tuple or type(value) is list:
        return type(value)([_mapped(change, each) for each in value])
    return change(value) if isinstance(value, torch.Tensor) else pytree.tree_map(change, value)


def wide_arguments(inputs: Inputs, move: Widen | None) -> tuple[Any, Any]:
    """Return positional and keyword arguments in float64, moved if that is asked for."""
    given = call_arguments(inputs)
    together = dict(_wide_together(pytree.tree_leaves(given)))
    wide: tuple[Any, Any] = pytree.tree_map(memoize_by_tensor(_wide, together.items()), given)
    if move is None:
        return wide
    one = memoize_by_tensor(
        lambda tensor: move(tensor) if _can_be_moved(tensor) else tensor,
        ((tensor, tensor) for tensor in together.values()),
    )
    moved = pytree.tree_map_only(torch.Tensor, one, wide)
    return cast(tuple[Any, Any], moved)


def _wide_together(leaves: Iterable[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the tensors that overlap others, and float64 ones that overlap as they do."""
    for group in overlapping_groups(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)):
        dtypes = {tensor.dtype for tensor in group}
        if len(dtypes) > 1:
            raise ValueError(
                "inputs of several dtypes overlap in memory, so there is no float64 run to compare with"
            )
        first, size = group[0], group[0].element_size()
        whole = torch.empty(0, dtype=first.dtype, device=first.device)
        # All of their memory is widened at once, so that a write into one is seen in the others.
        whole.set_(first.untyped_storage(), 0, (first.untyped_storage().nbytes() // size,), (1,))
        wide = cast(torch.Tensor, _wide(whole))
        for tensor in group:
            yield tensor, wide.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _moved_results(func: Any, given: Any, result: Any, move: Widen) -> Any:
    """Return an operator's result, moved; views of its arguments stay views."""
    arguments = {storage_of(t) for t in pytree.tree_leaves(given) if _can_be_moved(t)}
    writes = not isinstance(func, HigherOrderOperator) and func._schema.is_mutable

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if not _can_be_moved(tensor):
            return tensor
        if storage_of(tensor) not in arguments:
            return move(tensor)
        return tensor.copy_(move(tensor)) if writes else tensor

    return pytree.tree_map_only(torch.Tensor, one, result)


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy, as a node may write into it."""
    return to_float64(tensor.detach(), copy=True)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_float64(value)
    if isinstance(value, torch.device):
        return wide_device(value)
    return wide_dtype(value) if isinstance(value, torch.dtype) else value


def _wide_or_itself(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, unless it is of a class that has none, such as one of quantized weights."""
    try:
        return cast(torch.Tensor, _wide(tensor))
    except (NotImplementedError, RuntimeError, TypeError):
        return tensor


def _can_be_moved(value: Any) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided and is_floating(value)
