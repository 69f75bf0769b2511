"""Private names of torch that tracing and steps need, each with its purpose; the core's are in ``base/``.

A torch that has lost one still imports this package. Any use of the name raises a :class:`fxlab.TraceError`
that says so, and so does :func:`fxlab.symbolic_trace` before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from fxlab.tracing.report import TraceError

_SYMBOLS = "fxlab.tracing records sizes as symbols with it"
_FAKES = "fxlab.tracing runs models on tensors without data with it"

NEEDED = {
    "torch._dispatch.python.enable_python_dispatcher": _FAKES,
    "torch._dispatch.python.no_python_dispatcher": _FAKES,
    "torch._dynamo.source.ConstantSource": _SYMBOLS,
    "torch._dynamo.source.TensorProperty": _SYMBOLS,
    "torch._dynamo.source.TensorPropertySource": _SYMBOLS,
    "torch._functorch.apis": "fxlab.tracing records torch.vmap with it",
    "torch._functorch.config": "fxlab.tracing lets data come along with it",
    "torch._functorch.eager_transforms": "fxlab.tracing sees derivatives inside of models with it",
    "torch._guards.Source": _SYMBOLS,
    "torch._higher_order_ops.utils.registered_hop_fake_fns": "fxlab.tracing records torch.cond with it",
    "torch._subclasses.fake_tensor.DataDependentOutputException": _FAKES,
    "torch._subclasses.fake_tensor.DynamicOutputShapeException": _FAKES,
    "torch._subclasses.fake_tensor.FakeTensor": _FAKES,
    "torch._subclasses.fake_tensor.FakeTensorMode": _FAKES,
    "torch._subclasses.fake_tensor.UnsupportedOperatorException": _FAKES,
    "torch._subclasses.fake_tensor.in_kernel_invocation_manager": _FAKES,
    "torch._subclasses.fake_tensor.unset_fake_temporarily": _FAKES,
    "torch.fx.experimental.sym_node.SymNode": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes.DimDynamic": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes._constrain_range_for_size": _SYMBOLS,
    "torch.fx.experimental.symbolic_shapes.canonicalize_bool_expr": _SYMBOLS,
    "torch.fx.graph._PyTreeCodeGen": "fxlab.tracing reads programs of torch.export with it",
    "torch.utils._python_dispatch.TorchDispatchMode": "fxlab.tracing records on real inputs with it",
    "torch.utils._python_dispatch._disable_current_modes": "fxlab.tracing asks caches of models with it",
    "torch.utils._sympy.functions": _SYMBOLS,
    "torch.utils._sympy.interp._run_sympy_handler": _SYMBOLS,
    "torch.utils._sympy.reference.PythonReferenceAnalysis": _SYMBOLS,
}
"""Full name -> its use. Without the underscore, the last part is its name here."""

_STEPS = "fxlab.trace_step records a training step with it"

FOR_STEPS = {
    "torch._disable_functionalization": _STEPS,
    "torch._enable_functionalization": _STEPS,
    "torch._from_functional_tensor": _STEPS,
    "torch._is_functional_tensor": _STEPS,
    "torch._mirror_autograd_meta_to": _STEPS,
    "torch._sync": _STEPS,
    "torch._to_functional_tensor": _STEPS,
    "torch.autograd._get_sequence_nr": _STEPS,
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": _STEPS,
    "torch.fx.experimental.proxy_tensor.make_fx": _STEPS,
    "torch.utils.checkpoint._CheckpointFrame": _STEPS,
}
"""Full name -> its use, as above. Models are traced without them."""

FOR_FLEX = {
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": (
        "fxlab.tracing records FlexAttention with it"
    )
}
"""The same for models that call it."""

OVERRIDDEN = {
    "torch._subclasses.fake_tensor.FakeTensorMode": (
        "_cached_dispatch_impl",
        "_dispatch_impl",
        "_maybe_infer_fake_kernel_from_pytree_out",
        "can_run_unsafe_fallback",
        "dispatch",
    ),
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": (
        "_evaluate_expr",
        "_get_user_frame",
        "_log_real_tensor_propagation",
        "create_symbol",
        "evaluate_sym_node",
        "guard_or_defer_runtime_assert",
    ),
}
"""Class -> its methods that fxlab overrides: torch has to call them."""


class _Missing(type):
    """The class of stand-ins for names that torch lacks; they may be named anywhere, and used nowhere."""

    use: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _error(f"{cls.__module__}.{cls.__name__}", cls.use)

    def __getattr__(cls, name: str) -> Any:
        # Names of Python's own protocols must look absent, or the class would seem to follow them all.
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


def needed(path: str, use: str) -> Any:
    """Return a private object of torch by its full name, or a stand-in that raises when it is used.

    ``path``: the module, and the name in it. ``use``: a sentence about its use, for the error.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ImportError):
        # It is caught, and is the base of other classes, at most.
        return _Missing(name, (Exception,), {"__module__": module, "use": use})


def require_all() -> None:
    """Raise the :class:`TraceError` that names the first private name which tracing needs and torch lacks."""
    _require(NEEDED)


@contextmanager
def one_fake_mode() -> Iterator[None]:
    """Note the shapes of all nodes that make_fx records in one mode, which halves the time."""
    try:
        guards = import_module("torch._guards")
        tracing, context = guards.tracing, guards.TracingContext(FakeTensorMode(allow_fallback_kernels=True))
    except (AttributeError, ImportError):
        yield
        return
    with tracing(context):
        yield


def require_for_steps() -> None:
    """Raise the :class:`TraceError` that names the first private name which steps need and torch lacks."""
    _require(FOR_STEPS)
    _require({path: use for path, use in NEEDED.items() if "fake_tensor" in path or "ShapeEnv" in path})


def _require(names: dict[str, str]) -> None:
    for path, use in names.items():
        found = globals()[_alias(path)]
        if isinstance(found, _Missing):
            raise _error(path, use)
        for method in OVERRIDDEN.get(path, ()):
            if not hasattr(found, method):
                raise _error(f"{path}.{method}", use)


def _error(path: str, use: str) -> TraceError:
    return TraceError(
        f"torch {torch.__version__} does not have {path}; {use}. Take a torch that fxlab is tested with, or "
        "trace by torch.export or torch.fx.symbolic_trace: fxlab takes their graphs."
    )


def _alias(path: str) -> str:
    return path.rpartition(".")[2].removeprefix("_")


if TYPE_CHECKING:
    from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
    from torch._dispatch.python import no_python_dispatcher as no_python_dispatcher
    from torch._dynamo._trace_wrapped_higher_order_op import (
        TransformGetItemToIndex as TransformGetItemToIndex,
    )
    from torch._dynamo.source import ConstantSource as ConstantSource
    from torch._dynamo.source import TensorProperty as TensorProperty
    from torch._dynamo.source import TensorPropertySource as TensorPropertySource
    from torch._functorch import apis as apis
    from torch._functorch import config as config
    from torch._functorch import eager_transforms as eager_transforms
    from torch._guards import Source as Source
    from torch._higher_order_ops.utils import registered_hop_fake_fns as registered_hop_fake_fns
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import UnsupportedOperatorException as UnsupportedOperatorException
    from torch._subclasses.fake_tensor import in_kernel_invocation_manager as in_kernel_invocation_manager
    from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
    from torch.fx.experimental.sym_node import SymNode as SymNode
    from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
    from torch.fx.experimental.symbolic_shapes import (
        GuardOnDataDependentSymNode as GuardOnDataDependentSymNode,
    )
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext as StatelessSymbolicContext
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size
    from torch.fx.experimental.symbolic_shapes import canonicalize_bool_expr as canonicalize_bool_expr
    from torch.fx.graph import _PyTreeCodeGen
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._sympy import functions as functions
    from torch.utils._sympy.interp import _run_sympy_handler
    from torch.utils._sympy.reference import PythonReferenceAnalysis as PythonReferenceAnalysis
    from torch.utils.checkpoint import _CheckpointFrame

    disable_functionalization: Any
    enable_functionalization: Any
    from_functional_tensor: Any
    get_proxy_mode: Any
    get_sequence_nr: Any
    is_functional_tensor: Any
    make_fx: Any
    mirror_autograd_meta_to: Any
    sync: Any
    to_functional_tensor: Any
    CheckpointFrame: TypeAlias = _CheckpointFrame
    PyTreeCodeGen: TypeAlias = _PyTreeCodeGen
    constrain_range_for_size = _constrain_range_for_size
    disable_current_modes = _disable_current_modes
    run_sympy_handler = _run_sympy_handler
else:
    globals().update(
        {_alias(path): needed(path, use) for path, use in (NEEDED | FOR_STEPS | FOR_FLEX).items()}
    )
