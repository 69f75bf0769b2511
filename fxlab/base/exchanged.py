"""Functions of torch and of Python files patched for a while: by tracing, steps and comparisons.

Attributes go through :func:`patched_functions`, and code, for all threads, through :func:`exchanged_code`. In
the place of a function stands one that asks which thread calls it: two threads may exchange the same
function, in any order, others never notice, and in the end the function itself is there again.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ClassMethodDescriptorType, FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar

from fxlab.base.interrupts import InterruptsHeld

_T = TypeVar("_T")
Make: TypeAlias = Callable[[Any], Any]
"""Given the value of a name for this thread, returns the value to put in its place."""

ABSENT: Any = object()
"""The value of a name that a class or module does not have itself, but may inherit."""


class _Exchange:
    """One name of a class or module, and its value in each thread."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.original = vars(owner).get(name, ABSENT)
        self.by_thread: dict[int, list[Any]] = {}

    def here(self) -> Any:
        """Return the value of the name in the thread that asks."""
        values = self.by_thread.get(threading.get_ident())
        return values[-1] if values else self.original

    def push(self, value: Any, for_all: bool) -> None:
        """Put a value under the name, for this thread or for all."""
        is_first = not self.by_thread
        self.by_thread.setdefault(threading.get_ident(), []).append(value)
        if for_all or isinstance(value, type) or not callable(value):
            set_name(self.owner, self.name, value)
        elif is_first:
            set_name(self.owner, self.name, self._asking())

    def pop(self) -> None:
        """Remove the latest value of this thread; after the last of all, the name has its own again."""
        values = self.by_thread[threading.get_ident()]
        values.pop()
        if not values:
            del self.by_thread[threading.get_ident()]
        if not self.by_thread:
            set_name(self.owner, self.name, self.original)
            del _TABLE[id(self.owner), self.name]

    def _asking(self) -> Any:
        """Return the function that asks for the thread, which is called very often."""
        original, by_thread, thread = self.original, self.by_thread, threading.get_ident
        if isinstance(original, classmethod | ClassMethodDescriptorType):  # of Python, or of C

            def of_class(cls: type, *args: Any, **kwargs: Any) -> Any:
                values = by_thread.get(thread())
                call = functools.partial(values[-1], cls) if values else original.__get__(None, cls)
                return call(*args, **kwargs)

            return classmethod(of_class)
        # A name that a module lacks, such as `len`, is one of Python's.
        owner = builtins if isinstance(self.owner, ModuleType) else self.owner
        inherited = getattr(owner, self.name) if original is ABSENT else original

        def asking(*args: Any, **kwargs: Any) -> Any:
            values = by_thread.get(thread())
            return (values[-1] if values else inherited)(*args, **kwargs)

        return functools.update_wrapper(asking, inherited)


_TABLE: dict[tuple[int, str], _Exchange] = {}
_LOCK = threading.RLock()

PROCESS_LOCK = threading.RLock()
"""Held while torch, generators or a model's state are changed; a session's lock is taken before it."""


class cached_property(functools.cached_property[_T]):  # noqa: N801
    """A cached property without Python 3.11's lock for all objects, in which threads wait for each other."""

    def __init__(self, func: Callable[[Any], _T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


@contextmanager
def patched_functions(owner: Any, makes: Mapping[str, Make], *, for_all: bool = False) -> Iterator[None]:
    """Exchange the values of some names of a class or module.

    Functions and class methods are exchanged for this thread alone, unless ``for_all`` (for those called a
    hundred thousand times); classes, and values that cannot be called, for all threads, one of which may
    do so at a time. ``makes``: for each name, takes its value for this thread, and returns a function, a
    ``classmethod`` (to be exchanged for a function of the class), or :data:`ABSENT`.
    """
    entered: list[_Exchange] = []
    try:
        # An interrupt between two of these lines would leave a name exchanged for good.
        with InterruptsHeld(), _LOCK:
            for name, make in makes.items():
                key = id(owner), name
                exchange = _TABLE.get(key) or _Exchange(owner, name)
                exchange.push(make(exchange.here()), for_all)
                _TABLE[key] = exchange
                entered.append(exchange)
        yield
    finally:
        try:
            with InterruptsHeld(), _LOCK:
                while entered:
                    entered.pop().pop()
        finally:
            while entered:  # an interrupt came before it could be held
                entered.pop().pop()


def patched_names() -> list[str]:
    """Return the names that are exchanged now, in any thread, as ``owner.name``."""
    return [f"{exchange.owner.__name__}.{exchange.name}" for exchange in _TABLE.values()]


def instead(value: Any) -> Make:
    """Return a function that gives one value for any value of a name."""
    return lambda _: value


_IMMUTABLE = 1 << 8  # the flag of a class that only C writes, such as `torch.Size`


def set_name(owner: Any, name: str, value: Any) -> None:
    """Write a name of a module or class, also one whose own way to write it would do more."""
    is_immutable = isinstance(owner, type) and bool(owner.__flags__ & _IMMUTABLE)
    if is_immutable or isinstance(owner, ModuleType):
        names = object.__getattribute__(owner, "__dict__") if not is_immutable else _names_in_c(owner)
        names.pop(name, None) if value is ABSENT else names.__setitem__(name, value)
        if is_immutable:
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
    elif value is ABSENT:
        type.__delattr__(owner, name)
    else:
        type.__setattr__(owner, name, value)


def _names_in_c(cls: type) -> dict[str, Any]:
    """Return the names of an immutable class, behind the view of them that Python has."""
    found = gc.get_referents(type.__getattribute__(cls, "__dict__"))
    if [type(each) for each in found] != [dict]:
        raise RuntimeError(
            f"{cls.__name__}: Python {platform.python_version()} keeps the names of classes written in C "
            "elsewhere, so a trace cannot hear calls of their methods. Use CPython 3.11 to 3.13."
        )
    return found[0]  # type: ignore[no-any-return]


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
