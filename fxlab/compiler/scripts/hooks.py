"""Private hooks of Dynamo by which ``record_compile`` hears the compiles of an unchanged script."""

import functools
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.base.heard_calls import Call, Patches
from fxlab.base.interrupts import RestoringStack
from fxlab.compiler.graphs.held_modules import holder_of, modules_read
from fxlab.compiler.graphs.torch_private import values_of
from fxlab.compiler.recording.hooks import SCRIPT_IS_HEARD, listening
from fxlab.compiler.scripts.script_recorder import ScriptRecorder
from fxlab.compiler.story.hooks import hear_story
from fxlab.compiler.story.story import Story

_FUNCTIONS = types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, nn.Module
"""The callables that Dynamo treats as functions."""


@contextmanager
def listening_to_script(listener: ScriptRecorder, story: Story) -> Iterator[list[str]]:
    """Report all that ``torch.compile`` does for code that this thread runs in the block to a listener.

    Caches of compiled graphs are not read while something is compiled, as a cached graph goes through no
    pass. Backward graphs are compiled at once. The story is that of all threads. Gives the parts that it
    cannot hear of with this torch, in words.
    """
    with RestoringStack() as stack:
        remarks = stack.enter_context(listening(listener))
        SCRIPT_IS_HEARD.set()
        stack.callback(SCRIPT_IS_HEARD.clear)
        patches, around = Patches(stack), _AroundScript(listener)
        place = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"
        patches.around(place, around.captured, "The graphs of Dynamo are not seen")
        lost = "Parts that a backend makes of a graph have no inputs"
        patches.around("torch._dynamo.backends.common:aot_autograd", around.parts, lost)
        lost = "Graphs that a cache on disk has go through no pass, and are not seen"
        cached = "torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache._lookup"
        patches.around(cached, around.cached_whole, lost)
        patches.around("torch._inductor.codecache:FxGraphCache.load_with_key", around.cached_graph, lost)
        hear_story(patches, story, listener.of_other_thread)
        lost = "Backward graphs are not seen, as they are compiled when they run"
        patches.setting("torch._functorch.config", lost=lost, force_non_lazy_backward_lowering=True)
        try:
            yield remarks
        finally:
            around.is_over = True
            remarks += patches.remarks


class _AroundScript:
    """Hears of the calls by which Dynamo and backends compile; only those of the thread that made it."""

    def __init__(self, listener: ScriptRecorder) -> None:
        self._listener, self._thread = listener, threading.get_ident()
        self._compiling = 0
        """How many nested compiles of parts are going on."""
        self.is_over = False

    @property
    def _is_heard(self) -> bool:
        return threading.get_ident() == self._thread and not self.is_over

    def captured(self, call: Call) -> Any:
        """Hear of a graph that Dynamo gives to a backend."""
        if threading.get_ident() != self._thread:
            return call()
        output, graph_module = call.given(0), call.given(1, GraphModule)
        modules = modules_read(output, graph_module)
        code = getattr(getattr(output, "root_tx", None), "f_code", None)
        model = holder_of(modules, code) if modules else _model(output)
        note = self._listener.captured(graph_module, model, modules)
        values = values_of(graph_module)
        try:
            compiled = call()
            self._listener.generated(compiled)
        except Exception:
            if values is not None:
                note(values)  # on which the stages before the error run
            raise
        finally:
            self._listener.compiled()
        return self._noted(compiled, note)

    def parts(self, call: Call) -> Any:
        """Hear of a graph that AOTAutograd receives: Dynamo's, or a part that a backend made of it."""
        compile_part = call()

        @functools.wraps(compile_part, assigned=())
        def run(*graph_and_inputs: Any, **known: Any) -> Any:
            if not self._is_heard:
                return compile_part(*graph_and_inputs, **known)
            self._listener.begin_part()
            self._compiling += 1
            try:
                compiled = compile_part(*graph_and_inputs, **known)
            finally:
                self._compiling -= 1
            note = self._listener.end_part(compiled)
            return compiled if note is None else self._noted(compiled, note)

        return run

    def cached_whole(self, call: Call) -> Any:
        """Find nothing in the cache of AOTAutograd while something is compiled; it is written as always."""
        return None if self._is_heard and self._compiling else call()

    def cached_graph(self, call: Call) -> Any:
        """Find nothing in Inductor's cache while something is compiled; it is written as always."""
        if not self._is_heard or not self._compiling:
            return call()
        # In the form of the function's own misses, so that the caller saves the result under its key.
        return None, {"key": call.given(0), "components": call.given(1), "cache_state": "miss"}

    def _noted(self, compiled: Any, note: Callable[..., None]) -> Any:
        """Return a wrapper that notes the values that it first runs on."""
        pending = [note]

        def run(*values: Any, **named: Any) -> Any:
            if pending:
                first = pending.pop()
                if not self.is_over:
                    first((*values, *named.values()))
            return compiled(*values, **named)

        if not isinstance(compiled, _FUNCTIONS):
            return _Stand(compiled, run)
        vars(run).update(getattr(compiled, "__dict__", {}))
        return run


class _Stand:
    """Stands for an object that can be called, which it is in all but its call."""

    def __init__(self, own: Any, run: Callable[..., Any]) -> None:
        self.__dict__.update(_own=own, _run=run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the object, for ``isinstance``."""
        return type(self._own)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._own.__reduce_ex__(protocol)


def _model(output: Any) -> nn.Module | None:
    """Return the module whose code Dynamo captures, or one that holds those that the code reads."""
    scope = getattr(output, "local_scope", None) or {}
    modules = {name: value for name, value in scope.items() if isinstance(value, nn.Module)}
    if "self" in modules or len(modules) == 1:
        return modules.get("self") or next(iter(modules.values()))
    return None
