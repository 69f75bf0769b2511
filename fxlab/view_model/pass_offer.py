"""Passes that can be added from the screen, and their arguments as text.

There are those that :func:`fxlab.transformations.offered` returns, the classes that a person or another
package has defined, and the passes that a notebook has made of them.
"""

import ast
import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fxlab.operators.node_info import dtype_named
from fxlab.session import Session
from fxlab.transformations import Transformation, offered
from fxlab.view_model import protocol
from fxlab.view_model.pass_state import describe_error, description_of, readable_name
from fxlab.view_model.wire import clip

_NOTEBOOK = "__main__"


@dataclass(frozen=True)
class Offer:
    """A transformation that can be added: a class and its parameters, or a function without any."""

    key: str
    title: str
    description: str
    make: Callable[..., Transformation]
    parameters: tuple[inspect.Parameter, ...] = ()

    def state(self) -> protocol.Offer:
        """Describe it for the page."""
        return {
            "key": self.key,
            "title": self.title,
            "description": self.description,
            "parameters": [_described(parameter) for parameter in self.parameters],
        }

    def made(self, texts: Mapping[str, str]) -> Transformation:
        """Make the transformation of typed arguments; ValueError if they are wrong, or the class raises."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in texts:
            if name not in known:
                raise ValueError(
                    f"{self.title} has no argument {name!r}; it has: {', '.join(known) or 'none'}."
                )
        given = {}
        for name, parameter in known.items():
            text = texts.get(name, "").strip()
            if text:
                given[name] = _value(text, parameter)
            elif parameter.default is parameter.empty:
                raise ValueError(f"{name}: {self.title} requires a value.")
        try:
            return self.make(**given)
        except Exception as error:
            raise ValueError(f"{self.title} could not be made: {describe_error(error)}") from error


def offers(session: Session) -> list[Offer]:
    """Return the passes that a session could add to its own, people's own before fxlab's."""
    taken = {p.signature for p in session.passes}
    found = {offer.key: offer for offer in (*_own_classes(taken), *_instances(session, taken))}
    return sorted(found.values(), key=lambda offer: (offer.key.startswith("fxlab."), offer.title.lower()))


def add(session: Session, key: str, texts: Mapping[str, str]) -> Transformation:
    """Add a person's choice to a session; one whose name is taken gets a number."""
    chosen = next((offer for offer in offers(session) if offer.key == key), None)
    if chosen is None:
        raise ValueError(f"There is no transformation {clip(key, 200)!r} to add.")
    return add_named(session, chosen.made(texts))


def add_named(session: Session, made: Transformation) -> Transformation:
    """Add a pass to a session; one whose name is taken gets a number."""
    names = {p.name for p in session.passes}
    if made.name in names and made.signature not in {p.signature for p in session.passes}:
        free = next(name for n in range(2, len(names) + 3) if (name := f"{made.name}-{n}") not in names)
        made = made.named(free)
    session.add(made)
    return made


def _instances(session: Session, taken: set[str]) -> Iterator[Offer]:
    """Yield the passes offered by default, those the session adds, and those in a notebook's variables."""
    known = (*offered(), *(session._internals.compiled.addable() if session._internals.compiled else ()))
    made = [(f"{type(p).__module__}.{p.name}", readable_name(p), p) for p in known]
    for variable, value in list(vars(sys.modules[_NOTEBOOK]).items()):
        if isinstance(value, Transformation) and not variable.startswith("_"):
            title = f"{readable_name(value)} ({clip(variable, 60)})"
            made.append((f"{_NOTEBOOK}:{variable}", title, value))
    for key, title, p in made:
        if p.signature not in taken:
            yield Offer(key, title, description_of(p), functools.partial(copy.copy, p))


def _own_classes(taken: set[str]) -> Iterator[Offer]:
    """Yield the classes of others that can still be imported; those of a notebook as they are now."""
    for cls in _subclasses(Transformation):
        path = f"{cls.__module__}.{cls.__qualname__}"
        if cls.__module__.partition(".")[0] == "fxlab" or cls.__name__.startswith("_") or not _is_found(cls):
            continue
        if inspect.isabstract(cls) or cls.transform is Transformation.transform:
            continue
        parameters = tuple(p for p in inspect.signature(cls).parameters.values() if _can_be_typed(p))
        if not parameters and _signature_of(cls) in taken:
            continue
        yield Offer(path, cls.__name__, description_of(cls), cls, parameters)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _is_found(cls: type[Any]) -> bool:
    """Whether its name still stands for a class: a cell that is run again defines another."""
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls


def _signature_of(cls: Callable[[], Transformation]) -> str | None:
    try:
        return cls().signature
    except Exception:
        return None


def _can_be_typed(parameter: inspect.Parameter) -> bool:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return False
    if parameter.default is parameter.empty or isinstance(parameter.default, str):
        return True
    try:
        return bool(_value(_text(parameter.default), parameter) == parameter.default)
    except Exception:
        return False


def _described(parameter: inspect.Parameter) -> protocol.Parameter:
    required = parameter.default is parameter.empty
    return {
        "name": clip(parameter.name, 80),
        "required": required,
        "default": "" if required else clip(_text(parameter.default), 200),
        "isBool": isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool"),
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, torch.dtype) else repr(value)


def _value(text: str, parameter: inspect.Parameter) -> Any:
    """Read an argument; nothing that is typed is run."""
    if isinstance(parameter.default, str) or parameter.annotation in (str, "str"):
        return text
    if (dtype := dtype_named(text)) is not None:
        return dtype
    try:
        return ast.literal_eval(text)
    except Exception:
        raise ValueError(
            f"{parameter.name}: expected a literal of Python, such as 3, 0.5, True, 'text' or [1, 2], "
            f"or a dtype, got {clip(text, 80)!r}."
        ) from None
