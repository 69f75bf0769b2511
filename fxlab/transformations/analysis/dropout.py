"""Dropouts, active and inactive."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.reasons import Reason, Refusal

DROPOUT_MODULES: tuple[type[nn.Module], ...] = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
DROPOUT_FUNCTIONS: dict[Callable[..., Any], bool | None] = {
    functional.dropout: True,
    functional.dropout1d: True,
    functional.dropout2d: True,
    functional.dropout3d: True,
    functional.alpha_dropout: False,
    functional.feature_alpha_dropout: False,
    torch.dropout: None,
    torch.alpha_dropout: None,
    torch.feature_dropout: None,
    torch.feature_alpha_dropout: None,
}
"""The functions ``(input, p, training, ...)``, and the default of ``training`` where there is one."""


def why_drops(node: Node) -> Refusal | None:
    """Return why a call of one of the functions may drop values; ``None`` if it drops none."""
    training = argument(node, 2, "training", argument(node, 2, "train", DROPOUT_FUNCTIONS[called(node)]))
    probability = argument(node, 1, "p", 0.5)
    if type(probability) not in (int, float) or not 0 <= probability <= 1:
        return Reason.DROPOUT_PROBABILITY(probability=probability)
    if training is not False and probability != 0:
        return Reason.ACTIVE_DROPOUT(training=training)
    return None


def called(node: Node) -> Callable[..., Any]:
    """Return the function that a node calls."""
    target: Any = node.target
    return target  # type: ignore[no-any-return]


def argument(node: Node, position: int, name: str, default: Any) -> Any:
    """Return an argument of a call, whether it was passed by position or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
