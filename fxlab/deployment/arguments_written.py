"""Objects that a model changes, such as caches: a graph makes new ones, whose contents the given ones get."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fxlab.values.nested import Attribute, PartOf, Path, is_object, parted, put_together

_ABSENT = object()


class WrittenArguments:
    """Gives objects that a call was given the contents of those that a graph has made in their place.

    The objects themselves stay, with the objects, lists and dictionaries inside: whoever holds them sees the
    change, as if the model had made it.
    """

    def __init__(self) -> None:
        self._given: dict[int, Any] = {}
        self.changed_numbers: list[Path] = []
        """Where integers are that have changed."""

    def write(self, given: Any, made: Any, path: Path) -> Any:
        """Write what was made into what was given, and return what is there now."""
        if given is made:
            return given
        if id(made) in self._given:
            return self._given[id(made)]
        if type(given) is not type(made):
            return made
        if is_object(made):
            self._given[id(made)] = given
            self._write_items(vars(given), vars(made), path, Attribute)
            return given
        if type(made) is dict:
            self._given[id(made)] = given
            self._write_items(given, made, path, lambda key: key)
            return given
        if type(made) is list:
            self._given[id(made)] = given
            olds = [*given[: len(made)], *[_ABSENT] * (len(made) - len(given))]
            pairs = enumerate(zip(olds, made, strict=True))
            given[:] = [self.write(old, new, (*path, index)) for index, (old, new) in pairs]
            return given
        if type(made) is int and made != given:
            self.changed_numbers.append(path)
        return made

    def _write_items(self, given: Any, made: Any, path: Path, step: Any) -> None:
        for key, value in made.items():
            given[key] = self.write(given.get(key, _ABSENT), value, (*path, step(key)))
        for key in [key for key in given if key not in made]:
            del given[key]

    def replaced(self, output: Any) -> Any:
        """Return an output with the given objects in place of those that were made."""
        if id(output) in self._given:
            return self._given[id(output)]
        if isinstance(output, Mapping):
            for key, value in list(output.items()):
                if (other := self.replaced(value)) is not value:
                    output[key] = other  # type: ignore[index]
        elif type(output) in (list, tuple):
            items = [self.replaced(item) for item in output]
            if any(new is not old for new, old in zip(items, output, strict=True)):
                return type(output)(items)
        elif isinstance(output, tuple) and hasattr(output, "_fields"):
            return type(output)(*map(self.replaced, output))
        elif dataclasses.is_dataclass(output) and not isinstance(output, type):
            for name, value in list(vars(output).items()):
                if (other := self.replaced(value)) is not value:
                    object.__setattr__(output, name, other)
        return output


def with_numbers(arguments: Mapping[str, Any], numbers: Iterable[tuple[Path, int]]) -> dict[str, Any]:
    """Return arguments with other integers in some places; the objects that hold them are copies."""
    result = dict(arguments)
    copied: set[Any] = set()
    for path, value in numbers:
        if path[0] not in copied:
            copied.add(path[0])
            result[path[0]] = put_together(parted(result[path[0]]))
        set_number(result, path, value)
    return result


def set_number(arguments: dict[str, Any], path: Path, value: Any) -> None:
    """Set what lies at the end of a path."""
    holder = PartOf(path[:-1])(arguments)
    if isinstance(path[-1], Attribute):
        vars(holder)[path[-1]] = value
    else:
        holder[path[-1]] = value
