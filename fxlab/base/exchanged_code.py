"""Functions whose calls are seen, as their code is exchanged for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any


@contextmanager
def exchanged_code(function: FunctionType, call: Callable[..., Any]) -> Iterator[None]:
    """Route calls of a function through another one, under each name that a module has for it.

    ``function``: the function, whose ``__code__`` is exchanged. ``call``: receives the function, a callable
    that runs its own code, and its positional and keyword arguments.
    """
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    original = FunctionType(code, function.__globals__, function.__name__, defaults, closure)
    original.__kwdefaults__ = function.__kwdefaults__
    calls = [call]

    def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return calls[0](function, original, args, kwargs) if calls else original(*args, **kwargs)

    template = _template.__code__
    constants = tuple(called if constant == "what is called" else constant for constant in template.co_consts)
    # A function can only be given code that takes as many variables from outside.
    function.__code__ = template.replace(co_consts=constants, co_freevars=code.co_freevars)
    try:
        yield
    finally:
        function.__code__ = code
        calls.clear()  # torch keeps code in stack traces, and Python collects no cycle that has code in it


def _template(*args: Any, **kwargs: Any) -> Any:
    called: Any = "what is called"  # a constant of the code, which is replaced
    return called(args, kwargs)
