"""Values whose last bit matters: downstream rounding to integers can turn it into a whole one."""

import torch
from torch.fx import Graph, Node

from fxlab.transformations.analysis.node_shape import called_name, known_dtype

_ROUNDS_TEXT = """
    floor floor_ ceil ceil_ round round_ trunc trunc_ fix fix_ frac frac_ long int short char byte
    floordiv floor_divide floor_divide_ mod remainder remainder_ fmod fmod_ sym_int index range
"""
_ROUNDS = frozenset(_ROUNDS_TEXT.split())
_PASSES_ON_TEXT = """
    add sub rsub mul multiply truediv div divide true_divide neg negative abs absolute log log2 log10 log1p
    exp sqrt rsqrt square pow reciprocal clamp clip clamp_min clamp_max min max minimum maximum where float
    double half bfloat16 to type type_as view reshape flatten unflatten transpose permute unsqueeze squeeze
    expand expand_as contiguous clone detach getitem chunk split repeat t add_ sub_ mul_ div_ clamp_
"""
_PASSES_ON = frozenset(_PASSES_ON_TEXT.split())
_CASTS = frozenset({"to", "type", "type_as"})


def rounding_readers(graph: Graph) -> dict[Node, Node]:
    """Return, for each value that is rounded to integers, a node that does it.

    Values count of which only what is computed of them, element by element, is rounded.
    """
    readers: dict[Node, Node] = {}
    for node in reversed(graph.nodes):
        for user in node.users:
            if user.op not in ("call_function", "call_method"):
                continue
            if _rounds(user):
                readers[node] = user
            elif user in readers and called_name(user) in _PASSES_ON:
                readers[node] = readers[user]
    return readers


def _rounds(node: Node) -> bool:
    name = called_name(node)
    if name in _ROUNDS:
        return True
    dtype = known_dtype(node) if name in _CASTS else None
    return not (dtype is None or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
