"""Patches by which the hooks of torch's compiler hear its calls, each made as it was, in all threads."""

import functools
import inspect
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest import mock

import torch

from fxlab.base.interrupts import RestoringStack
from fxlab.base.words import error_words


class UnknownCallError(Exception):
    """A call is not of the form that fxlab knows, so that it is not heard."""


class Call:
    """A call of a function of torch: by position or by name, with any further arguments."""

    def __init__(
        self,
        original: Callable[..., Any],
        names: tuple[str, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._original, self._names = original, names
        self._args, self._kwargs = list(args), dict(kwargs)
        self.has_run = False
        self.result: Any = None
        self.error: BaseException | None = None
        """The exception of the function itself."""

    def __call__(self) -> Any:
        """Call the function, with the arguments that were given."""
        self.has_run = True
        try:
            self.result = self._original(*self._args, **self._kwargs)
        except BaseException as error:
            self.error = error
            raise
        return self.result

    def given(self, place: int | str, kind: type[Any] | tuple[type[Any], ...] = object) -> Any:
        """Return the argument of a parameter; UnknownCallError if there is none, or it is of another kind."""
        if isinstance(place, str):
            name, place = place, self._names.index(place) if place in self._names else len(self._args)
        else:
            name = self._names[place] if place < len(self._names) else ""
        if place < len(self._args):
            value = self._args[place]
        elif name in self._kwargs:
            value = self._kwargs[name]
        else:
            raise UnknownCallError(f"argument {name or place} is missing")
        if not isinstance(value, kind):
            raise UnknownCallError(f"argument {name or place} is a {type(value).__name__}")
        return value

    def give(self, place: int, value: Any) -> None:
        """Replace an argument that was given."""
        if place < len(self._args):
            self._args[place] = value
        else:
            self._kwargs[self._names[place]] = value


def attribute_of(value: Any, name: str) -> Any:
    """Return an attribute of an object of torch; UnknownCallError if there is none."""
    try:
        return getattr(value, name)
    except AttributeError:
        raise UnknownCallError(f"{type(value).__name__} has no {name}") from None


def held_by_closure(function: Any) -> dict[str, Any]:
    """Return the variables that a function holds of the function around it."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    held = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not given a value yet
            continue
    return held


def heard(
    original: Callable[..., Any], hear: Callable[[Call], Any], lost: str, remarks: list[str]
) -> Callable[..., Any]:
    """Return a replacement of a function that lets a listener hear of its calls.

    ``hear``: receives each call, makes it, and returns its result. If it raises something itself, the
    function runs as without it, and ``remarks`` say what is ``lost``.
    """
    try:
        names = tuple(inspect.signature(original).parameters)
    except (TypeError, ValueError):
        names = ()

    def remark(why: str) -> None:
        name = getattr(original, "__qualname__", repr(original))
        words = f"{lost}: this torch ({torch.__version__}) calls {name} in another way ({why})."
        if words not in remarks:
            remarks.append(words)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        call = Call(original, names, args, kwargs)
        try:
            return hear(call)
        except Exception as error:
            # An error of the function itself is for its caller, unlike one of the listener.
            if error is call.error:
                raise
            remark(str(error) if isinstance(error, UnknownCallError) else error_words(error))
        if call.error is not None:
            raise call.error
        # Not twice, if the listener has failed after the call: torch's functions change graphs in place.
        return call.result if call.has_run else original(*args, **kwargs)

    return run


class Patches:
    """Replaces functions in torch by listeners; collects a remark for each that this version lacks."""

    def __init__(self, stack: RestoringStack) -> None:
        self._stack = stack
        self.remarks: list[str] = []

    def around(self, place: str, hear: Callable[[Call], Any], lost: str) -> None:
        """Report the calls of a function to a listener, given as ``module:Class.name``; see :func:`heard`."""
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        try:
            with warnings.catch_warnings():  # torch warns of itself where its compiler is first imported
                warnings.simplefilter("ignore", DeprecationWarning)
                owner: Any = functools.reduce(getattr, outer, import_module(module))
            original = getattr(owner, name)
        except (ImportError, AttributeError):
            self.remarks.append(f"{lost}: this torch ({torch.__version__}) has no {path} in {module}.")
            return
        replacement = heard(original, hear, lost, self.remarks)
        self._stack.enter_context(mock.patch.object(owner, name, replacement))

    def setting(self, place: str, *, lost: str = "", **values: Any) -> None:
        """Change the settings that a module of torch has; ``lost`` names the loss without the others."""
        config = import_module(place)
        known = {name: value for name, value in values.items() if hasattr(config, name)}
        self._stack.enter_context(config.patch(**known))
        if lost and known.keys() != values.keys():
            missing = ", ".join(values.keys() - known.keys())
            self.remarks.append(f"{lost}: this torch ({torch.__version__}) has no {place}.{missing}.")
