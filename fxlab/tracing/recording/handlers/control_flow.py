"""The handler of operators that take functions: branches and loops, each function as a graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import HigherOrderOperator, pytree
from fxlab.tracing.recording.bodies import OperatorBody
from fxlab.tracing.recording.run import PASSED_ON, RecordingState, TorchCall
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.report import Obstacle
from fxlab.tracing.shapes.fake_state import call_on_data, give_data, has_data
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.values.tensors import version_of

Tensors = Sequence[torch.Tensor]


_LOOPS = tuple(f"torch._higher_order_ops.{name}" for name in ("while_loop", "scan", "map"))
"""Modules of torch whose operators compile themselves: only Dynamo lets a loop carry nested containers."""


@contextmanager
def not_compiled() -> Iterator[None]:
    """Run functions and modules compiled by torch.compile as their original Python."""
    with torch.compiler.set_stance("force_eager"), _loops_compiled():
        yield


@contextmanager
def _loops_compiled() -> Iterator[None]:
    """Compile loops, and nothing else, as eager torch does."""

    def compiled(original: Callable[..., Any], function: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            # This may run inside `force_eager`, which holds for the rest of the model.
            with torch.compiler.set_stance("default"):
                return made(*args)

        made = original(function, backend="eager", fullgraph=True)
        return call

    with _loops_exchanged(compiled):
        yield


@contextmanager
def loops_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of loops, but not the compiler that they go through."""
    with _loops_exchanged(lambda _, function: function):
        yield


def _loops_exchanged(instead: Callable[..., Any]) -> AbstractContextManager[None]:
    def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(function: Any = None, **options: Any) -> Any:
            is_loop = getattr(function, "__module__", None) in _LOOPS
            return instead(original, function) if is_loop else original(function, **options)

        return compiled

    return patched_functions(torch, {"compile": compiling})


def record_control_flow(run: RecordingState, call: TorchCall) -> Any:
    """Record a call of an operator that takes functions, or refuse it.

    Torch hands flat functions and flat tensors to these operators, so that ``scan`` along another dimension
    is one along the first. The model gets results in the structure in which its function gives them. Numbers
    that ``while_loop`` carries are symbols in its functions, and other symbols after it.
    """
    if not isinstance(call.func, HigherOrderOperator):
        return PASSED_ON
    if (record := _RECORDED.get(call.func.__name__)) is None:
        called = f"torch's operator {call.func.__name__}, which is given functions"
        raise Obstacle.HIDDEN_BY_TORCH(called=called)
    return record(run, call.func, *call.args, **call.kwargs)


def _cond(
    run: RecordingState, operator: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any] = ()
) -> Any:
    if not isinstance(pred, torch.Tensor):
        with run.sizes.asked(by_model=True):
            chosen = true_fn if pred else false_fn
        return _seen(run, chosen, *operands)
    functions = {"true_graph": partial(true_fn, *operands), "false_graph": partial(false_fn, *operands)}
    bodies = _Bodies(run, operator, functions, ())
    (result, other), (structure, other_structure) = bodies.results, bodies.structures
    if structure != other_structure or not _same_kinds(result, other):
        raise bodies.refused("gives tensors of other shapes or dtypes than the other")
    if _value_of(run, pred) is False:
        result, other = other, result
    with run.unseen():
        for tensor, another in zip(result, other, strict=True):
            # Either branch may run, so the result has a gradient if one of them gives it one.
            if another.requires_grad and not tensor.requires_grad:
                tensor.requires_grad_()
    return bodies.recorded((pred, *bodies.nodes, bodies.given), result)


def _while_loop(
    run: RecordingState,
    operator: Any,
    cond_fn: Any,
    body_fn: Any,
    carried: Sequence[Any],
    additional: Tensors,
) -> Any:
    bodies = _Bodies(run, operator, {_CONDITION: cond_fn, "body_graph": body_fn}, (*carried, *additional))
    bodies.require_same(bodies.results[-1], carried)
    call = (*bodies.nodes, tuple(carried), (*additional, *bodies.given))
    return bodies.recorded(call, bodies.computed(cond_fn, body_fn, tuple(carried), tuple(additional)))


def _scan(
    run: RecordingState,
    operator: Any,
    combine_fn: Any,
    init: Tensors,
    xs: Tensors,
    additional_inputs: Tensors,
) -> Any:
    with run.unseen():
        rows = [x.select(0, 0) for x in xs]
    bodies = _Bodies(run, operator, {"combine_graph": combine_fn}, (*init, *rows, *additional_inputs))
    bodies.require_same(bodies.results[0][: len(init)], init)
    call = (*bodies.nodes, list(init), list(xs), (*additional_inputs, *bodies.given))
    computed = bodies.computed(
        combine_fn, list(init), list(xs), tuple(additional_inputs), stacked=(len(init), xs[0])
    )
    return bodies.recorded(call, computed)


def _map(
    run: RecordingState, operator: Any, f: Any, xs: Tensors, pos_args: Sequence[Any], **written: str
) -> Any:
    with run.unseen():
        rows = [x.select(0, 0) for x in xs]
    bodies = _Bodies(run, operator, {"body_graph": f}, (*rows, *pos_args))
    if any(written.values()):  # places of arguments, which torch has named since 2.15
        raise bodies.refused("writes into its arguments")
    call = (*bodies.nodes, list(xs), [*pos_args, *bodies.given])
    return bodies.recorded(call, bodies.computed(f, list(xs), list(pos_args), stacked=(0, xs[0])))


_RECORDED: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}
"""Name of an operator -> records a call of it."""

_CARRYING_NUMBERS, _NUMBERS = ("while_loop",), (int, torch.SymInt)
"""Operators whose functions may be given numbers and give them, and the classes of these."""

_CONDITION = "cond_graph"
"""The name of a graph that gives the condition of a loop."""


class _Bodies:
    """The functions of one call as graphs.

    ``functions``: name of the graph -> function. ``arguments``: the arguments of each. A loop calls its
    function again with other values, so the graphs are recorded with tensors like these, without their data.

    ``nodes``: the nodes of the graphs. ``given``: the values of the graph around them that they use, which
    the operator passes to them last. ``results``: the results of each function: tensors, and numbers if the
    operator carries numbers. ``structures``: the structures of these results.
    """

    def __init__(
        self,
        run: RecordingState,
        operator: Any,
        functions: Mapping[str, Callable[..., Any]],
        arguments: Sequence[Any],
    ) -> None:
        self._run, self._operator = run, operator
        recording = run.recording
        self.results: list[list[Any]] = []
        self.structures: list[Any] = []
        bodies: list[OperatorBody] = []
        carries = _NUMBERS if operator.__name__ in _CARRYING_NUMBERS else ()
        kinds = {type(value) for value in arguments if not isinstance(value, torch.Tensor)}
        if not kinds <= {*carries}:
            raise self.refused("is given a number")
        if kinds and run.real is not None:
            raise Obstacle.NUMBER_CARRIED(operator=operator.__name__)
        with run.unseen():
            fresh = [self._like(argument) for argument in arguments]
            tensors = *recording.nodes, *(value for value in fresh if isinstance(value, torch.Tensor))
            before = [(weakref.ref(t), version_of(t)) for t in tensors]
        for name, function in functions.items():
            is_condition = name == _CONDITION
            given = bodies[0].given if bodies else []
            body = OperatorBody(self.refused, partial(_seen, run, function), given, is_condition)
            bodies.append(body)
            recording.bodies.append(body)
            try:
                result, structure = body.run(fresh, recording.bind_input, recording.node_of_output)
            finally:
                recording.bodies.pop()
                recording.forget_symbols_of(body.graph)
            with run.unseen():
                if any((t := known()) is not None and v != version_of(t) for known, v in before):
                    raise self.refused("writes into a tensor that it has not made")
            self.results.append(result)
            self.structures.append(structure)
        # The operator calls all functions with the same arguments, so each takes the others' values, too.
        for node in bodies[-1].given:
            bodies[0].inherited(node)
        self.given = tuple(bodies[0].given)
        self.nodes = [
            recording.branch_node(body.module(name), name)
            for body, name in zip(bodies, functions, strict=True)
        ]

    def refused(self, reason: str) -> Exception:
        return Obstacle.FUNCTION_GIVEN(operator=self._operator.__name__, reason=reason)

    def require_same(self, results: Sequence[Any], carried: Sequence[Any]) -> None:
        """Refuse a function of a loop that returns other tensors than it takes."""
        if not _same_kinds(results, carried):
            raise self.refused("gives tensors of other shapes or dtypes than it is given")

    def computed(self, *arguments: Any, stacked: tuple[int, torch.Tensor] | None = None) -> list[Any]:
        """Return the operator's result: on real tensors by calling it, else as the last function gives it.

        ``stacked``: the number of carried results, after which each other one has a row for each row.
        """
        run = self._run
        with run.unseen():
            if run.real is not None:
                return [*self._operator(*arguments)]
            results = [*map(self._like, self.results[-1])]
            if stacked is not None:
                count, rows = stacked
                results[count:] = [
                    row.expand(rows.shape[0], *row.shape).contiguous() for row in results[count:]
                ]
            return results

    def recorded(self, arguments: Sequence[Any], result: Sequence[Any]) -> Any:
        """Make a node of the call, and return the model's result."""
        call = Call("call_function", self._operator, tuple(arguments), {})
        return pytree.tree_unflatten(self._run.recorded(call, tuple(result), False), self.structures[-1])

    def _like(self, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return self._run.sizes.create_unbacked_symint()
        if self._run.real is not None:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        if has_data(like):
            give_data(like, None)
        return like.requires_grad_(tensor.requires_grad and torch.is_grad_enabled())


def _seen(run: RecordingState, function: Callable[..., Any], *args: Any) -> Any:
    with run.mode, run.unseen(False):
        return function(*args)


def _same_kinds(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    return [*map(_kind, ones)] == [*map(_kind, others)]


def _kind(tensor: Any) -> tuple[Any, ...]:
    if not isinstance(tensor, torch.Tensor):
        return ()
    return tuple(map(expression_of, tensor.shape)), tensor.dtype, tensor.device, tensor.layout


def _value_of(run: RecordingState, pred: torch.Tensor) -> bool | None:
    """Return the condition, if there is data in the run."""
    if run.real is not None:
        return bool(pred)
    return bool(call_on_data(torch.Tensor.item, (pred,), {})) if has_data(pred) else None
