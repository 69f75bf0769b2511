"""Hooks into pipelines of passes (``PassBase``, ``PassManager``, ``ExportedProgram``), all in this file."""

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase

from fxlab.base.exchanged_code import exchanged_code
from fxlab.base.heard_calls import Call, Patches, attribute_of
from fxlab.base.interrupts import RestoringStack
from fxlab.compiler.pipelines.pipeline import PassRecorder


@contextmanager
def listening_to_passes(
    listener: PassRecorder, functions: Sequence[types.FunctionType] = ()
) -> Iterator[list[str]]:
    """Report the outermost passes that this thread runs in the block to a listener, ``functions`` included.

    Gives the parts that it cannot hear of with this torch, in words.
    """
    with RestoringStack() as stack:
        patches, around = Patches(stack), _PassListener(listener)
        infra = "torch.fx.passes.infra"
        patches.around(f"{infra}.pass_base:PassBase.__call__", around.called, "Passes are not seen")
        place = f"{infra}.pass_manager:PassManager.__call__"
        patches.around(place, around.managed, "Functions as passes are not seen")
        place = "torch.export.exported_program:ExportedProgram.run_decompositions"
        patches.around(place, around.decomposed, "run_decompositions is not seen")
        for function in functions:
            stack.enter_context(exchanged_code(function, around.function))
        yield patches.remarks


class _PassListener:
    """Hears of the calls of torch's functions; only those of the thread that made it."""

    def __init__(self, listener: PassRecorder) -> None:
        self._listener, self._thread = listener, threading.get_ident()
        self._is_inside = False

    @property
    def _is_heard(self) -> bool:
        return threading.get_ident() == self._thread and not self._is_inside

    def called(self, call: Call) -> Any:
        """Hear of a ``PassBase``."""
        return self._one(type(call.given(0)).__name__, call.given(1), call)

    def managed(self, call: Call) -> Any:
        """Hear of the functions among the passes of a ``PassManager``."""
        if not self._is_heard:
            return call()
        manager = call.given(0)
        # Constraints know the passes themselves, which are exchanged below.
        if not getattr(manager, "_validated", True):
            manager.solve_constraints()
        own = attribute_of(manager, "passes")
        manager.passes = [pass_ if isinstance(pass_, PassBase) else self._told(pass_) for pass_ in own]
        try:
            return call()
        finally:
            manager.passes = own

    def function(
        self, function: types.FunctionType, original: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        given = next(iter((*args, *kwargs.values())), None)
        return self._one(function.__name__, given, functools.partial(original, *args, **kwargs))

    def decomposed(self, call: Call) -> Any:
        """Hear of ``run_decompositions``."""
        program = call.given(0)
        return self._one("run_decompositions", attribute_of(program, "graph_module"), call, program)

    def _told(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a wrapper of a pass that is a function, which reports its calls."""
        is_function = inspect.isfunction(function)
        name = function.__name__ if is_function else type(function).__name__

        def run(*args: Any, **kwargs: Any) -> Any:
            given = next(iter((*args, *kwargs.values())), None)
            return self._one(name, given, functools.partial(function, *args, **kwargs))

        run.__name__ = name
        return run

    def _one(
        self, name: str, given: Any, call: Callable[[], Any], program: ExportedProgram | None = None
    ) -> Any:
        if not self._is_heard or not isinstance(given, GraphModule):
            return call()
        self._listener.begin_pass(name, given, program)
        self._is_inside, after = True, None
        try:
            result = call()
            after = getattr(result, "graph_module", result)
            # A pass that returns no graph has changed the given one in place.
            after = after if isinstance(after, GraphModule) else given
            return result
        finally:
            self._is_inside = False
            self._listener.end_pass(after)
