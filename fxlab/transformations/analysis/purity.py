"""Purity, for passes that move or drop calls: no side effects, equal results for equal inputs; dropouts."""

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators import argument, function_of, operator_of, why_not_pure
from fxlab.transformations.analysis.aliasing_and_writes import keeps_state, written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_not_plain


def dropout_class(module: nn.Module | None) -> type[nn.Module] | None:
    """Return the dropout of ``torch.nn`` that a module is, or that its class is derived from."""
    functions = ((cls, function_of(cls)) for cls in type(module).__mro__)
    return next((cls for cls, function in functions if function is not None and function.is_dropout), None)


def is_dropout_call(node: Node) -> bool:
    """Tell whether a node calls a function that drops values, or would in training."""
    operator = operator_of(node)
    return operator is not None and operator.is_dropout


def why_drops(node: Node) -> Refusal | None:
    """Return why a call of a dropout may drop values; ``None`` if it drops none."""
    given = (argument(node, name) for name in ("training", "train"))
    training = next((value for value in given if value is not None), None)
    probability = argument(node, "p")
    if type(probability) not in (int, float) or not 0 <= probability <= 1:
        return Reason.DROPOUT_PROBABILITY(probability=probability)
    if training is not False and probability != 0:
        return Reason.ACTIVE_DROPOUT(training=training)
    return None


def why_impure(node: Node, facts: GraphFacts) -> Refusal | None:
    """Return why running a node may do more than compute its result; ``None`` if it is known not to.

    A pure node gives the same result whenever its inputs hold the same. A node that is not known to be pure
    is not: a user's own function, or one that this module does not know.
    """
    if node.op in ("placeholder", "output"):
        return Reason.INPUT_OR_OUTPUT(kind="input" if node.op == "placeholder" else "output")
    if node.op == "get_attr":
        return None
    if written_inputs(node, facts.graph_module):
        return Reason.MAY_WRITE_INPUTS()
    if node.op == "call_module":
        return _why_module_is_impure(node, facts)
    if node.op == "call_function" and node.is_impure():
        return Reason.SIDE_EFFECTS(called=getattr(node.target, "__name__", node.target))
    return why_drops(node) if is_dropout_call(node) else why_not_pure(node)


def is_called_for_effect(node: Node) -> bool:
    """Tell whether a node has no result that could be used, such as a guard or an assertion."""
    if node.op == "call_module":
        owner = node.graph.owning_module
        return owner is not None and getattr(owner.get_submodule(str(node.target)), "_is_impure", False)
    return node.op == "call_function" and node.target in torch.fx.node._side_effectful_functions


def _why_module_is_impure(node: Node, facts: GraphFacts) -> Refusal | None:
    module = facts.module(node)
    operator = None if module is None else function_of(type(module))
    name = f"a {type(module).__name__}"
    if module is None or operator is None or not operator.is_known or operator.writes:
        return Reason.MAY_HAVE_SIDE_EFFECTS(called=name)
    if reason := why_not_plain(module, type(module)) or why_hooked(facts, module):
        return reason
    if module._buffers and module.training:
        return Reason.WRITES_STATE(module=f"{name} in training mode", state="running statistics")
    if operator.is_dropout and module.training:
        return Reason.ACTIVE_DROPOUT(training=True)
    if operator.is_random and (module.training or "training" not in operator.parameters):
        return Reason.RANDOM()
    return (
        Reason.WRITES_STATE(module=f"{name} with max_norm", state="weight") if keeps_state(module) else None
    )


def is_pure_in_evaluation(node: Node, facts: GraphFacts) -> bool:
    """Tell whether a node calls a module that does more than compute its result in training mode."""
    module = facts.module(node)
    operator = None if module is None else function_of(type(module))
    return module is not None and operator is not None and (operator.is_random or bool(module._buffers))
