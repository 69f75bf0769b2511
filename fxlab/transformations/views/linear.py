"""Linear layers."""

from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators import argument
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views.layer import (
    Layer,
    computed_by,
    layer_of_module,
    layer_of_tensors,
    made_of_tensors,
    tensors_given,
)

_ATEN = torch.ops.aten
_PRODUCTS = (_ATEN.addmm.default, _ATEN.mm.default)


def as_linear(node: Node, facts: GraphFacts) -> Layer[nn.Linear] | None:
    """Return a call of a linear layer, in any dialect; ``None`` for any other node.

    A product of matrices with a transposed weight, ``addmm(bias, x, weight.t())`` or ``mm(x, weight.t())``,
    is what a linear layer is decomposed to. A weight that is no parameter or buffer of the model makes none.

    Examples
    --------
    >>> import torch
    >>> from torch.nn import functional
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.head = torch.nn.Linear(4, 2)
    ...
    ...     def forward(self, x):
    ...         return functional.linear(x, self.head.weight, self.head.bias)
    >>> traced = torch.fx.symbolic_trace(Model())
    >>> found = [as_linear(node, GraphFacts(traced)) for node in traced.graph.nodes]
    >>> [(layer.input, layer.path, layer.module) for layer in found if layer]
    [(x, 'head', Linear(in_features=4, out_features=2, bias=True))]
    """
    if node.op == "call_module":
        return layer_of_module(node, facts, nn.Linear)
    name = computed_by(node)
    inner: tuple[Node, ...] = ()
    value: object
    if name == "linear":
        value, weight, bias = (argument(node, each) for each in ("input", "weight", "bias"))
    elif node.target in _PRODUCTS and (product := _product(node)) is not None:
        value, weight, bias, inner = product
    else:
        return None
    tensors = tensors_given(facts, weight=weight, bias=bias)
    if not isinstance(value, Node) or tensors is None or "weight" not in tensors:
        return None
    shape = facts.attribute(tensors["weight"]).shape
    if len(shape) != 2 or (bias is not None and facts.attribute(bias).shape != shape[:1]):
        return None
    module = made_of_tensors(nn.Linear, facts, tensors, out_features=shape[0], in_features=shape[1])
    return layer_of_tensors(node, value, module, tensors, facts, inner=inner)


def transposed_matrix(node: Node) -> Any:
    """Return the matrix that a node of an exported graph transposes; ``None`` if it does something else."""
    if node.target is _ATEN.t.default:
        return node.args[0]
    if node.target is _ATEN.permute.default:
        return node.args[0] if list(argument(node, "dims")) in ([1, 0], [-1, 0], [1, -2], [-1, -2]) else None
    return None


def _product(node: Node) -> tuple[object, object, object, tuple[Node, ...]] | None:
    """Return the input, the weight and the bias of a product, and the transposition of the weight."""
    if any(argument(node, factor) not in (1, None) for factor in ("alpha", "beta")):
        return None
    bias, value, transposed = node.args if node.target is _ATEN.addmm.default else (None, *node.args)
    if not isinstance(transposed, Node) or (weight := transposed_matrix(transposed)) is None:
        return None
    return value, weight, bias, (transposed,)
