"""A view of linear layers in every dialect, for the passes that merge, fold or fuse them."""

from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators import argument, computed_by
from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views import layer

_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN.expand.default)


class TransposedLinear(nn.Linear):
    """A linear layer whose weight is ``(in_features, out_features)``, as products of matrices read it."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        return torch.nn.functional.linear(value, self.weight.t(), self.bias)


def output_dimension(linear: nn.Linear) -> int:
    """Return the dimension of a layer's weight that belongs to its result; the other belongs to its input."""
    return 1 if isinstance(linear, TransposedLinear) else 0


def as_linear(node: Node, facts: GraphFacts) -> layer.Layer[nn.Linear] | None:
    """Return a call of a linear layer, in any dialect; ``None`` for any other node.

    A decomposed linear layer is a product with a transposed weight: ``addmm(bias, x, weight.t())`` or
    ``mm(x, weight.t())``; for an input that is a transposed view, a product of batches,
    ``bmm(x, weight.t().expand(...)) + bias``. With a weight that is not transposed it is an ``nn.Linear`` of
    the class ``TransposedLinear``, whose weight is ``(in_features, out_features)``. A computed weight makes
    no layer; one that is an input of the graph makes a layer that cannot be replaced.

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
        return layer.layer_of_module(node, facts, nn.Linear)
    name = computed_by(node)
    inner: tuple[Node, ...] = ()
    value: object
    if name == "linear":
        value, weight, bias = (argument(node, each) for each in ("input", "weight", "bias"))
    elif (product := _product(node, name) or _batched(node, facts)) is not None:
        value, weight, bias, inner = product
    else:
        return None
    tensors = layer.tensors_given(facts, weight=weight, bias=bias)
    if not isinstance(value, Node) or tensors is None or "weight" not in tensors:
        return None
    shape = layer.tensor_shape(tensors["weight"], facts)
    is_transposed = name != "linear" and not inner
    if len(shape) != 2:
        return None
    out_features, in_features = reversed(shape) if is_transposed else shape
    if "bias" in tensors and layer.tensor_shape(tensors["bias"], facts) != (out_features,):
        return None
    module_class = TransposedLinear if is_transposed else nn.Linear
    sizes: dict[str, Any] = {"out_features": out_features, "in_features": in_features}
    module = layer.made_of_tensors(module_class, facts, tensors, **sizes)
    return layer.layer_of_tensors(node, value, module, tensors, facts, inner=inner)


def transposed_matrix(node: Node) -> Any:
    """Return the matrix that a node of an exported graph transposes; ``None`` if it does something else."""
    if node.target is _ATEN.t.default:
        return node.args[0]
    if node.target is _ATEN.permute.default:
        return node.args[0] if list(argument(node, "dims")) in ([1, 0], [-1, 0], [1, -2], [-1, -2]) else None
    return None


def _product(node: Node, name: str) -> tuple[object, object, object, tuple[Node, ...]] | None:
    """Return the input, the weight and the bias of a product, and the transposition of the weight, if any."""
    if name not in ("addmm", "mm"):
        return None
    count = 3 if name == "addmm" else 2
    if node.op != "call_function" or node.kwargs or len(node.args) != count:  # others are factors
        return None
    bias, value, matrix = node.args if name == "addmm" else (None, *node.args)
    if not isinstance(matrix, Node):
        return None
    weight = transposed_matrix(matrix)
    return (value, matrix, bias, ()) if weight is None else (value, weight, bias, (matrix,))


def _batched(node: Node, facts: GraphFacts) -> tuple[object, object, object, tuple[Node, ...]] | None:
    """Return the same for a product of batches with one matrix."""
    bias: object = None
    product: object = node
    if _adds_tensor(node, facts):
        product, bias = node.args
    elif len(node.users) == 1:
        (user,) = node.users
        if _adds_tensor(user, facts) or _shows_all(user):
            return None  # a part of another
    inner = list[Node]()
    bmm = _unviewed(product, inner)
    if not isinstance(bmm, Node) or bmm.target is not _ATEN.bmm.default:
        return None
    value, matrices = bmm.args
    inner.append(bmm)
    matrix = _unviewed(matrices, inner)
    if not isinstance(matrix, Node) or matrix.target is not _ATEN.expand.default:
        return None
    transposition = matrix.args[0]
    weight = transposed_matrix(transposition) if isinstance(transposition, Node) else None
    if not isinstance(transposition, Node) or weight is None:
        return None
    own = [each for each in (*inner, matrix, transposition) if each is not node]
    return value, weight, bias, tuple(own)


def _unviewed(value: Any, inner: list[Node]) -> Any:
    """Return the source of a value past views of its own shape, and add the views to ``inner``."""
    while isinstance(value, Node) and _shows_all(value):
        inner.append(value)
        value = value.args[0]
    return value


def _shows_all(node: Node) -> bool:
    """Tell whether a node shows a tensor in its own shape."""
    if node.target not in _VIEWS or not isinstance(node.args[0], Node):
        return False
    shape = known_shape(node)
    return shape is not None and shape == known_shape(node.args[0])


def _adds_tensor(node: Node, facts: GraphFacts) -> bool:
    """Tell whether a node adds a tensor of the model, as a linear layer adds its bias."""
    if node.target is not _ATEN.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    bias = node.args[1]
    return isinstance(bias, Node) and isinstance(facts.attribute(bias), torch.Tensor)
