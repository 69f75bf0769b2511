"""Optimizer steps that torch's version counters miss: those of fused kernels write without counting."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def _count(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Count a step, as torch counts those of all other kernels."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version([p for p in group["params"] if p.grad is not None])


register_optimizer_step_post_hook(_count)
