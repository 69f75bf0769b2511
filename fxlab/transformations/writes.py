"""Who writes in place into what: whether a value is the same at two places of a graph.

Values that may share memory are put into one class: every operation is taken to return a view of its inputs
unless it is known to make a new tensor. That is coarse, and errs on the side of seeing a write.
"""

import operator
from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.tensors import storage_of
from fxlab.transformations.module_tree import find_module, split_path
from fxlab.transformations.node_shape import called_name, known_result

_NEW_TENSOR_FUNCTIONS_TEXT = """
    add sub mul truediv div floordiv mod pow neg matmul bmm mm addmm baddbmm linear conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d softmax log_softmax relu gelu silu
    sigmoid tanh elu selu leaky_relu softplus mish hardswish hardtanh relu6 exp log sqrt rsqrt sin
    cos abs erf clamp cat concat stack layer_norm group_norm batch_norm embedding
    scaled_dot_product_attention sum mean var std max min amax amin norm cumsum where eq ne lt le gt
    ge and_ or_ xor invert clone zeros ones empty full arange tensor zeros_like ones_like empty_like
    full_like rand randn rand_like randn_like outer dot pad addcmul addcdiv lerp square reciprocal
    masked_fill gather index_select size len max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d
    avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d argmax argmin topk sort
    tril triu repeat new_zeros new_ones new_full new_tensor roll flip dim numel item logical_and
    logical_or logical_not bitwise_and bitwise_or prod all any one_hot interpolate normalize l1_loss
    mse_loss cross_entropy
"""
_NEW_TENSOR_FUNCTIONS = frozenset(_NEW_TENSOR_FUNCTIONS_TEXT.split())
_NEW_TENSOR_MODULES = (
    nn.Linear,
    nn.Bilinear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.Embedding,
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.LeakyReLU,
    nn.ELU,
    nn.Softmax,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)
_SEQUENCES_TEXT = "chunk split tensor_split hsplit vsplit dsplit unbind tuple list meshgrid broadcast_tensors"
_SEQUENCES = frozenset(_SEQUENCES_TEXT.split())
"""The functions and methods that return a tuple or a list of tensors."""

_STATE_FUNCTIONS_TEXT = """
    _set_grad_enabled set_grad_enabled _enter_autocast _exit_autocast _enter_inference_mode
    _exit_inference_mode set_autocast_enabled set_autocast_dtype manual_seed set_default_dtype
"""
_STATE_FUNCTIONS = frozenset(_STATE_FUNCTIONS_TEXT.split())
_INPLACE_OPERATORS_TEXT = """
    iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor
    setitem delitem setattr __setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__
    __ipow__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ __imatmul__
"""
_INPLACE_OPERATORS = frozenset(_INPLACE_OPERATORS_TEXT.split())
_FLAGGED_INPLACE = {
    **dict.fromkeys(("relu", "relu6", "silu", "mish", "hardswish", "hardsigmoid", "selu"), 1),
    **dict.fromkeys(("elu", "celu", "leaky_relu"), 2),
    **dict.fromkeys(("hardtanh", "threshold", "dropout", "dropout1d", "dropout2d", "dropout3d"), 3),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), 3),
    "rrelu": 4,
}
"""The functions of ``torch.nn.functional`` with an ``inplace`` argument, and where it stands."""

_WRITES_STATE = {
    "batch_norm": (5, "training", False),
    "instance_norm": (5, "use_input_stats", True),
    "embedding": (3, "max_norm", False),
    "embedding_bag": (4, "max_norm", False),
}
"""The functions that write statistics or a weight if an argument says so: its place, name and default."""

_WRITES_STATE_ALWAYS_TEXT = """
    native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_update_stats
    fused_moving_avg_obs_fake_quant
"""
_WRITES_STATE_ALWAYS = frozenset(_WRITES_STATE_ALWAYS_TEXT.split())
_TORCH_PACKAGES = frozenset({"torch", "_operator", "builtins", "math"})

_IMMUTABLE = (int, float, complex, str, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool)
"""What nobody can write in place, and what holds no memory of a tensor; a ``bool`` is an ``int``."""

_CONTAINER_WRITES_TEXT = """
    append extend insert pop popitem remove clear update setdefault reverse
"""
_CONTAINER_WRITES = frozenset(_CONTAINER_WRITES_TEXT.split())
"""Methods of lists and dictionaries that change them; ``sort`` is one of tensors as well, which does not."""


class Writes:
    """The places at which the values of a graph are written, found once for the whole graph.

    Parameters
    ----------
    graph_module
        The module whose graph is read.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._position = {node: index for index, node in enumerate(graph_module.graph.nodes)}
        self._parent: dict[Node, Node] = {}
        self._state_changes: list[int] = []
        self._writes: dict[Node, list[int]] = defaultdict(list)
        self._holders: dict[int, Node] = {}
        self._scan()

    def epoch(self, value: Node, reader: Node) -> tuple[int, int]:
        """Return how often a value was written, and the state of torch changed, before ``reader`` reads it.

        Two readers with the same epoch read the same.
        """
        position = self._position[reader]
        writes = self._writes.get(self._class_of(value), [])
        return bisect_left(writes, position), bisect_left(self._state_changes, position)

    def same_state(self, a: Node, b: Node) -> bool:
        """Tell whether two nodes run with the same gradient, autocast and inference modes."""
        counts = (bisect_left(self._state_changes, self._position[node]) for node in (a, b))
        return next(counts) == next(counts)

    def is_written(self, value: Node) -> bool:
        """Tell whether a value, or what may share memory with it, is written anywhere in the graph."""
        return self._class_of(value) in self._writes

    @property
    def changes_state(self) -> bool:
        """Whether the graph changes the gradient, autocast or inference mode anywhere."""
        return bool(self._state_changes)

    def is_tensor_written(self, tensor: torch.Tensor) -> bool:
        """Tell whether the graph reads a parameter or buffer, and writes it or what shares memory with it."""
        holder = self._holders.get(storage_of(tensor)) if tensor.layout is torch.strided else None
        return holder is not None and self.is_written(holder)

    @cached_property
    def returned(self) -> frozenset[Node]:
        """The classes of what the graph returns."""
        output = self._graph_module.graph.output_node()
        return frozenset(self._class_of(value) for value in output.all_input_nodes)

    def is_returned(self, value: Node) -> bool:
        """Tell whether the graph returns a value, or what may share memory with it."""
        return self._class_of(value) in self.returned

    def _scan(self) -> None:
        written: list[tuple[Node, int]] = []
        holders = self._holders
        immutable = {node for node in self._position if isinstance(known_result(node), _IMMUTABLE)}
        for node, position in self._position.items():
            if called_name(node) in _STATE_FUNCTIONS:
                self._state_changes.append(position)
            writes = [value for value in written_inputs(node, self._graph_module) if value not in immutable]
            written.extend((value, position) for value in writes)
            if node.op == "get_attr" and (storage := _storage(node, self._graph_module)) is not None:
                self._join(node, holders.setdefault(storage, node))
            if writes or _may_return_view(node, self._graph_module):
                for value in node.all_input_nodes:
                    if value not in immutable:
                        self._join(node, value)
        for node, position in self._position.items() if holders else ():
            written.extend((holders[memory], position) for memory in self._own_writes(node) & holders.keys())
        for value, position in sorted(written, key=operator.itemgetter(1)):
            self._writes[self._class_of(value)].append(position)

    def _own_writes(self, node: Node) -> set[int]:
        """Return the memory of its own that a module may write, as batch norms in training do."""
        if node.op != "call_module":
            return set()
        module = self._graph_module.get_submodule(str(node.target))
        if not any(_may_write(part) or _keeps_state(part) for part in module.modules()):
            return set()
        tensors = (*module.parameters(), *module.buffers())
        return {storage_of(tensor) for tensor in tensors if tensor.layout is torch.strided}

    def _class_of(self, node: Node) -> Node:
        root = node
        while (parent := self._parent.get(root)) is not None:
            root = parent
        while node is not root:  # shorten the way for the next one
            self._parent[node], node = root, self._parent[node]
        return root

    def _join(self, a: Node, b: Node) -> None:
        a, b = self._class_of(a), self._class_of(b)
        if a is not b:
            self._parent[a] = b


def may_return_view(node: Node, graph_module: GraphModule) -> bool:
    """Tell whether the result of a node may share memory with one of its inputs."""
    return _may_return_view(node, graph_module) or bool(written_inputs(node, graph_module))


def _may_return_view(node: Node, graph_module: GraphModule) -> bool:
    """Tell it of a node that writes nothing in place."""
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        return type(module) not in _NEW_TENSOR_MODULES or bool(getattr(module, "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    name = called_name(node)
    if isinstance(node.target, torch._ops.OpOverload):
        return _overload_may_return_view(node.target)
    if name not in _NEW_TENSOR_FUNCTIONS or node.target in (max, min, operator.concat):
        return True  # those of Python return one of the objects that they are given, or hold them
    return name in ("add", "mul") and _joins_sequences(node)


def _overload_may_return_view(overload: torch._ops.OpOverload) -> bool:
    schema = overload._schema
    if any(result.alias_info is not None for result in schema.returns):
        return True
    # Torch holds operators to their schema that have a kernel of their own; a composite one may return what
    # it is given, as dropout does in evaluation mode.
    is_composite = overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    is_torchs = overload.namespace in ("aten", "prims")
    return not is_torchs or (is_composite and overload._opname not in _NEW_TENSOR_FUNCTIONS)


def _joins_sequences(node: Node) -> bool:
    """Tell whether a sum or a product may be one of sequences, which holds the tensors that they hold."""
    operands = (*node.args, *node.kwargs.values())
    if called_name(node) == "mul":
        return any(map(_may_be_sequence, operands))
    return all(_may_be_sequence(value) or _is_unknown_input(value) for value in operands)


def _is_unknown_input(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "placeholder" and known_result(value) is None


def _may_be_sequence(value: Any) -> bool:
    if not isinstance(value, Node):
        return isinstance(value, tuple | list)
    result = known_result(value)
    if result is not None:
        return isinstance(result, tuple | list) and not hasattr(
            result, "dtype"
        )  # ShapeProp's is a tuple itself
    name = called_name(value)
    if name in ("add", "mul"):
        return _joins_sequences(value)
    if name == "getitem":
        return isinstance(value.args[1], slice) and _may_be_sequence(value.args[0])
    return name in _SEQUENCES


def written_inputs(node: Node, graph_module: GraphModule) -> list[Node]:
    """Return the inputs that a node may write in place."""
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        return node.all_input_nodes if any(map(_may_write, module.modules())) else []
    if node.op == "call_method":
        name = called_name(node)
        writes = _writes_by_name(name) or name in _CONTAINER_WRITES
        return _first_input(node) if writes else _out_inputs(node)
    if node.op == "call_function":
        return _written_by_function(node)
    return []


def is_of_torch(function: object) -> bool:
    """Tell whether a function is one of torch, ``operator``, ``builtins`` or ``math``, known by its name."""
    module = getattr(function, "__module__", None) or "torch"
    return str(module).partition(".")[0] in _TORCH_PACKAGES


def _written_by_function(node: Node) -> list[Node]:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return node.all_input_nodes if target._schema.is_mutable else []
    if getattr(target, "only_reads", False):
        return []
    if not is_of_torch(target):
        return node.all_input_nodes  # somebody's own function may do anything
    name = called_name(node)
    flag_at = _FLAGGED_INPLACE.get(name)
    in_place = node.kwargs.get("inplace", False)
    if flag_at is not None and len(node.args) > flag_at:
        in_place = node.args[flag_at]
    if _writes_by_name(name) or in_place is not False:
        return _first_input(node)
    state_at, flag, default = _WRITES_STATE.get(name, (0, "", False))
    writes_state = flag and _flag(node, state_at, flag, default) not in (False, None)
    if writes_state or name in _WRITES_STATE_ALWAYS:
        return node.all_input_nodes
    return _out_inputs(node)


def _flag(node: Node, position: int, name: str, default: bool) -> object:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _writes_by_name(name: str) -> bool:
    return name in _INPLACE_OPERATORS or (
        name.endswith("_") and not name.endswith("__") and name not in ("and_", "or_", "not_", "is_")
    )


def _storage(node: Node, graph_module: GraphModule) -> int | None:
    """Return what tells the memory of an attribute, which each reading of it names by a node of its own."""
    parent, name = split_path(str(node.target))
    value = getattr(find_module(graph_module, parent), name, None)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return storage_of(value)


def _first_input(node: Node) -> list[Node]:
    return node.all_input_nodes[:1]


def _out_inputs(node: Node) -> list[Node]:
    out = node.kwargs.get("out")
    if out is None:
        return []
    values = out if isinstance(out, tuple | list) else (out,)
    return [value for value in values if isinstance(value, Node)]


def _keeps_state(module: nn.Module) -> bool:
    """Tell whether a module of torch may write its own parameters or buffers."""
    has_statistics = module.training and bool(module._buffers)
    return has_statistics or getattr(module, "max_norm", None) is not None


def _may_write(module: nn.Module) -> bool:
    """Tell whether a module may write what it reads; one of one's own, or with hooks, may do anything."""
    everywhere = torch.nn.modules.module
    hooked = (
        module._forward_hooks
        or module._forward_pre_hooks
        or everywhere._global_forward_hooks
        or everywhere._global_forward_pre_hooks
    )
    return bool(
        hooked or getattr(module, "inplace", False) or not type(module).__module__.startswith("torch.")
    )
