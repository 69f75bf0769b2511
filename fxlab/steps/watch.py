"""Facts noted about each operator while it is recorded: its source lines, and numbers read from it."""

import linecache
import sys
from pathlib import Path
from typing import Any

import torch
from torch import fx

from fxlab.base.torch_private import TorchDispatchMode
from fxlab.models.parallel.ranks import PLACEMENT, layout_of
from fxlab.tracing import torch_private

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
