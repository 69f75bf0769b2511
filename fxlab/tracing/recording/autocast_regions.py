"""Use of automatic mixed precision by a model, and by what is around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.fx.node import has_side_effect

from fxlab.exchanged import exchanged
from fxlab.models.autocast import AutocastState, autocast_state
from fxlab.tracing.report import REFUSAL


class AutocastUse:
    """Use of autocast by a model: it may compute something else if autocast is set otherwise around it."""

    def __init__(self) -> None:
        self.depends = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See, while a model runs, whether it makes a region like what is around it.

        Most such regions are there to keep precision where autocast is on, and do nothing elsewhere.
        """
        around = autocast_state()

        def entered(enter: Callable[..., Any], region: torch.autocast) -> Any:
            result = enter(region)
            self.depends |= autocast_state() == around
            return result

        with exchanged(torch.autocast, {"__enter__": lambda enter: partial(entered, enter)}):
            yield


@has_side_effect
def require_autocast(state: AutocastState) -> None:
    """Raise ``AssertionError`` unless autocast is set to something."""
    if autocast_state() != state:
        dtypes = ", ".join(f"{device} in {dtype}" for device, dtype in state) or "off"
        raise AssertionError(
            f"{REFUSAL} autocast {dtypes} only, as the model decides on it: trace it as it is to run"
        )
