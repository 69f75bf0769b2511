"""Attributes of a model and its modules, and whether it has data."""

from __future__ import annotations

from typing import Any

from torch import nn

from fxlab.values.containers import contents, has_contents, is_same

_OF_EVERY_MODULE = vars(nn.Module()).keys()


def attributes_of(model: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return what modules have besides parameters, buffers and submodules: value, and contents if any."""
    return {
        f"{path}.{name}" if path else name: (value, contents(value))
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _OF_EVERY_MODULE
    }


def changed_attributes(before: dict[str, tuple[Any, Any]], model: nn.Module) -> list[str]:
    """Return the names of the attributes that are not what :func:`attributes_of` has returned before."""
    now = attributes_of(model)
    return [name for name in {**before, **now} if not _is_same(before.get(name), now.get(name))]


def attribute_of(model: nn.Module, name: str) -> Any:
    """Return an attribute of a model, ``None`` where asking for it raises anything."""
    try:
        return getattr(model, name, None)
    except Exception:  # a property, or ``__getattr__``, is the model's own code
        return None


def has_data(model: nn.Module) -> bool:
    """Tell whether a model can be run: it cannot on the meta device."""
    return not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def _is_same(before: tuple[Any, Any] | None, now: tuple[Any, Any] | None) -> bool:
    if before is None or now is None:
        return False
    if before[0] is now[0]:
        return before[1] is None or has_contents(now[0], before[1])
    return is_same(before[0], now[0])
