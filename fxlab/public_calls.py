"""Calls of public functions: arguments by other names and by their kind, and tables that are returned."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import isfunction, isroutine
from pathlib import PurePath
from typing import Any, ParamSpec, TypeVar

from fxlab.other_names import OF_ARGUMENTS, NoInputError, elsewhere, meant

P = ParamSpec("P")
T = TypeVar("T")


def as_table(value: Any) -> Any:
    """Return a data frame as a :class:`fxlab.tables.Table`, and anything else as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or type(value) is not pandas.DataFrame:
        return value
    from fxlab.tables import Table

    return Table(value)


def guided(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes arguments by other names, and tells its parameters if called wrongly.

    Examples
    --------
    >>> def measure(model, *, rounds=5):
    ...     return rounds
    >>> guided(measure)(None, repeats=3)
    3
    >>> guided(measure)(None, tolerance=3)
    Traceback (most recent call last):
        ...
    TypeError: measure() takes no argument 'tolerance'. It takes (model, *, rounds=5). No tolerance is ...
    """
    parameters = inspect.signature(function).parameters
    takes_inputs = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    positional = [each for each in parameters.values() if each.kind is not each.KEYWORD_ONLY]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _by_kind(parameters, positional, args, kwargs)
        if takes_inputs and kwargs.keys() - parameters.keys():
            args, kwargs = own_arguments(function, args, kwargs)
        return as_table(fitted(function, args, kwargs))

    call.__module__ = "fxlab"  # where pickle finds it
    return call


def fitted(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function; arguments that do not fit are passed by the function's own names for them."""
    try:
        return function(*args, **kwargs)
    except NoInputError as error:
        known = inspect.signature(function).parameters
        error.args = (f"{error.words}{_meant_and_taken(error.name, known)}{elsewhere(error.name)}",)
        raise
    except TypeError:
        if _binds(function, args, kwargs):
            raise
    args, kwargs = own_arguments(function, args, kwargs)
    return function(*args, **kwargs)


def fitting(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that takes arguments as :func:`fitted` does."""
    return functools.wraps(method)(lambda *args, **kwargs: fitted(method, args, kwargs))


def own_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that do not fit by the names that the function has for them.

    Inputs of the model by their names are ``inputs``. Raises TypeError if they do not fit then either, with
    the name of the misfit and the function's parameters.
    """
    known = inspect.signature(function).parameters
    taken = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    model = args[0] if args else next((kwargs[name] for name in _MODELS if name in kwargs), None)
    of_model = _names_of_inputs(model) if taken or "inputs" in known else ()
    own: dict[str, Any] = {}
    for name, value in kwargs.items():
        other = name if name in known or name in of_model else alike(name, known)
        own[name if other in kwargs or other in own else other] = value
    if _binds(function, args, own):
        return args, own
    by_name = (
        {} if taken else {name: own.pop(name) for name in [*own] if name in of_model and name not in known}
    )
    if by_name and _binds(function, args, own):
        bound = inspect.signature(function).bind(*args, **own)
        given = import_module("fxlab.models.running").given_inputs
        bound.arguments["inputs"] = given(bound.arguments.get("inputs"), by_name, _original(model))
        return bound.args, bound.kwargs
    unknown = [name for name in own if name not in known and not taken]
    try:
        inspect.signature(function).bind(*args, **own)
        words = ""
    except TypeError as error:
        words = str(error)
    name = function.__name__
    head = f"{name}() takes no argument {unknown[0]!r}" if unknown else f"{name}(): {words}"
    one = " All inputs are one argument: (a, b), or {name: value}."
    one = one if "inputs" in known and not unknown else ""
    takes = _meant_and_taken(unknown[0] if unknown else "", known)
    raise TypeError(f"{head}.{takes}{one}{elsewhere(*unknown)}")


def _meant_and_taken(name: str, known: Mapping[str, inspect.Parameter]) -> str:
    """Return sentences that name the parameters nearest to a name, and all of them."""
    known = {name: each.replace(annotation=each.empty) for name, each in known.items() if name != "self"}
    shown = str(inspect.Signature([*known.values()]))
    return f"{meant(difflib.get_close_matches(name, known, n=2))} It takes {shown}."


def _names_of_inputs(model: Any) -> Iterable[str]:
    """Return the names that a model has for its inputs, without other names of options."""
    model = _original(model)
    try:
        return inspect.signature(getattr(model, "forward", model)).parameters
    except (TypeError, ValueError):
        return ()


def _original(model: Any) -> Any:
    """Return the model of a session, and any other as it is."""
    return vars(model).get("original", model) if hasattr(model, "__dict__") else model


_MODELS = "model", "reference", "original", "session"
"""Arguments that are the model whose inputs have names."""


def alike(name: str, known: Iterable[str]) -> str:
    """Return the argument that means the same, or the name itself."""
    groups = (group for group in OF_ARGUMENTS if name in group)
    return next((other for group in groups for other in known if other in group), name)


def _binds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def is_value(value: Any) -> bool:
    """Tell whether a value can only be an input: a tensor, an array, or a mapping or tuple with one."""
    if isinstance(value, Mapping) or type(value).__name__ in ("BatchEncoding", "BatchFeature"):
        return any(is_value(each) for each in value.values())
    if isinstance(value, tuple | list):
        return any(map(is_value, value))
    return is_tensor(value)


_FILES = {".dot", ".html", ".json", ".onnx", ".pdf", ".png", ".pt2", ".py", ".svg"}


def is_file_to_write(value: Any) -> bool:
    """Tell whether a value is a path that ends as files do which fxlab writes."""
    return isinstance(value, str | os.PathLike) and PurePath(value).suffix in _FILES


def _by_kind(
    parameters: Mapping[str, inspect.Parameter],
    positional: list[inspect.Parameter],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with each in the place that its kind allows alone.

    Several tensors are the inputs of one call: ``trace(f, x, y)``. A path is the file to write:
    ``draw(model, x, "a.svg")``. A pass is never inputs: ``bisect(model, pass_, x)``. A model with inputs
    stands for a session: ``export(model, x, "a.pt2")``. A text next to a function is its name:
    ``register("halve", function)``. The file to read is no model: ``load_session(model, "a.json")``.
    """
    names = [each.name for each in positional]
    first, more = args[:1], [*args[1:]]
    if names[:1] == ["path"] and first and not isinstance(first[0], str | os.PathLike):
        paths = [each for each in more if isinstance(each, str | os.PathLike)]
        if len(paths) == 1:
            first, more = (paths[0],), [*first, *(each for each in more if each is not paths[0])]
    if names[:1] == ["graph_module"] and first and hasattr(type(first[0]), "graph_module"):
        first = (first[0].graph_module,)
    elif names[:1] == ["graph_module"] and more and _is_model(first[0]):
        given = [each for each in more if is_value(each)]
        more = [each for each in more if not any(each is other for other in given)]
        if given:  # a model that is not traced yet, and its inputs
            first = (
                import_module("fxlab.sources").trace(first[0], given[0] if len(given) == 1 else tuple(given)),
            )
    needed = sum(each.default is each.empty and each.kind is not each.VAR_POSITIONAL for each in positional)
    if "name" in parameters and len(args) > max(needed, 1) and "name" not in kwargs:
        texts = [each for each in args if isinstance(each, str)]
        if len(texts) == 1:
            rest = [each for each in args if each is not texts[0]]
            first, more, kwargs = tuple(rest[:1]), rest[1:], kwargs | {"name": texts[0]}
    kinds: list[tuple[str, Callable[[Any], Any]]] = [("optimizer", _is_optimizer), ("loss", isfunction)]
    if len(names) > 1 and names[0] != "path":
        kinds.append(("path", is_file_to_write))
    if "inputs" in names:
        offered = getattr(first[0], "passes", None) if first else None
        kinds.append(("passes", lambda each: each is not None and _passes_meant(each, offered)))
    for name, is_kind in kinds:
        found = [*filter(is_kind, more)] if name in parameters and name not in kwargs else []
        if len(found) == 1:
            more = [each for each in more if each is not found[0]]
            value = [*found] if name == "passes" and not isinstance(found[0], list) else found[0]
            kwargs = kwargs | {name: value}
    if any(each.kind is each.VAR_POSITIONAL for each in positional):
        labels = [name for name in ("labels", "target", "targets") if name in kwargs]
        if (
            "loss" in parameters
            and len(labels) == 1
            and labels[0] not in _names_of_inputs(first[0] if first else kwargs.get("model"))
        ):
            kwargs = {**kwargs}
            more += [kwargs.pop(each) for each in ("model", "inputs", *labels) if each in kwargs]
        return (*first, *more), kwargs
    if "inputs" in names:
        before = names.index("inputs") - 1
        given = more[before:]
        if len(given) > 1 and all(map(is_tensor, given)):
            more = [*more[:before], tuple(given)]
    elif names[:1] == ["session"] and first:
        given = [each for each in more if is_value(each)]
        if given and not isinstance(first[0], type):
            make = import_module("fxlab.session").Session
            first = (make(first[0], given[0] if len(given) == 1 else tuple(given)),)
            more = [each for each in more if not any(each is other for other in given)]
    return (*first, *more), kwargs


def is_tensor(value: Any) -> bool:
    """Tell whether a value is a tensor or an array of NumPy; neither library is imported for that."""
    kinds = (("torch", "Tensor"), ("numpy", "ndarray"))
    return any(m in sys.modules and isinstance(value, getattr(sys.modules[m], kind)) for m, kind in kinds)


def of_session(name: str) -> Callable[..., Any]:
    """Return a method of sessions as a function of a model, its inputs and the arguments of the method.

    The model is the first argument that is one, and the inputs those that can be nothing else. A function
    that changes a session which it makes returns its graph module.
    """
    session_class: Any = import_module("fxlab.session").Session
    method = getattr(session_class, name, None)

    def call(*args: Any, inputs: Any = None, **options: Any) -> Any:
        given = [*args]
        place = next((at for at, each in enumerate(given) if _is_model(each)), 0)
        if not given:
            raise TypeError(
                f"{name}(): expected a model or session, its inputs, and what session.{name} takes."
            )
        model = given.pop(place)
        if isinstance(model, session_class):
            return getattr(model, name)(*given, **options)
        values = [each for each in given if is_value(each)]
        rest = [each for each in given if not any(each is value for value in values)]
        if inputs is None and values:
            inputs = values[0] if len(values) == 1 else tuple(values)
        session = session_class(model, inputs)
        if not {"pass_", "passes"} & inspect.signature(getattr(session, name)).parameters.keys():
            chosen = [each for each in rest if _passes_meant(each, session.passes)]
            rest = [each for each in rest if not any(each is one for one in chosen)]
            session.apply(chosen)
        found = getattr(session, name)(*rest, **options)
        return session.graph_module if found is session else found

    call.__name__, call.__doc__, call.__module__ = name, getattr(method, "__doc__", None), "fxlab"
    return call


def _is_optimizer(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].optim.Optimizer)


def _passes_meant(value: Any, offered: Any) -> bool:
    meant = import_module("fxlab.transformations.registry").passes_meant
    return not is_value(value) and bool(meant(value, offered))


def _is_model(value: Any) -> bool:
    if isinstance(value, str | os.PathLike):
        return PurePath(value).suffix == ".pt2"
    return not isroutine(value) and bool(import_module("fxlab.sources").is_model(value))
