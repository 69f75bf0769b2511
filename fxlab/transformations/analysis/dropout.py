"""Dropouts, active and inactive."""

from torch import nn
from torch.fx import Node

from fxlab.operators import argument, function_of, operator_of
from fxlab.reasons import Reason, Refusal

DROPOUT_MODULES: tuple[type[nn.Module], ...] = tuple(
    module
    for module in vars(nn).values()
    if isinstance(module, type) and (function := function_of(module)) is not None and function.is_dropout
)


def is_dropout_call(node: Node) -> bool:
    """Tell whether a node calls a function that drops values, or would in training."""
    operator = operator_of(node)
    return operator is not None and operator.is_dropout


def why_drops(node: Node) -> Refusal | None:
    """Return why a call of such a function may drop values; ``None`` if it drops none."""
    given = (argument(node, name) for name in ("training", "train"))
    training = next((value for value in given if value is not None), None)
    probability = argument(node, "p")
    if type(probability) not in (int, float) or not 0 <= probability <= 1:
        return Reason.DROPOUT_PROBABILITY(probability=probability)
    if training is not False and probability != 0:
        return Reason.ACTIVE_DROPOUT(training=training)
    return None
