"""Functions whose calls are seen, as their code is exchanged for a while."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any


def code_that_calls(call: Callable[..., Any], function: FunctionType) -> CodeType:
    """Return code for a function that hands what it is called with to another.

    Calls are seen by it whatever name a module knows the function by.

    Parameters
    ----------
    call
        Given the function, what does what it does, its positional and its keyword arguments.
    function
        The function, whose ``__code__`` is to be exchanged.
    """
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    original = FunctionType(code, function.__globals__, function.__name__, defaults, closure)
    original.__kwdefaults__ = function.__kwdefaults__

    def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(function, original, args, kwargs)

    template = _template.__code__
    constants = tuple(called if constant == _CALLED else constant for constant in template.co_consts)
    # A function can only be given code that takes as many variables from outside.
    return template.replace(co_consts=constants, co_freevars=code.co_freevars)


_CALLED = "what is called"


def _template(*args: Any, **kwargs: Any) -> Any:
    called: Any = "what is called"  # a constant of the code, which is replaced
    return called(args, kwargs)
