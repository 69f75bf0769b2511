"""Private and experimental names of torch that the core uses: each is looked up here, once.

None of them is needed to read, transform and draw a graph. A torch that has lost one loses the feature named
next to it, and ``fxlab doctor`` says so. Names that tracing needs are in
:mod:`fxlab.tracing.torch_private`, those of the compiler in the files ``hooks.py`` of ``fxlab/compiler``.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn
from torch.fx.graph import CodeGen
from torch.utils import _pytree

MISSING: dict[str, str] = {}
"""The names that this torch does not have -> the loss without them."""
_CODE = "code of a graph is torch's own, in which the name of a node may shadow another"
_PICKLES = "pickles of graphs lose shapes and dtypes"

pytree = _pytree
"""Nested inputs and outputs. Torch's own code for graphs imports it, so it is there."""


def private_name(path: str, lost: str, instead: Any) -> Any:
    """Return a private object of torch by its full name, or a stand-in, with the loss without it."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ImportError):
        MISSING[path] = lost
        return instead


if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.fx.graph import _PyTreeCodeGen
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

    PyTreeCodeGen: TypeAlias = _PyTreeCodeGen
    AnyBatchNorm: TypeAlias = _BatchNorm
    AnyConv: TypeAlias = _ConvNd
    AnyConvTranspose: TypeAlias = _ConvTransposeNd
else:

    class _NoMode:
        """A mode that cannot be entered."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError(
                f"{type(self).__name__}: torch {torch.__version__} does not have the modes that this needs. "
                "`fxlab doctor` lists what it lacks. Use a torch that fxlab is tested with."
            )

    # Classes of public objects, which have no public names themselves.
    OpOverload = type(torch.ops.aten.add.Tensor)
    OpOverloadPacket = type(torch.ops.aten.add)
    HigherOrderOperator = type(torch.ops.higher_order.cond).__base__
    AnyBatchNorm = nn.BatchNorm1d.__base__
    AnyConv = nn.Conv1d.__base__
    AnyConvTranspose = nn.ConvTranspose1d.__base__
    FakeTensor = private_name(
        "torch._subclasses.fake_tensor.FakeTensor",
        "fake tensors are not told from others",
        type("NoFakeTensor", (torch.Tensor,), {}),
    )
    FakeTensorMode = private_name("torch._subclasses.fake_tensor.FakeTensorMode", _PICKLES, _NoMode)
    TorchDispatchMode = private_name(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "there are no verdicts, and no counts of FLOPs and memory",
        _NoMode,
    )
    PyTreeCodeGen = private_name(
        "torch.fx.graph._PyTreeCodeGen", _CODE, type("NoPyTreeCodeGen", (CodeGen,), {})
    )


custom_builtins: dict[str, Any] = private_name("torch.fx.graph._custom_builtins", _CODE, {})
illegal_names: dict[str, Any] = private_name("torch.fx.graph._illegal_names", _CODE, {})
is_from_torch: Callable[[Any], bool] = private_name(
    "torch.fx.graph._is_from_torch", _CODE, lambda target: False
)


qualified_name: Callable[[Any], str] = private_name(
    "torch.fx.node._get_qualified_name",
    _CODE,
    lambda function: f"{function.__module__}.{function.__name__}".replace("torch._ops", "torch.ops"),
)
can_write_code = _CODE not in MISSING.values()
"""Whether torch has every name that writing the code of graphs needs."""

modes_disabled: Callable[[], Any] = private_name(
    "torch.utils._python_dispatch._disable_current_modes",
    "modes around a call of fxlab see what it computes",
    nullcontext,
)


_TRANSFORMS = "a graph of Dynamo that raises inside a transform of torch.func leaves the transform on"
outside_transforms: Callable[[], Any] = private_name("torch._C._DisableFuncTorch", _TRANSFORMS, nullcontext)
"""Makes tensors that the transforms of ``torch.func`` around the call do not wrap."""
transforms_depth: Callable[[], int] = private_name(
    "torch._C._functorch.get_dynamic_layer_stack_depth", _TRANSFORMS, lambda: 0
)
leave_transforms: Callable[[int], Any] = private_name(
    "torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth", _TRANSFORMS, lambda depth: None
)
is_of_transform: Callable[[torch.Tensor], bool] = private_name(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "a tensor that a transform of torch.func has left behind is taken for one with numbers",
    lambda tensor: False,
)
are_saved_hooks_allowed: Callable[[], bool] = private_name(
    "torch._C._autograd._saved_tensors_hooks_is_enabled", _TRANSFORMS, lambda: False
)
allow_saved_hooks: Callable[[], Any] = private_name(
    "torch._C._autograd._saved_tensors_hooks_enable", _TRANSFORMS, lambda: None
)


class _UnknownMode:
    """Any mode; no two are equal, so that nothing is remembered under one."""


_MODES = "verdicts are not remembered", lambda: [_UnknownMode()]
function_modes: Callable[[], list[Any]] = private_name(
    "torch.overrides._get_current_function_mode_stack", *_MODES
)
dispatch_modes: Callable[[], list[Any]] = private_name(
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack", *_MODES
)
DeviceContext: Any = private_name(
    "torch.utils._device.DeviceContext", "verdicts call torch.set_default_device a mode", ()
)
"""The mode of ``torch.set_default_device``; an empty tuple is no class of anything."""


boolean_dispatched: Mapping[Any, dict[str, Any]] = private_name(
    "torch._jit_internal.boolean_dispatched", "patterns do not match F.max_pool2d and its like", {}
)
"""The functions that call one of two others, such as ``max_pool2d``, and these."""


def process_group(name: str) -> Any:
    """Return the process group that graphs call by a name; ``None`` if this process has none of that name."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    path = "torch.distributed.distributed_c10d._resolve_process_group"
    try:
        return private_name(path, "process groups are told apart by numbers alone", lambda name: None)(name)
    except (RuntimeError, ValueError):
        return None


def statically_known_true(condition: bool | torch.SymBool) -> bool:
    """Tell whether a condition holds for all sizes, without a guard on one."""
    if isinstance(condition, bool):
        return condition
    return _told("torch.fx.experimental.symbolic_shapes.statically_known_true", condition)


def is_concrete_int(size: int | torch.SymInt) -> bool:
    """Tell whether a size is a number, also as a symbol."""
    return isinstance(size, int) or _told("torch.fx.experimental.symbolic_shapes.is_concrete_int", size)


def _told(path: str, size: Any) -> bool:
    """Ask torch about a symbolic size; only graphs that have some load the module, with sympy."""
    return bool(private_name(path, "passes leave symbolic sizes alone", lambda size: False)(size))


def without_tensors(value: object) -> bool:
    """Tell whether a value keeps account of symbolic sizes or fake tensors, and so holds no tensor itself."""
    return isinstance(value, FakeTensorMode) or type(value).__name__ == "ShapeEnv"


def dumped(values: Any) -> bytes | None:
    """Return fake tensors as bytes, or ``None`` if torch cannot pickle them; loads Dynamo and Inductor."""
    pickler = _graph_pickler()
    try:
        data: bytes | None = None if pickler is None else pickler.dumps(values)
        return data
    except Exception:  # shapes and dtypes are a help to the reader; a graph pickles without them
        return None


def loaded(data: bytes) -> Any:
    """Return the value that :func:`dumped` made bytes of, or ``None`` if it cannot be read here."""
    pickler = _graph_pickler()
    env = private_name("torch.fx.experimental.symbolic_shapes.ShapeEnv", _PICKLES, None)
    if pickler is None or env is None or FakeTensorMode.__module__ == __name__:
        return None
    try:
        return pickler.loads(data, FakeTensorMode(shape_env=env()))
    except (ImportError, AttributeError):  # a size knows a class whose source is not here
        return None


def _graph_pickler() -> Any:
    return private_name("torch.fx._graph_pickler.GraphPickler", _PICKLES, None)
