"""The handler of modules: leaves and modules kept whole are one node, others are gone into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxlab.base.exchanged import patched_functions
from fxlab.models.running.autocast import autocast_state
from fxlab.tracing.findings import Found
from fxlab.tracing.recording.handlers.opaque_parts import call_part
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.report import TraceError
from fxlab.tracing.shapes.kernels.recurrent_modules import is_recurrent_on_fakes, recurrent_results
from fxlab.tracing.shapes.kernels.transformer_modules import transformer_result
from fxlab.tracing.shapes.uncounted_lists import all_read


@contextmanager
def modules_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of modules, which torch hides from modes."""
    paths = run.recording.paths
    hooks = {module: hooks_of(module) for module in paths}

    def seen(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if not run.is_seen():
                return original(module, *args, **kwargs)
            module = run.twin.known(module)  # a global variable may lead to the model's own
            path = paths.get(module)
            if path is None:
                return original(module, *args, **kwargs)
            run.recording.scopes.append((path, type(module)))
            try:
                return _called(
                    run, _ModuleCall(module, path, args, kwargs, original, hooks_of(module) != hooks[module])
                )
            except Exception as error:
                if run.failed is None or run.failed[0] is not error:
                    run.failed = error, [*run.recording.scopes]
                raise
            finally:
                run.recording.scopes.pop()

        return call

    with patched_functions(nn.Module, {"__call__": seen}):
        yield


@dataclass(frozen=True)
class _ModuleCall:
    """A call of a module of the model."""

    module: nn.Module
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    original: Callable[..., Any]
    """The caller of modules where nothing is recorded."""
    is_hooked: bool
    """Whether the model has given it hooks, or taken some away, during the run."""

    def made(self) -> Any:
        return self.original(self.module, *self.args, **self.kwargs)

    @property
    def node(self) -> Call:
        return Call("call_module", self.path, self.args, self.kwargs)


def _called(run: RecordingState, call: _ModuleCall) -> Any:
    module = call.module
    is_plain = not run.recording.bodies and autocast_state() == run.autocast
    if is_plain and _is_leaf(run, call):
        all_read((call.args, call.kwargs))  # the module's use of lists is not seen
        is_of_torch = type(module).__module__.startswith("torch.nn.")
        # A module of a person's own may write in any mode, and a hook may, too.
        is_impure = not is_of_torch or bool(hooks_of(module)) or vars(module).get("training") is not False
        return run.recorded_whole(call.node, lambda: _run_leaf(run, call), is_impure, is_of_torch)
    if call.path and is_plain and run.whole is not None and type(module) in run.whole.reasons:
        with run.mode_reads.ignored():
            return call_part(
                run, type(module), lambda *a, **k: call.original(module, *a, **k), call.node, module
            )
    if module._backward_hooks or module._backward_pre_hooks:
        run.recording.note(Found.BACKWARD_HOOKS, call.path or "the model")
    return call.made()


def _is_leaf(run: RecordingState, call: _ModuleCall) -> bool:
    """Tell whether a module is one node: a leaf that can be called from a graph, as a named one must be."""
    if not run.leaves.is_leaf(call.module, call.path) or run.mode_reads.is_set(call.module):
        return False
    if call.is_hooked or (run.rung.opens_hooked and hooks_of(call.module)):
        return False
    if not all(map(run.recording.is_state, (*call.module.parameters(), *call.module.buffers()))):
        return False  # it has other tensors for a while, as torch.func.functional_call gives it
    try:
        run.recording.argument((call.args, call.kwargs))
    except TraceError:
        if run.leaves.is_named(call.module, call.path):
            raise
        return False
    return True


def _run_leaf(run: RecordingState, call: _ModuleCall) -> Any:
    with run.mode_reads.ignored():
        if is_recurrent_on_fakes(call.module, call.args):
            return recurrent_results(call.module, *call.args, **call.kwargs)
        result = transformer_result(call.module, call.args, call.kwargs)
        return call.made() if result is None else result


def hooks_of(module: nn.Module) -> tuple[int, ...]:
    """Return the numbers of the hooks that a call of a module runs."""
    return *module._forward_pre_hooks, *module._forward_hooks
