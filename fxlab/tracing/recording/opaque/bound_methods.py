"""Methods of modules as targets of nodes, where they need nothing of their module but its settings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn

from fxlab.values.containers import is_a

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}


class NeedsModuleError(Exception):
    """A method reads or writes more of its module than settings."""


@dataclass(frozen=True, eq=False)
class MethodOf:
    """The target of a node that calls a method, such as one that numbers the positions of a text with images.

    Attributes
    ----------
    cls : type of torch.nn.Module
        The class of the module; an empty one is made for each call.
    name : str
        The method.
    settings : Mapping of str to Any
        Those attributes of the module that are plain values or a configuration.
    withheld : Collection of str
        The names of its other attributes. A method that asks for one raises :class:`NeedsModuleError`.
    """

    cls: type[nn.Module]
    name: str
    settings: Mapping[str, Any]
    withheld: Collection[str]

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        module = self.cls.__new__(self.cls)
        nn.Module.__init__(module)
        state = {kind: _Withheld(self.withheld) for kind in ("_parameters", "_buffers", "_modules")}
        attributes = vars(module)
        attributes.update(state, **self.settings)
        before = dict(attributes)
        result = getattr(module, self.name)(*args, **kwargs)
        written = [name for name, value in attributes.items() if before.get(name, _Withheld) is not value]
        if written:
            raise NeedsModuleError(f"it writes {', '.join(written)}")
        return result


def method_of(module: nn.Module, name: str, copies: dict[int, Any]) -> MethodOf:
    """Return a target that calls a method of a module, with its settings as they are now.

    Parameters
    ----------
    module
        The module.
    name
        The method.
    copies
        What was copied for other targets, as :func:`copy.deepcopy` keeps it: a configuration is copied once.
    """
    attributes = {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}
    settings = {key: value for key, value in attributes.items() if _is_setting(value)}
    state = (module._parameters, module._buffers, module._modules)
    withheld = attributes.keys() - settings.keys() | {key for names in state for key in names}
    return MethodOf(type(module), name, copy.deepcopy(settings, copies), frozenset(withheld))


class _Withheld(dict[str, Any]):
    """Stands for parameters, buffers or modules; asking for one is an error that no default hides."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            raise NeedsModuleError(f"it uses {name}")
        return False

    def _listed(self) -> NoReturn:
        raise NeedsModuleError("it lists parameters, buffers or modules")

    keys = values = items = __iter__ = _listed


def _is_setting(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(map(_is_setting, value))
    if isinstance(value, dict):
        return all(map(_is_setting, value.values()))
    is_configuration = inspect.getattr_static(type(value), "to_dict", None) is not None
    return is_a(value, *_PLAIN) or (is_configuration and not is_a(value, nn.Module))
