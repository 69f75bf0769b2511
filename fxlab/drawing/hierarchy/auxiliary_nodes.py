"""Nodes that serve the others, which pictures fold: sizes, checks, masks, positions, objects returned.

They are recognised by their operators and their sources: numbers, and tensors that no parameter and no input
of floating point has touched. An input of whole numbers may hold tokens, pixels or edges as well as a mask,
so values computed of it are bookkeeping only where they are combined with data that are there without them.
Values that lead straight on to an output are results of the model, not bookkeeping.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from fxlab.operators import (
    casts,
    computes,
    describes,
    draws_random_numbers,
    is_of_python,
    moves_elements,
    operator_of,
    returns_number,
)
from fxlab.operators.node_info import attribute_at, known_result
from fxlab.operators.python_functions import DATA, LAYOUT
from fxlab.values.tensors import SYMBOLIC

SIZES, GUARDS, MASK, POSITIONS = "sizes", "checks", "mask", "positions"
CONSTANTS, RESULTS = "constants", "results"
"""The purposes of bookkeeping; the words on its boxes."""
ORDER = (MASK, POSITIONS, CONSTANTS, SIZES, GUARDS, RESULTS)
"""Of a node that serves several, the first counts."""

_CALLS = ("call_module", "call_function", "call_method")
_CHECKS = ("assert", "sym_constrain_range")
_WHOLE = (torch.int32, torch.int64)
_INDICES = (torch.bool, *_WHOLE)
_NUMBERS = (bool, int, float, *SYMBOLIC, torch.Size)
_COUNTS = ("one_hot", "bincount")
_PRODUCTS = ("matmul", "mm", "bmm", "mv", "einsum", "linear")


# The sources of a value. Plain numbers, as flags of `enum` take ten times as long.
_NOTHING = 0
_NUMBER = 1
_GIVEN = 2
"""Elements of an input of whole numbers, as they are."""
_INPUT = 4
"""Of such an input."""
_CONTENT = 8
"""Of the numbers in such an input, not only of comparisons of them."""
_CONDITION = 16
_ANGLE = 32
"""Of a sine or cosine, which positions are encoded by."""
_TOUCHED = 64
"""Of parameters, or of data."""
_DATA = 128
"""Of an input of floating point, or of another one that went through parameters or chose elements."""
_OF_DATA = _TOUCHED | _DATA


class AuxiliaryNodes:
    """Finds the nodes of a graph that only serve the others; fewer where results are not known."""

    def __init__(self, graph_module: fx.GraphModule, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._known: dict[tuple[str, Any], bool] = {}
        self._origins: dict[fx.Node, int] = {}
        for node in graph_module.graph.nodes:
            self._origins[node] = self._origin(node, graph_module)
        self._first_data: set[fx.Node] = set()
        """Values made of an input that are read as data, not beside data."""
        self.kinds: dict[fx.Node, str] = {}
        """The purpose of each of them."""
        for node in reversed(graph_module.graph.nodes):
            if self._may_be_data(node) and any(self._is_read_as_data(user) for user in node.users):
                self._first_data.add(node)
            if node.op in _CALLS and (kind := self._kind(node)):
                self.kinds[node] = kind

    def is_aside(self, source: fx.Node, reader: fx.Node) -> bool:
        """Whether no data flow from one node to another, but a size, or something for a check."""
        if source in self.kinds and self._is_number(source):
            return True
        kind = self.kinds.get(reader)
        if kind in (None, RESULTS):
            return False
        is_of_data = bool(self._origins[source] & _TOUCHED)
        return is_of_data or kind == GUARDS or self._is_number(reader)

    def _is_number(self, node: fx.Node) -> bool:
        return self._origins[node] == _NUMBER

    def _origin(self, node: fx.Node, graph_module: fx.GraphModule) -> int:
        if node.op == "placeholder":  # that of a body reads the argument of the call
            read = node.all_input_nodes
            return self._origins[read[0]] if read else _of_input(known_result(node))
        if node.op == "get_attr":
            return _of_attribute(attribute_at(graph_module, str(node.target), None))
        if node.op == "output":
            return _OF_DATA
        origin = _NOTHING
        for source in node.all_input_nodes:
            origin |= self._origins[source]
        value = known_result(node)
        dtype = getattr(value, "dtype", None)
        if origin & _DATA and dtype is not None and not self._takes_no_elements(node):
            return _OF_DATA  # as most nodes are
        if node.op == "call_module" and self._has_state(node):
            origin |= _TOUCHED
        # It returns numbers, and takes none out of a tensor.
        if describes(node) or (returns_number(node) and computes(node) not in DATA - LAYOUT):
            return _NUMBER
        is_python = value is None and is_of_python(node.target)
        if isinstance(value, _NUMBERS) or (is_python and origin == _NUMBER):
            return origin & _OF_DATA if origin & _TOUCHED else _NUMBER
        if self._makes_data(node, origin):
            return _OF_DATA
        return _of_call(node, origin & ~_NUMBER, dtype, self._takes_no_elements(node))

    def _takes_no_elements(self, node: fx.Node) -> bool:
        """Whether a call makes a tensor by the shape and dtype of another alone."""
        if node.op == "call_module":
            return False
        called = node.op, node.target
        if called not in self._known:
            name = computes(node)
            self._known[called] = name.startswith("new_") or name.endswith("_like")
        return self._known[called]

    def _makes_data(self, node: fx.Node, origin: int) -> bool:
        """Whether values of an input become data here, by parameters or by the elements that they choose."""
        if origin & _DATA or not origin & _INPUT:
            return False
        if origin & _TOUCHED and not _computes_by_element(node):
            return any(map(self._may_be_data, node.all_input_nodes))
        called = operator_of(node)
        chooses = called is not None and called.takes_indices
        is_condition = getattr(known_result(node), "dtype", None) is torch.bool
        if is_condition or not (chooses or computes(node) in _COUNTS):
            return False
        chosen = node.args[:1] if chooses else ()
        indices = [source for source in node.all_input_nodes if source not in chosen]
        return any(self._origins[source] & _CONTENT for source in indices)

    def _may_be_data(self, node: fx.Node) -> bool:
        """Whether a value is made of an input, and more than conditions and their counts."""
        origin = self._origins[node]
        if origin & _DATA or not origin & _INPUT:
            return False
        return bool(origin & _CONTENT) or getattr(known_result(node), "dtype", None) not in _INDICES

    def _is_read_as_data(self, user: fx.Node) -> bool:
        read = self._origins[user]
        if not read & _TOUCHED:
            return False
        if not read & _DATA:
            return user in self._first_data
        is_beside_data = any(self._origins[source] & _DATA for source in user.all_input_nodes)
        return not is_beside_data or computes(user) in _PRODUCTS

    def _has_state(self, node: fx.Node) -> bool:
        module = self._modules.get(str(node.target))
        if module is None:
            return True
        return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None

    def _kind(self, node: fx.Node) -> str | None:
        if self._is_check(node):
            return GUARDS
        if self._only_packs(node):
            return RESULTS
        if not node.users:
            return None
        origin = self._origins[node]
        if origin & _TOUCHED and not all(self.kinds.get(user) == GUARDS for user in node.users):
            return None
        served = {self.kinds.get(user) for user in node.users}
        if served == {GUARDS}:
            return GUARDS
        if self._is_number(node):
            return SIZES
        if None in served:
            others = [user for user in node.users if user not in self.kinds]
            leads_on = any(not self._origins[user] & _TOUCHED for user in others)
            is_returned = any(user.op == "output" for user in others)
            if leads_on or is_returned or self._leads_to_data(node, origin):
                return None
            served.add(_purpose(node, origin))
        return min((kind for kind in served if kind), key=ORDER.index)

    def _leads_to_data(self, node: fx.Node, origin: int) -> bool:
        """Whether a value that the main path reads is the model's data, or chooses among them."""
        if origin & _GIVEN or node in self._first_data:
            return True
        dtype = getattr(known_result(node), "dtype", None)
        return bool(origin & _CONTENT) and (dtype is None or dtype in _WHOLE)

    def _only_packs(self, node: fx.Node) -> bool:
        """Whether a node only packs values that the graph returns into an object."""
        if node.op != "call_function" or not node.users or hasattr(known_result(node), "dtype"):
            return False
        makes_object = isinstance(node.target, type) or _is_of_fxlab(node.target)
        return makes_object and all(
            user.op == "output" or self.kinds.get(user) == RESULTS for user in node.users
        )

    def _is_check(self, node: fx.Node) -> bool:
        """Whether a node does nothing but refuse to go on."""
        if node.users:
            return False
        if node.op == "call_module":
            return not node.all_input_nodes and _is_of_fxlab(type(self._modules.get(str(node.target))))
        return _is_of_fxlab(node.target) or computes(node).lstrip("_").startswith(_CHECKS)


def _of_call(node: fx.Node, origin: int, dtype: Any, takes_no_elements: bool) -> int:
    """Return the sources of a tensor, by those of the arguments."""
    if node.op != "call_module" and draws_random_numbers(node):
        return _OF_DATA
    called = computes(node)
    if takes_no_elements:
        origin = _NOTHING
    if origin & _DATA:
        return _OF_DATA
    if origin & _TOUCHED and not _computes_by_element(node):
        return _TOUCHED
    keeps_elements = dtype in _WHOLE and (moves_elements(node) or casts(node))
    if not keeps_elements:
        origin &= ~_GIVEN
    if dtype is torch.bool or called in ("lt", "le", "gt", "ge", "eq", "ne"):
        origin = (origin & ~_CONTENT) | _CONDITION
    return origin | _ANGLE if called in ("sin", "cos") else origin


def _of_input(value: Any) -> int:
    if isinstance(value, _NUMBERS):
        return _OF_DATA if isinstance(value, float | torch.SymFloat) else _NUMBER
    dtype = getattr(value, "dtype", None)
    if dtype not in _INDICES:
        return _OF_DATA
    origin = _GIVEN | _INPUT
    return origin if dtype is torch.bool else origin | _CONTENT


def _computes_by_element(node: fx.Node) -> bool:
    operator = operator_of(node)
    return operator is not None and (operator.is_pointwise or moves_elements(node) or casts(node))


def _of_attribute(value: Any) -> int:
    """Return the source of an attribute; tables that hold no indices may be weights, also packed ones."""
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter):
        return _TOUCHED
    is_table = value.dtype not in (torch.bool, torch.int64) and value.dim() > 1
    return _TOUCHED if is_table else _NOTHING


def _purpose(node: fx.Node, origin: int) -> str:
    """Return the purpose of a tensor that is read by the model's computation."""
    if origin & _ANGLE or getattr(known_result(node), "dtype", None) in _WHOLE:
        return POSITIONS
    return MASK if origin & (_CONDITION | _INPUT) else CONSTANTS


def _is_of_fxlab(target: Any) -> bool:
    owner = target if hasattr(target, "__qualname__") else type(target)
    return str(owner.__module__).partition(".")[0] == "fxlab"
