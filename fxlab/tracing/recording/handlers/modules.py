"""The handler of modules and of parts kept whole: these and leaves are one node, others are gone into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import nn

from fxlab.base.exchanged import patched_functions
from fxlab.models.running.autocast import autocast_state
from fxlab.tracing.model_code.given_model import attribute_of
from fxlab.tracing.model_code.running_code import Part, is_method
from fxlab.tracing.recording.handlers.operators import with_uncounted
from fxlab.tracing.recording.opaque_calls import CannotBeWholeError, MethodOf, method_of
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.report import Found, Obstacle, TraceError
from fxlab.tracing.shapes.fake_modules import is_recurrent_on_fakes, recurrent_results, transformer_result
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
    # Scripted code takes real tensors alone, and gives fake ones operators that have no backward.
    if (is_scripted := isinstance(call.module, torch.jit.ScriptModule)) and run.real is None:
        raise Obstacle.HIDDEN_BY_TORCH(called="a scripted module")
    is_leaf = is_scripted or run.leaves.is_leaf(call.module, call.path)
    if not is_leaf or run.mode_reads.is_set(call.module):
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


@contextmanager
def functions_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of functions that become one node."""
    copied_settings: dict[int, Any] = {}

    def call(
        function: FunctionType, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not run.is_seen() or run.recording.bodies:
            return original(*args, **kwargs)
        if not is_method(function):
            return call_part(run, function, original, Call("call_function", function, args, kwargs))
        module, *others = args
        method = _Method(run, function, module, method_of(module, function.__name__, copied_settings))
        with run.mode_reads.standing_for(module):
            call = Call("call_function", method.target, tuple(others), kwargs)
            return call_part(run, function, method, call, module, method.node)

    if run.whole is None:
        yield
        return
    with run.whole.calls_seen(call):
        yield


@dataclass
class _Method:
    """A method that stays whole, and the attributes of its module that it is found to use."""

    run: RecordingState
    part: FunctionType
    module: nn.Module
    target: MethodOf
    used: set[str] = field(default_factory=set)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, with the whole state of the module."""
        state = {name: value for kind in self.target.state for name, value in vars(self.module)[kind].items()}
        return self.target.called(state, self.used, *args, **kwargs)

    def node(self, call: Call) -> Call:
        """Return the call for the node, with the method's used attributes as arguments."""
        if not self.used:
            return call
        assert self.run.whole is not None
        # A module that is a part of another stays whole itself: that is one node, with a name of the model's.
        is_outermost = self.module in (self.run.model, attribute_of(self.run.model, "base_model"))
        if not is_outermost or not self.run.whole.reasons[self.part].hides_modules:
            raise CannotBeWholeError(self.part, f"it uses {', '.join(sorted(self.used))}")
        if self._leaves_nothing():
            raise CannotBeWholeError(self.part, "nothing else would be left of the model")
        target = self.target.using(self.used)
        state = {name: self._node_of(getattr(self.module, name)) for name in target.uses}
        return Call(call.op, target, (state, *call.args), call.kwargs)

    def _leaves_nothing(self) -> bool:
        """Tell whether no more is left to see of a model, or of all but its head, with other parts whole."""
        whole = () if self.run.whole is None else self.run.whole.reasons.keys()
        computing = (item for item in self.module.named_children() if any(True for _ in item[1].parameters()))
        return all(name in self.used or type(child) in whole for name, child in computing)

    def _node_of(self, value: Any) -> Any:
        return self.run.recording.module_node(value) if isinstance(value, nn.Module) else value


def call_part(
    run: RecordingState,
    part: Part,
    function: Callable[..., Any],
    call: Call,
    module: nn.Module | None = None,
    node: Callable[[Call], Call] | None = None,
) -> Any:
    """Record a call of a part that stays whole, and make the graph check its result.

    ``part``: the part, as the run knows it. ``function``: runs it. ``module``: the module that it is, or
    whose method it is. ``node``: returns the call for the node once the part has run.
    """
    assert run.whole is not None
    try:
        run.recording.argument((call.args, dict(call.kwargs)))
    except TraceError as error:
        raise CannotBeWholeError(part, str(error)) from error
    known = frozenset(run.recording.symbols)
    with run.unseen():
        result, written = run.whole.run(part, function, call.args, call.kwargs, module)
        call = call if node is None else node(call)
        # Batch norm writes without counting a new version, and no schema tells of a person's own function.
        may_write = not isinstance(call.target, MethodOf) or bool(call.target.uses)
        result = with_uncounted(run, run.recorded(call, result, written, may_write))
        run.conditions.hold_result(part.__name__, result, known)
    reason = run.whole.reasons[part]
    is_module = isinstance(part, type)
    what = f"{run.recording.scopes[-1][0]} ({part.__name__})" if is_module else part.__name__
    run.recording.findings.append(Found.KEPT_WHOLE(what, reason.where, reason=reason.what))
    return result
