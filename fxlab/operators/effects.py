"""Side effects of calls, for passes and traces: writes, aliases, random numbers, global state."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import OpOverload
from fxlab.operators import python_functions
from fxlab.operators.operator import UNINITIALISED, WRITES_STATE, Operator, operator_of


def written_arguments(node: Node) -> list[Node]:
    """Return the nodes whose values a ``call_function`` or ``call_method`` node may write in place.

    A user's own function may write all of its arguments, unless it has ``only_reads = True``.
    """
    operator = operator_of(node)
    if operator is None:
        return [] if getattr(node.target, "only_reads", False) else node.all_input_nodes
    written = written_values(operator, node.args, node.kwargs)
    changes_container = node.op == "call_method" and operator.name in python_functions.CONTAINER_WRITES
    if changes_container or _writes_first(operator, node.args, node.kwargs):
        written = [*written, *node.all_input_nodes[:1]]
    found: dict[Node, None] = {}
    map_arg(written, found.setdefault)  # some are lists of lists
    return list(found)


def written_values(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call that it may write in place, tensors or not."""
    names = operator.writes
    flag, *state = WRITES_STATE.get(operator.name, ("",))
    if flag and argument_of(operator, args, kwargs, flag) not in (False, None):
        names = (*names, *state)
    written = [argument_of(operator, args, kwargs, name) for name in names]
    if _writes_first(operator, args, kwargs):
        written += [*args, *kwargs.values()][:1]
    return [value for value in (*written, kwargs.get("out")) if value is not None]


def _writes_first(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    in_place = argument_of(operator, args, kwargs, "inplace") not in (False, None)
    return in_place or operator.writes_first


def may_alias(node: Node) -> bool:
    """Tell whether the result of a call may share memory with its arguments, or hold one of them."""
    if node.target is getattr:
        return _attribute(node) not in python_functions.FACTS
    operator = operator_of(node)
    return operator is None or operator.may_alias


def returns_number(node: Node) -> bool:
    """Tell whether a call returns Python numbers or sizes, for any arguments."""
    if node.target is getattr:
        return _attribute(node) in python_functions.NUMBER_ATTRIBUTES
    operator = operator_of(node)
    return operator is not None and operator.name in python_functions.NUMBERS


def describes(node: Node) -> bool:
    """Tell whether a call only returns the shape, dtype, device or the like of a tensor."""
    if node.target is getattr:
        return _attribute(node) in python_functions.FACTS
    operator = operator_of(node)
    return operator is not None and operator.name in python_functions.DESCRIPTIONS


def reads_layout(node: Node) -> bool:
    """Tell whether a call returns the memory layout of a tensor, or depends on it."""
    operator = operator_of(node)
    return operator is not None and (
        operator.name in python_functions.LAYOUT or operator.name.startswith("as_strided")
    )


def sets_global_state(node: Node) -> bool:
    """Tell whether a call changes later ones: by the gradient mode, autocast or seeds."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name in python_functions.SETS_STATE


def draws_random_numbers(node: Node) -> bool:
    """Tell whether a call may draw random numbers; a dropout that is switched off draws none."""
    operator = operator_of(node)
    if operator is None or not operator.is_random:
        return False
    switched_off = any(argument(node, name) is False for name in ("training", "train"))
    never = ["dropout_p", "dropout", *(["p"] if "dropout" in operator.name else [])]
    return not switched_off and all(argument(node, name) != 0 for name in never)


def why_not_pure(node: Node) -> Refusal | None:
    """Return why a call may do more than compute the same result from the same arguments; ``None`` if not."""
    operator = operator_of(node)
    name = getattr(node.target, "__name__", node.target)
    if operator is None or not operator.is_known:
        return Reason.MAY_HAVE_SIDE_EFFECTS(called=name)
    if written_arguments(node) or not operator.returns_something or sets_global_state(node):
        return Reason.SIDE_EFFECTS(called=name)
    if node.target is getattr:
        attribute = _attribute(node)
        if attribute in python_functions.FACTS | python_functions.VIEW_ATTRIBUTES:
            return None
        return Reason.MAY_HAVE_SIDE_EFFECTS(called=f"reading {attribute}")
    if isinstance(node.target, OpOverload) and node.target.namespace not in ("aten", "prims"):
        return Reason.MAY_HAVE_SIDE_EFFECTS(called=name)
    if UNINITIALISED in operator.name:
        return Reason.UNINITIALISED_MEMORY(called=name)
    return Reason.RANDOM() if draws_random_numbers(node) else None


def argument(node: Node, name: str) -> Any:
    """Return the argument of a call for one of its operator's parameters, or the default."""
    operator = operator_of(node)
    return node.kwargs.get(name) if operator is None else argument_of(operator, node.args, node.kwargs, name)


def argument_of(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Any:
    """Return the argument for one of an operator's parameters, or the default."""
    if name in kwargs:
        return kwargs[name]
    if name not in operator.parameters:
        return None
    position = list(operator.parameters).index(name)
    return args[position] if position < len(args) else operator.parameters[name]


def _attribute(node: Node) -> Any:
    return node.args[1] if len(node.args) > 1 else None
