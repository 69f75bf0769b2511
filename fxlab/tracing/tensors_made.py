"""Which tensors were made while a model ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from fxlab.nested import tensors_inside


class TensorsMade(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers each tensor that any operator gives, also in what ``__torch_function__`` is not shown.

    Examples
    --------
    >>> import torch
    >>> before = torch.ones(2)
    >>> with TensorsMade() as made:
    ...     after = torch.vmap(torch.neg)(before)
    >>> before in made, after in made
    (False, True)
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made = WeakTensorKeyDictionary()

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._made

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for _, tensor in tensors_inside(result):
            if not any(tensor is given for _, given in tensors_inside(args)):
                self._made[tensor] = None
        return result
