"""Modules that a trace keeps as one node: the ``leaf_modules`` that its caller names, and torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from torch import nn

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

Predicate: TypeAlias = Callable[[nn.Module, str], bool]
"""Told a module and its path, says whether it is one node."""

Choice: TypeAlias = type[nn.Module] | str | Predicate
"""A module class, a path in the module tree, or a predicate."""


class LeafModules:
    """Decides which modules become one ``call_module`` node each.

    ``chosen``: module classes, and paths in the module tree such as ``"encoder.layers.0"``, that are leaves
    besides those of ``torch.nn``; predicates, which decide alone. Raises TypeError if something chosen is
    none of these.
    """

    def __init__(self, chosen: Iterable[Choice] | Choice | None = None) -> None:
        is_one = isinstance(chosen, str) or not isinstance(chosen, Iterable)
        items: list[Any] = [] if chosen is None else [chosen] if is_one else list(chosen)  # type: ignore[arg-type]
        for item in items:
            is_class = isinstance(item, type) and issubclass(item, nn.Module)
            is_predicate = callable(item) and not isinstance(item, type | nn.Module)
            if not (isinstance(item, str) or is_class or is_predicate):
                raise TypeError(
                    "leaf_modules: expected module classes, module paths such as 'encoder.layers.0' and "
                    f"functions of a module and its path, got {item!r}"
                )
        self.paths = frozenset(item for item in items if isinstance(item, str))
        self._classes = tuple(item for item in items if isinstance(item, type))
        self._predicates: list[Predicate] = [item for item in items if not isinstance(item, str | type)]

    def require_known(self, model: nn.Module) -> None:
        """Raise ``ValueError`` unless a model has each of the paths."""
        if self.paths and (unknown := self.paths - dict(model.named_modules()).keys()):
            raise ValueError(f"leaf_modules: the model has no module {', '.join(sorted(unknown))}")

    def is_leaf(self, module: nn.Module, path: str) -> bool:
        """Tell whether the module at a path is a leaf, which the model itself, at the empty path, is not."""
        if not path:
            return False
        if self.is_named(module, path):
            return True
        of_torch = type(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
        return not self._predicates and of_torch and not isinstance(module, _CONTAINERS)

    def is_named(self, module: nn.Module, path: str) -> bool:
        """Tell whether the caller chose this module as a leaf."""
        chosen = path in self.paths or isinstance(module, self._classes)
        return chosen or any(predicate(module, path) for predicate in self._predicates)
