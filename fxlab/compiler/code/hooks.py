"""The private hooks of Inductor by which its generated code is heard of; all in this file."""

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch.fx import GraphModule

from fxlab.heard_calls import LOCK, Call, Patches
from fxlab.interrupts import RestoringStack
from fxlab.torch_private import OpOverload

_DEBUG = "torch._inductor.debug"
_LOST = "Which kernel a node went into is not known"


FALLS_BACK = "should_fallback"
"""In ``meta`` of a node, it tells Inductor to call ATen's kernel in place of its own lowering."""


@contextmanager
def generating(told: Callable[[Mapping[str, Sequence[str]], str], None]) -> Iterator[list[str]]:
    """Let Inductor generate code again; give the parts that this torch cannot tell, in words.

    Files of compiled kernels are kept on disk by their content, as always; graphs are not read from caches.
    ``told``: is called after the code of a graph is there: by the name of a kernel, the nodes that went into
    it; and the file of the code, empty if it is not known.
    """
    with LOCK, RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        # Level 1 notes more than the kernels, for which it compares graphs.
        patches.setting("torch._inductor.config", lost=_LOST, **{"trace.provenance_tracking_level": 2})
        hear_kernels(patches, told, lost=_LOST)
        yield patches.remarks


def hear_kernels(
    patches: Patches, told: Callable[[Mapping[str, Sequence[str]], str], None], *, lost: str
) -> None:
    """Tell of the kernels of each graph where Inductor notes them; ``lost`` is said where it cannot."""
    known: dict[str, Any] = {}
    file = ""

    def hear_module(call: Call) -> Any:
        nonlocal file
        module = call()
        file = getattr(module, "__file__", None) or ""
        return module

    def hear(call: Call) -> Any:
        # Looked up each time, as Inductor rebinds this global.
        found = getattr(import_module(_DEBUG), "_inductor_triton_kernel_to_post_grad_node_info", {})
        # Notes about the forward graph are still there after the backward graph.
        new = {kernel: names for kernel, names in found.items() if known.get(kernel) is not names}
        known.update(found)
        told({str(kernel): [str(name) for name in names] for kernel, names in new.items()}, file)
        return call()

    made = "torch._inductor.graph:GraphLowering.compile_to_module"
    patches.around(made, hear_module, "The time of kernels is not known")
    patches.around(f"{_DEBUG}:dump_inductor_provenance_info", hear, lost)


def why_no_fallback() -> str:
    """Return why Inductor cannot be told to leave single calls to ATen's kernels; empty if it can."""
    lowering = getattr(import_module("torch._inductor.graph"), "GraphLowering", None)
    run = getattr(getattr(lowering, "call_function", None), "__code__", None)
    # Torch has no flag for it: it reads the mark if the word stands in its code.
    known = FALLS_BACK in getattr(run, "co_consts", ()) and hasattr(_compile_fx(), _POST_GRAD)
    return (
        "" if known else f"this torch ({torch.__version__}) takes no nodes that fall back to ATen's kernels"
    )


def has_lowering(target: Any) -> bool:
    """Tell whether Inductor generates code of its own for an operator of torch, and calls no kernel of it."""
    known = import_module("torch._inductor.lowering").lowerings.get(target)
    is_own = isinstance(target, OpOverload) and target.namespace in ("aten", "prims")
    return is_own and known is not None and not getattr(known, "_is_fallback_handler", False)


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return the decompositions by which Inductor writes graphs in simpler operators."""
    select = getattr(import_module("torch._inductor.decomposition"), "select_decomp_table", dict)
    return dict(select())


def current_autograd_node() -> Any:
    """Return the function of autograd that runs in this thread; ``None`` outside of a backward pass."""
    return getattr(torch._C, "_current_autograd_node", lambda: None)()


def generated_for(graph_module: GraphModule, values: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Generate code for a graph as it is: none of the compiler's passes runs over it."""
    compile_fx = _compile_fx()
    with LOCK, torch.no_grad(), RestoringStack(mock.patch.object(compile_fx, _POST_GRAD, _no_pass)) as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        code: Callable[[list[Any]], Any] = compile_fx.compile_fx_inner(graph_module, list(values))
    return code


def _compile_fx() -> Any:
    return import_module("torch._inductor.compile_fx")


_POST_GRAD = "_recursive_post_grad_passes"


def _no_pass(*args: Any, **kwargs: Any) -> None:
    """Stand for a pass that is not run."""


def ahead_of_time_code(made: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs a shared library or package of AOTInductor, loaded on its first call."""

    @functools.cache
    def loaded() -> Callable[[list[torch.Tensor]], Any]:
        device = next((str(v.device) for v in inputs if isinstance(v, torch.Tensor)), "cpu")
        if isinstance(made, str):
            kind = device.partition(":")[0].capitalize()
            runner: Any = getattr(torch._C._aoti, f"AOTIModelContainerRunner{kind}")
            run: Callable[..., Any] = runner(made, 1, *([] if kind == "Cpu" else [device])).run
            return run
        package = import_module("torch._inductor.package")
        with tempfile.TemporaryDirectory() as folder:
            # The loader unpacks it to a folder of its own.
            path = package.package_aoti(f"{folder}/model.pt2", made)
            return package.load_package(path).loader.run  # type: ignore[no-any-return]

    def run(*values: Any) -> Any:
        return loaded()([value for value in values if isinstance(value, torch.Tensor)])

    return run


def why_no_code(device_types: set[str]) -> str:
    """Return why Inductor can generate no code for some devices; empty if nothing is known against it."""
    if "cpu" not in device_types:
        return ""
    try:
        import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception as error:
        words = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"there is no C++ compiler ({words}); install g++ or clang, or set CXX"
    return ""
