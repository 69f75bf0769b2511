"""Facts noted about each operator while it is recorded: its source lines, and numbers read from it."""

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from fxlab.exchanged import exchanged, instead
from fxlab.models.placements import PLACEMENT, layout_of
from fxlab.torch_private import TorchDispatchMode, pytree
from fxlab.tracing import torch_private
from fxlab.tracing.report import TraceError

READ = "fxlab_read"
"""Key of ``node.meta``: the number that Python has read."""
ANY_SIZE = "fxlab_any_size"
"""Key of ``node.meta``: nothing recorded depends on the size of the result."""
_READ = torch.Tensor.numpy
_MOST = 10_000
"""Numbers that are read of one tensor: each gets nodes and a guard."""
NUMBER = torch.ops.aten._local_scalar_dense.default
_TORCH, _FXLAB = f"{Path(str(torch.__file__)).parent}/", f"{Path(__file__).parents[1]}/"
_AROUND = str(Path(__file__).with_name("gradients.py"))
"""The file that calls model and loss."""


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
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


@contextmanager
def lists_followed() -> Iterator[None]:
    """Let ``tolist`` and ``numpy`` read number by number, and tensors of lists of tensors be stacked.

    Tensors that are recorded have no memory that torch could read there, and numbers get guards.
    """
    of_lists = dict.fromkeys(("tensor", "as_tensor"), _stacking)
    of_tensors = {"tolist": instead(_tolist), "numpy": instead(_numpy)}
    with exchanged(torch.Tensor, of_tensors), exchanged(torch, of_lists):
        yield


def _tolist(tensor: torch.Tensor) -> Any:
    if tensor.numel() > _MOST:
        raise TraceError(
            f"The model or the loss reads all {tensor.numel():,} numbers of a tensor, as a list or an array; "
            "a step is recorded for the numbers that Python reads. Compute with the tensor instead."
        )
    return [_tolist(part) for part in tensor.unbind()] if tensor.dim() else tensor.item()


def _numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
    if tensor.requires_grad and not force:
        return _READ(tensor)  # it refuses
    dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    return np.array(_tolist(tensor.detach()), dtype).reshape(tensor.shape)


def _stacking(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(part: Any, dtype: torch.dtype) -> torch.Tensor:
        if isinstance(part, list | tuple):
            return torch.stack([made(each, dtype) for each in part])
        is_recorded = isinstance(part, torch.Tensor)
        return part.detach().to("cpu", dtype) if is_recorded else original(part, dtype=dtype)

    def of_list(data: Any, dtype: Any = None, device: Any = None, **options: Any) -> torch.Tensor:
        items = pytree.tree_leaves(data) if isinstance(data, list | tuple) else []
        if not any(isinstance(item, torch.Tensor) for item in items):
            return original(data, dtype=dtype, device=device, **options)
        dtypes = [item.dtype if isinstance(item, torch.Tensor) else original(item).dtype for item in items]
        found = made(data, dtype or reduce(torch.promote_types, dtypes))
        found = found.to(device or torch.get_default_device())
        return found.requires_grad_(bool(options.get("requires_grad")))

    return of_list


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
