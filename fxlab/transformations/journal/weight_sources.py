"""The tensors that new weights were computed from, and whether they have changed since."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.models.tensor_state import TensorState


@dataclass(eq=False)
class Source:
    """A parameter or a buffer that a rewrite has computed new values from.

    Copies and pickles keep whether it had changed by then, and go on from what it is in them.
    """

    holder: nn.Module
    name: str
    state: TensorState | None = None
    """What it was; ``None`` after unpickling, until it is asked for."""
    had_changed: bool = False

    def __post_init__(self) -> None:
        if self.state is None and self._tensor is not None:
            self.state = TensorState.of(self._tensor)

    @property
    def has_changed(self) -> bool:
        """Whether it was written, moved or replaced since."""
        if self.state is None:
            self.__post_init__()
        return self.had_changed or (self.state is not None and not self.state.is_of(self._tensor))

    @property
    def _tensor(self) -> torch.Tensor | None:
        value = getattr(self.holder, self.name, None)
        return value if isinstance(value, torch.Tensor) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Source":
        result = Source.__new__(Source)
        memo[id(self)] = result
        vars(result).update(name=self.name, state=None, had_changed=self.has_changed)
        result.holder = copy.deepcopy(self.holder, memo)
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "state": None, "had_changed": self.has_changed}
