"""``fxlab.runs.record_run``: a run of a model as fingerprints in a file."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from fxlab._version import __version__
from fxlab.base.author_frames import placed_words
from fxlab.base.checks import describe, file_to_write, require_bool
from fxlab.comparison.recorded.recorded_run import RecordedRun, write_run
from fxlab.comparison.recorded.recorder import Recorder
from fxlab.front_desk.sources import resolved
from fxlab.models.parallel.ranks import communicates, has_other_ranks
from fxlab.models.running.arguments import Inputs, bound_values, call_arguments, given_inputs, named_arguments
from fxlab.models.running.running import generators_kept
from fxlab.models.state.model_state import ModelState
from fxlab.models.state.settings import NumericSettings
from fxlab.models.state.tensor_state import TensorState
from fxlab.operators.node_info import module_stack
from fxlab.validation.outputs.computed_tensors import GRADIENT
from fxlab.validation.outputs.computed_tensors import INPUT as WRITTEN
from fxlab.values.tensors import tensors_by_path


def record_run(
    model: Any,
    inputs: Inputs | None,
    path: str | os.PathLike[str],
    *,
    backward: bool = False,
    measure: bool | None = None,
) -> RecordedRun:
    """Record a run of a model, of any kind and on any device, as a small file to compare other runs with.

    The file has each operation and module call in order, and of each value its shape, dtype, statistics and
    a fingerprint that no reshape, transposition or cast changes; source lines, settings and versions. It has
    no values, and reading it runs no code. ``fxlab.compare("gpu.run", "cpu.run")`` then finds where two runs
    part: of yesterday and today, two devices, two versions of torch, two ranks.

    Parameters
    ----------
    model
        A module, a graph, a session, or a function that runs one, such as a step of training or of another
        library. Modules that a function refers to are found in its closure, its globals and ``self``.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor; ``()`` for none.
    path
        The file to write, such as ``gpu.run``.
    backward
        Whether to compute the gradients of parameters, and of inputs that require them, as well: of outputs
        times random numbers. A function that calls ``backward()`` itself needs no such request.
    measure
        Whether to run the model once more, with each result rounded again, to measure how far rounding moves
        each value: up to four times that far, values count as the same. Left out, it is run once more unless
        it is a function, which may have effects, or one of several ranks, which all have to do the same;
        rounding is then estimated. Values that a function writes in a second run stay rounded again.

    Returns
    -------
    RecordedRun
        The written run.

    Raises
    ------
    TypeError
        If ``model`` is none of these.
    ValueError
        If there is nothing to differentiate.
    OSError
        If the file cannot be written, for example because its folder does not exist.
    Exception
        Any error of the run; the file then has the run up to there, and says so.

    Notes
    -----
    A model is left as it was, with its buffers and random numbers; a function, and a model that is
    distributed over ranks, has its effects. Of compiled code the file has inputs and outputs alone.

    Examples
    --------
    >>> import tempfile
    >>> from torch import nn
    >>> block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = record_run(block, torch.ones(3, 4), f"{folder}/today.run")
    >>> run.table.loc[["gelu", "addmm_1"], "module"].to_list()
    ['1', '2']
    """
    require_bool(backward, "backward")
    if measure is not None:
        require_bool(measure, "measure")
    file = file_to_write(path, "path")
    run = RecordedRun("")
    try:
        record(run, model, inputs, backward=backward, measure=measure)
    except BaseException as error:
        if run.model:
            run.error = placed_words(error)
            write_run(run, path)
            error.add_note(f"fxlab: the run up to here is in {file}.")
        raise
    write_run(run, path)
    return run


def record(
    run: RecordedRun,
    model: Any,
    inputs: Inputs | None,
    *,
    backward: bool = False,
    measure: bool | None = None,
) -> None:
    """Write a run of a model into ``run``, as far as it comes."""
    subject = _Subject.of(model, inputs)
    is_module = isinstance(subject.call, nn.Module)
    run.versions, run.settings = _versions(subject.modules), dict(NumericSettings.now().values)
    if is_module:
        run.settings["training"] = str(subject.call.training)
    run.model = subject.name
    again = measure if measure is not None else is_module and not has_other_ranks()
    for written, first in ((run, None), (RecordedRun(""), run))[: 1 + again]:
        with generators_kept() if is_module else nullcontext():
            subject.run(written, first, backward)


class _Subject:
    """A model or function, and its inputs."""

    def __init__(self, call: Any, inputs: Inputs, modules: dict[str, nn.Module], name: str) -> None:
        self.call, self.inputs, self.modules, self.name = call, inputs, modules, name

    @classmethod
    def of(cls, model: Any, inputs: Inputs | None) -> _Subject:
        is_function = callable(model) and not isinstance(model, nn.Module | type)
        if is_function and not hasattr(model, "graph_module"):
            name = getattr(getattr(model, "func", model), "__qualname__", type(model).__name__)
            return cls(model, given_inputs(inputs) if inputs is not None else (), _modules_of(model), name)
        found = resolved(model, "model")
        module = found.graph_module if hasattr(found, "graph_module") else found.module
        given = given_inputs(inputs if inputs is not None else found.inputs)
        if given is None:
            raise TypeError(
                f"inputs: expected what {describe(model)} is called with, got None. Give a mapping of "
                "keyword arguments, a tuple of positional arguments, or one tensor."
            )
        return cls(module, given, {"": module}, type(getattr(module, "_orig_mod", module)).__name__)

    def run(self, run: RecordedRun, first: RecordedRun | None, backward: bool) -> None:
        """Run it once, and note it."""
        args, kwargs = call_arguments(self.inputs)
        torch.clear_autocast_cache()  # else a second run takes casts of weights from the first
        with ExitStack() as around:
            state = None
            if isinstance(self.call, nn.Module) and not communicates(self.call):
                state = ModelState(self.call)
                around.enter_context(state.put_back_after(watch=False))
            watched = {} if isinstance(self.call, GraphModule) else self.modules
            recorder = Recorder(run, self.modules, watched, state, first)
            given = named_arguments(self.call, args, kwargs)
            before = {path: TensorState.of(tensor) for path, tensor in tensors_by_path(given).items()}
            for name, state_before in before.items():
                recorder.given(name, state_before.tensor)
            if backward:
                around.enter_context(torch.enable_grad())
            with recorder.watching():
                if isinstance(self.call, GraphModule):
                    result = _NodeByNode(self.call, recorder).run(*bound_values(self.call, args, kwargs))
                else:
                    result = self.call(*args, **kwargs)
                outputs = tensors_by_path(result)
                recorder.returned(outputs)
                after = tensors_by_path(given).items()
                recorder.returned(
                    {
                        WRITTEN + path: tensor
                        for path, tensor in after
                        if path not in before or not before[path].is_of(tensor)
                    }
                )
                if backward:
                    leaves = self._leaves(args, kwargs)
                    recorder.returned(_gradients(recorder, outputs, leaves))

    def _leaves(self, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
        named = {
            f"{prefix}{name}": p for prefix, m in self.modules.items() for name, p in m.named_parameters()
        }
        leaves = tensors_by_path(named_arguments(self.call, args, kwargs)) | named
        return {name: tensor for name, tensor in leaves.items() if tensor.requires_grad}


class _NodeByNode(Interpreter):
    """Runs a graph so that its operations belong to the modules and lines of their nodes."""

    def __init__(self, graph_module: GraphModule, recorder: Recorder) -> None:
        super().__init__(graph_module)
        self._recorder = recorder
        self._calls: dict[tuple[str, ...], int] = {(): -1}

    def run_node(self, n: Node) -> Any:
        """Run a node."""
        if n.op in ("placeholder", "get_attr", "output"):
            return super().run_node(n)
        stack = [(str(key), *entry) for key, entry in module_stack(n).items()]
        keys = tuple(key for key, *_ in stack)
        for count, (_, path, cls) in enumerate(stack, 1):
            if keys[:count] not in self._calls:
                owner = f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)
                around = self._calls[keys[: count - 1]]
                self._recorder.run.calls.append((str(path), owner, around))
                self._calls[keys[:count]] = len(self._recorder.run.calls) - 1
        with self._recorder.at(self._calls[keys], str(n.meta.get("stack_trace") or "")):
            return super().run_node(n)


def _gradients(
    recorder: Recorder, outputs: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the gradients of outputs, each times random numbers that are the same in each run."""
    heads = {path: output for path, output in outputs.items() if output.requires_grad}
    if not heads or not leaves:
        raise ValueError(
            "backward: no output depends on a parameter or input that requires gradients. Call "
            "requires_grad_() on what is to have some, or leave backward out."
        )
    directions = []
    for place, (path, head) in enumerate(heads.items()):
        drawn = torch.randn(
            head.shape, generator=torch.Generator().manual_seed(place), dtype=torch.float64, device="cpu"
        )
        directions.append(drawn.to(head.dtype).to(head.device))
        recorder.given(f"direction of {path}", directions[-1])
    found = torch.autograd.grad([*heads.values()], [*leaves.values()], directions, allow_unused=True)
    return {GRADIENT + name: g for name, g in zip(leaves, found, strict=True) if g is not None}


def _modules_of(function: Callable[..., Any]) -> dict[str, nn.Module]:
    """Return the modules that a function refers to, by the beginning of the paths in them."""
    found = dict(_referred(function))
    known: dict[int, tuple[str, nn.Module]] = {}
    for name, value in found.items():
        if isinstance(value, nn.Module):
            known.setdefault(id(value), (name, value))
    modules = dict(known.values())
    return {f"{name}." if len(modules) > 1 else "": module for name, module in modules.items()}


def _referred(function: Any) -> Iterator[tuple[str, Any]]:
    yield "self", getattr(function, "__self__", None)
    for place, value in enumerate(getattr(function, "args", ())):  # of functools.partial
        yield f"args_{place}", value
    inner = inspect.unwrap(getattr(function, "func", function))
    try:
        names = inspect.getclosurevars(inner)
    except (TypeError, ValueError):
        return
    yield from {**names.globals, **names.nonlocals}.items()


def _versions(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    devices = {str(p.device) for m in modules.values() for p in m.parameters()} or {"cpu"}
    names = {torch.cuda.get_device_name(d) if d.startswith("cuda") else d for d in sorted(devices)}
    found = {"fxlab": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    if has_other_ranks():
        found["rank"] = f"{dist.get_rank()} of {dist.get_world_size()}"
    return found | {"on": ", ".join(sorted(names))}
