"""Methods of modules as targets of nodes, given the parameters, buffers and modules that they use.

A method is called on an empty module with the settings of the model's own: passes see the weights that it
uses as inputs of the node, and a method that asks for more than these raises.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import nn

from fxlab.values.containers import is_a

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}
_KINDS = ("_parameters", "_buffers", "_modules")


class NeedsModuleError(Exception):
    """A method reads or writes more of its module than it has here."""


@dataclass(frozen=True, eq=False)
class MethodOf:
    """The target of a node that calls a method, such as one that numbers the positions of a text with images.

    ``cls``: the class of the module; an empty one is made for each call. ``name``: the method. ``settings``:
    those attributes of the module that are plain values or a configuration. ``withheld``: the names of its
    other attributes. A method that asks for one raises :class:`NeedsModuleError`. ``state``: the names of its
    parameters, buffers and modules, by the attribute of a module that holds them. ``uses``: those among them
    that the method uses, if any: a mapping with these is its first argument.
    """

    cls: type[nn.Module]
    name: str
    settings: Mapping[str, Any]
    withheld: Collection[str]
    state: Mapping[str, tuple[str, ...]]
    uses: Collection[str] = ()

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        given: Mapping[str, Any] = {}
        if self.uses:
            given, *args = args  # type: ignore[assignment]
        return self.called(given, set(), *args, **kwargs)

    def called(self, given: Mapping[str, Any], used: set[str], *args: Any, **kwargs: Any) -> Any:
        """Call the method of a module with this state, and add the names of the state that it uses."""
        module = self.cls.__new__(self.cls)
        nn.Module.__init__(module)
        state = {kind: _State(self.state[kind], given, used, self.withheld) for kind in _KINDS}
        attributes = vars(module)
        attributes.update(state, **self.settings)
        before = dict(attributes)
        result = getattr(module, self.name)(*args, **kwargs)
        written = [name for name, value in attributes.items() if before.get(name, _State) is not value]
        if written:
            raise NeedsModuleError(f"it writes {', '.join(written)}")
        return result

    def using(self, used: Collection[str]) -> MethodOf:
        """Return the same target for a method that uses so much of its module."""
        return replace(self, uses=tuple(n for kind in _KINDS for n in self.state[kind] if n in used))


def method_of(module: nn.Module, name: str, copies: dict[int, Any]) -> MethodOf:
    """Return a target that calls a method of a module, with its settings as they are now.

    ``copies``: the memo of :func:`copy.deepcopy`, shared with other targets, so that a configuration is
    copied once.
    """
    attributes = {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}
    settings = {key: value for key, value in attributes.items() if _is_setting(value)}
    withheld = frozenset(attributes.keys() - settings.keys())
    state = {kind: tuple(vars(module)[kind]) for kind in _KINDS}
    return MethodOf(type(module), name, copy.deepcopy(settings, copies), withheld, state)


class _State(MutableMapping[str, Any]):
    """Parameters, buffers or modules of a module; asking for one not given is an error no default hides.

    ``names``: the names that the module has. ``given``: the values present here, by name. ``used``: collects
    the names that are read. ``withheld``: the other names of the module.
    """

    def __init__(
        self, names: tuple[str, ...], given: Mapping[str, Any], used: set[str], withheld: Collection[str]
    ) -> None:
        self._names, self._given, self._used, self._withheld = names, given, used, withheld

    def __contains__(self, name: object) -> bool:
        if name in self._withheld or (name in self._names and name not in self._given):
            raise NeedsModuleError(f"it uses {name}")
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        self._used.add(name)
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        # One by one: a module that looks for its dtype goes no further than to its first parameter.
        for name in self._names:
            self[name]
            yield name

    def __len__(self) -> int:
        return len(list(self))

    def __setitem__(self, name: str, value: Any) -> NoReturn:
        raise NeedsModuleError(f"it writes {name}")

    __delitem__ = __setitem__  # type: ignore[assignment]


def _is_setting(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(map(_is_setting, value))
    if isinstance(value, dict):
        return all(map(_is_setting, value.values()))
    is_configuration = inspect.getattr_static(type(value), "to_dict", None) is not None
    return is_a(value, *_PLAIN) or (is_configuration and not is_a(value, nn.Module))
