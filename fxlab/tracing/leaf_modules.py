"""Which modules are one node of the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class LeafModules:
    """Decides which modules become one ``call_module`` node each.

    Parameters
    ----------
    chosen
        Module classes and paths in the module tree, such as ``"encoder.layers.0"``, that are leaves besides
        those of ``torch.nn``.

    Raises
    ------
    TypeError
        If something chosen is neither.
    """

    def __init__(self, chosen: Iterable[type[nn.Module] | str] | None = None) -> None:
        items: list[Any] = [chosen] if isinstance(chosen, str | type) else list(chosen or ())
        for item in items:
            if not isinstance(item, str) and not (isinstance(item, type) and issubclass(item, nn.Module)):
                raise TypeError(
                    "leaf_modules: expected module classes and module paths such as 'encoder.layers.0', got "
                    f"{item!r}"
                )
        self.paths = frozenset(item for item in items if isinstance(item, str))
        self._classes = tuple(item for item in items if isinstance(item, type))

    def is_leaf(self, module: nn.Module, path: str) -> bool:
        """Tell whether the module at a path is a leaf; the model itself, at the empty path, is none."""
        if not path:
            return False
        of_torch = type(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
        return self.is_named(module, path) or (of_torch and not isinstance(module, _CONTAINERS))

    def is_named(self, module: nn.Module, path: str) -> bool:
        """Tell whether the caller chose this module as a leaf."""
        return path in self.paths or isinstance(module, self._classes)
