"""The private hooks of Dynamo by which the compiles of an unchanged script are heard; all in this file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import nn
from torch.fx import GraphModule

from fxlab.compiler.code.hooks import ahead_of_time_code, hear_kernels
from fxlab.compiler.hooks import SCRIPT_IS_HEARD, Listener, Patches, listening
from fxlab.interrupts import RestoringStack


class ScriptListener(Listener, Protocol):
    """A listener to the compiles of a script."""

    def captured(self, graph_module: GraphModule, model: nn.Module | None) -> Callable[..., None]:
        """Dynamo gives a graph to a backend; returns what is called with the values it first runs on."""

    def compiled(self) -> None:
        """The backend has compiled the graph that was captured last, or has failed to."""

    def begin_part(self) -> None:
        """AOTAutograd begins with a graph: the one that Dynamo gave, or a part that a backend made of it."""

    def end_part(self, code: Callable[..., Any]) -> Callable[..., None] | None:
        """It has made this of it; returns what is called with the values that a part first runs on."""


@contextmanager
def listening_to_script(listener: ScriptListener) -> Iterator[list[str]]:
    """Let a listener hear of all that ``torch.compile`` does for the code that this thread runs inside.

    Caches of compiled graphs are not read, as what comes out of one goes through no pass, and backward graphs
    are compiled at once.

    Yields
    ------
    list of str
        What it cannot hear of with this torch, in words.
    """
    with RestoringStack() as stack:
        remarks = stack.enter_context(listening(listener))
        SCRIPT_IS_HEARD.set()
        stack.callback(SCRIPT_IS_HEARD.clear)
        patches = Patches(stack)
        thread, is_over = threading.get_ident(), threading.Event()

        def around(original: Any) -> Any:
            def run(output: Any, graph_module: GraphModule, example_inputs: Any) -> Any:
                if threading.get_ident() != thread:
                    return original(output, graph_module, example_inputs)
                pending = [listener.captured(graph_module, _model(output))]
                try:
                    compiled = original(output, graph_module, example_inputs)
                    listener.generated(compiled)
                finally:
                    listener.compiled()

                return noted(compiled, pending)

            return run

        def noted(compiled: Any, pending: list[Callable[..., None]]) -> Any:
            def first_noted(*values: Any) -> Any:
                if pending:
                    note = pending.pop()
                    if not is_over.is_set():
                        note(values)
                return compiled(*values)

            vars(first_noted).update(getattr(compiled, "__dict__", {}))
            return first_noted

        def around_parts(original: Any) -> Any:
            def make(*args: Any, **kwargs: Any) -> Any:
                compile_part = original(*args, **kwargs)

                @functools.wraps(compile_part, assigned=())
                def run(*graph_and_inputs: Any, **known: Any) -> Any:
                    if threading.get_ident() != thread or is_over.is_set():
                        return compile_part(*graph_and_inputs, **known)
                    listener.begin_part()
                    compiled = compile_part(*graph_and_inputs, **known)
                    note = listener.end_part(compiled)
                    return compiled if note is None else noted(compiled, [note])

                return run

            return make

        def around_ahead_of_time(original: Any) -> Any:
            def run(graph_module: GraphModule, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != thread or is_over.is_set():
                    return original(graph_module, example_inputs, *args, **kwargs)
                listener.captured(graph_module, graph_module)(tuple(example_inputs))
                try:
                    made = original(graph_module, example_inputs, *args, **kwargs)
                    listener.generated(ahead_of_time_code(made, example_inputs))
                    return made
                finally:
                    listener.compiled()

            return run

        place = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"
        patches.around(place, around, "The graphs of Dynamo are not seen")
        lost = "Parts that a backend makes of a graph have no inputs"
        patches.around("torch._dynamo.backends.common:aot_autograd", around_parts, lost)
        lost = "What AOTInductor compiles is not seen"
        patches.around("torch._inductor.compile_fx:compile_fx_aot", around_ahead_of_time, lost)
        hear_kernels(patches, listener.kernels, lost="Kernels are not told")
        config = "torch._functorch.config"
        patches.setting(config, enable_autograd_cache=False)
        lost = "Backward graphs are seen only if they run in the block, as they are compiled then"
        patches.setting(config, lost=lost, force_non_lazy_backward_lowering=True)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        try:
            yield remarks
        finally:
            is_over.set()
            remarks += patches.remarks


def _model(output: Any) -> nn.Module | None:
    """Return the module whose code Dynamo captures, or one that holds those that the code reads."""
    scope = getattr(output, "local_scope", None) or {}
    modules = {name: value for name, value in scope.items() if isinstance(value, nn.Module)}
    if "self" in modules or len(modules) == 1:
        return modules.get("self") or next(iter(modules.values()))
    return None
