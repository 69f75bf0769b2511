"""Facts about each node of a step, noted while it is recorded: its module call, pass, lines and numbers."""

import itertools
import linecache
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import TorchDispatchMode
from fxlab.models.parallel.placements import PLACEMENT, layout_of
from fxlab.operators import draws_random_numbers
from fxlab.tracing import torch_private

BACKWARD, RECOMPUTED = "autograd_backward", "recomputed"
"""Keys of ``node.meta``; the first is torch's own."""

DRAW = "fxlab_draw"
"""Key of ``node.meta``: the number of a draw, which is the same where a checkpoint repeats it."""

OPTIMIZER = "optimizer"
"""The box of the update."""

_Stack = dict[str, tuple[str, str]]


class Places:
    """Writes the current module call into ``node.meta`` of new nodes.

    Forward nodes get ``nn_module_stack``. Nodes that autograd adds get ``autograd_backward``, and the
    ``fwd_nn_module_stack`` of the operator whose derivative they are, found by autograd's sequence number.
    Nodes that a checkpoint computes again in the backward pass get both ``nn_module_stack`` and
    ``autograd_backward``, and ``recomputed``: the call that the checkpoint wraps, or that calls it. Nodes
    that draw random numbers are counted, and a checkpoint starts again from its first count.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._last: fx.Node | None = None
        self._stack: _Stack = {}
        self._calls = Counter[str]()
        self._recomputed: list[fx.Node] | None = None
        self._drawn = 0
        self._since_last_module: list[fx.Node] = []
        self._is_backward = False
        self._of_derivative: _Stack = {}
        self._number: int | None = None
        self._numbers: list[int] = []
        self._stacks: list[_Stack] = []

    @contextmanager
    def modules_of(self, model: nn.Module) -> Iterator[None]:
        """Follow the calls of the modules of a model within the block."""
        with ExitStack() as hooks:
            hooks.enter_context(patched_functions(torch_private.CheckpointFrame, {"__init__": self._noting}))
            for path, module in model.named_modules():
                enter, leave = self._hooks(path, type(module))
                hooks.enter_context(module.register_forward_pre_hook(enter, prepend=True))
                hooks.enter_context(module.register_forward_hook(leave, always_call=True))
            yield

    @contextmanager
    def inside(self, name: str, class_name: str) -> Iterator[None]:
        """Put nodes that are recorded within the block into a box of their own."""
        before = self._stack
        self._enter({**before, name: (name, class_name)})
        try:
            yield
        finally:
            self._enter(before)

    def rest_is(self, name: str) -> None:
        """Put the model's own nodes since the last call of a module into a box."""
        for node in self._since_last_module:
            node.meta["nn_module_stack"] = {**node.meta["nn_module_stack"], name: (name, "")}
        places = (at for at in reversed(range(len(self._stacks))) if list(self._stacks[at]) == [""])
        if self._since_last_module and (place := next(places, None)) is not None:
            self._stacks[place] = {**self._stacks[place], name: (name, "")}

    @contextmanager
    def backward_from(self, loss: torch.Tensor) -> Iterator[None]:
        """Attribute nodes that autograd records in the block to operators of the forward pass."""
        self._enter({})
        self._is_backward = True
        self._calls.clear()
        handles = [function.register_prehook(self._entering(function)) for function in _functions(loss)]
        try:
            yield
        finally:
            self._place_new_nodes()
            for handle in handles:
                handle.remove()
            self._is_backward = False

    def _hooks(self, path: str, owner: type) -> tuple[Any, Any]:
        before: list[_Stack] = []
        name = f"{owner.__module__}.{owner.__qualname__}"

        def enter(*_: object) -> None:
            count = self._calls[path]
            self._calls[path] += 1
            before.append(self._stack)
            self._place_new_nodes()
            self._since_last_module.clear()
            # torch.export names repeated calls of a module like this.
            key = f"{path}@{count}" if count else path
            self._enter({**self._stack, key: (path, name)})

        def leave(*_: object) -> None:
            if before:
                self._enter(before.pop())

        return enter, leave

    def _noting(self, init: Callable[..., None]) -> Callable[..., None]:
        """Return an ``__init__`` of a checkpoint's frame that notes the place where the checkpoint begins."""

        def noting(frame: Any, recompute: Callable[..., object], *args: Any, **kwargs: Any) -> None:
            self._place_new_nodes()
            stack, calls, drawn = self._stack, self._calls.copy(), self._drawn

            def again(*given: Any) -> None:
                self._place_new_nodes()
                before = self._stack, self._calls, self._drawn, self._recomputed
                self._stack, self._calls, self._drawn, self._recomputed = stack, calls.copy(), drawn, []
                try:
                    recompute(*given)
                finally:
                    self._place_new_nodes()
                    _note_recomputed(self._recomputed, stack)
                    self._stack, self._calls, self._drawn, self._recomputed = before

            init(frame, again, *args, **kwargs)

        return noting

    def _entering(self, function: Any) -> Any:
        number = function._sequence_nr()

        def enter(*_: object) -> None:
            self._place_new_nodes()
            # Autograd numbers its functions in the order of the forward pass.
            place = bisect_right(self._numbers, number) - 1
            self._stack, self._number = {}, number
            self._of_derivative = self._stacks[place] if place >= 0 else {}

        return enter

    def _enter(self, stack: _Stack) -> None:
        self._place_new_nodes()
        self._stack = stack
        if self._is_backward:
            return
        number = torch_private.get_sequence_nr()
        if self._numbers and self._numbers[-1] == number:
            self._stacks[-1] = self._stack
            return
        self._numbers.append(number)
        self._stacks.append(self._stack)

    def _place_new_nodes(self) -> None:
        new = list(itertools.takewhile(lambda node: node is not self._last, reversed(self._graph.nodes)))
        for node in reversed(new):
            if node.op != "placeholder":
                self._place(node)
        self._last = new[0] if new else self._last

    def _place(self, node: fx.Node) -> None:
        if self._stack:
            node.meta["nn_module_stack"] = dict(self._stack)
        if list(self._stack) == [""]:
            self._since_last_module.append(node)
        if draws_random_numbers(node):
            node.meta[DRAW] = self._drawn
            self._drawn += 1
        if not self._is_backward:
            return
        node.meta[BACKWARD] = True
        if self._recomputed is not None:
            self._recomputed.append(node)
            return
        if self._of_derivative:
            node.meta["fwd_nn_module_stack"] = dict(self._of_derivative)
        if self._number is not None:
            node.meta["seq_nr"] = self._number


def _note_recomputed(nodes: list[fx.Node], around: _Stack) -> None:
    """Note the one call that a checkpoint wraps; of a function with several, the call around them."""
    stacks = [list(node.meta.get("nn_module_stack", ())) for node in nodes]
    inner = {stack[len(around)] if len(stack) > len(around) else "" for stack in stacks}
    wrapped = inner.pop() if len(inner) == 1 else ""
    for node in nodes:
        node.meta[RECOMPUTED] = wrapped or next(reversed(around), "")


def _functions(loss: torch.Tensor) -> list[Any]:
    """Return the functions of autograd that a loss leads to."""
    found: dict[Any, None] = {}
    pending: list[Any] = [loss.grad_fn]
    while pending:
        function = pending.pop()
        if function is not None and function not in found:
            found[function] = None
            pending += [before for before, _ in function.next_functions]
    return list(found)


def place_update(nodes: Sequence[fx.Node], inputs: Iterable[fx.Node], class_name: str) -> None:
    """Put the nodes of an update into a box, with boxes of the modules whose parameters they update."""
    around: dict[fx.Node, _Stack | None] = {}
    stacks: dict[str, _Stack] = {}
    for node in inputs:
        owner = node.meta["desc"].owner
        if node.meta["desc"].kind == "parameter":
            read = (user.meta.get("nn_module_stack") for user in node.users)
            stacks[owner] = next(filter(None, read), {})
        around[node] = stacks.get(owner) if owner else None
    for node in nodes:
        around[node] = _same(around.get(read) for read in node.all_input_nodes)
    for node in reversed(nodes):  # values made of no parameter lie beside their reader
        around[node] = around[node] or _same(around.get(user) for user in node.users)
    for node in nodes:
        calls = (around[node] or {}).items()
        inner = {f"{OPTIMIZER}.{key}": (f"{OPTIMIZER}.{path}", name) for key, (path, name) in calls if key}
        node.meta["nn_module_stack"] = {OPTIMIZER: (OPTIMIZER, class_name), **inner}


def _same(stacks: Iterable[_Stack | None]) -> _Stack | None:
    """Return the one stack of all known ones; ``None`` if they differ."""
    found = [stack for stack in stacks if stack is not None]
    return found[0] if found and all(stack == found[0] for stack in found) else None


def with_places(module: fx.GraphModule) -> Callable[..., Any]:
    """Return a function that runs a graph; nodes recorded of it get the places of the graph's nodes."""

    class Run(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            graph = torch_private.get_proxy_mode().tracer.graph
            last = next(iter(reversed(graph.nodes)), None)
            result = super().run_node(n)
            for new in reversed(graph.nodes):
                if new is last:
                    break
                known = {key: value for key, value in n.meta.items() if key not in ("val", "tensor_meta")}
                new.meta.update(known)
            return result

    return lambda *tensors: Run(module).run(*tensors)


READ = "fxlab_read"
"""Key of ``node.meta``: the number that Python has read."""
ANY_SIZE = "fxlab_any_size"
"""Key of ``node.meta``: nothing recorded depends on the size of the result."""
NUMBER = torch.ops.aten._local_scalar_dense.default
_TORCH, _FXLAB = f"{Path(str(torch.__file__)).parent}/", f"{Path(__file__).parents[1]}/"
_AROUND = str(Path(__file__).with_name("gradients.py"))
"""The file that calls model and loss."""


class OperatorNotes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes ``stack_trace``, ``seq_nr`` and numbers that Python reads into nodes; make_fx is slow at it."""

    # Without it, torch refuses higher-order operators under a mode.
    supports_higher_order_operators = True

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph
        self._last: fx.Node | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        nodes = reversed(self._graph.nodes)
        node = next(iter(nodes))
        is_new = node is not self._last and node.op == "call_function"
        if is_new and isinstance(result, torch.Tensor) and (layout := layout_of(result)) is not None:
            node.meta[PLACEMENT] = str(layout)
        if func is NUMBER and node.target is NUMBER:  # a number of a constant is read without a node
            node.meta[READ] = result
        # In a backward pass the running lines are autograd's; Places and copy_source_lines note its nodes.
        if torch._C._current_graph_task_id() == -1:
            number, trace = torch_private.get_sequence_nr() - 1, _source_lines()
            for new in reversed(self._graph.nodes):
                if new is self._last or new.op == "placeholder":
                    break
                new.meta["seq_nr"] = number
                new.meta["stack_trace"] = trace
        self._last = node
        return result


def _source_lines() -> str:
    """Return the lines of the model that are running, the innermost last, as torch writes them."""
    lines: list[str] = []
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _AROUND:
            break
        if not code.co_filename.startswith((_TORCH, _FXLAB)):
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            lines.append(
                f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {text}\n'
            )
        frame = frame.f_back  # type: ignore[assignment]
    return "".join(reversed(lines))


def copy_source_lines(graph: fx.Graph) -> None:
    """Give nodes of the backward pass the source lines of the operator whose derivative they are."""
    known: dict[int, str] = {}
    for node in graph.nodes:
        number = node.meta.get("seq_nr")
        if number is None:
            continue
        if "stack_trace" in node.meta:
            known.setdefault(number, node.meta["stack_trace"])
        elif number in known:
            node.meta["stack_trace"] = known[number]
