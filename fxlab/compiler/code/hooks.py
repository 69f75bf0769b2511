"""The private hooks of Inductor by which its generated code is heard of; all in this file."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from fxlab.compiler.heard_calls import Call, Patches
from fxlab.compiler.hooks import LOCK
from fxlab.interrupts import RestoringStack

_DEBUG = "torch._inductor.debug"
_LOST = "Which kernel a node went into is not known"


@contextmanager
def generating(told: Callable[[Mapping[str, Sequence[str]]], None]) -> Iterator[list[str]]:
    """Let Inductor generate code anew, and tell of the kernels of each graph.

    Files of compiled kernels are kept on disk by their content, as always; graphs are not read from caches.

    Parameters
    ----------
    told
        Is called after the code of a graph is there: by the name of a kernel, the nodes that went into it.

    Yields
    ------
    list of str
        What cannot be told with this torch, in words.
    """
    with LOCK, RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        # Level 1 notes more than the kernels, for which it compares graphs.
        patches.setting("torch._inductor.config", lost=_LOST, **{"trace.provenance_tracking_level": 2})
        hear_kernels(patches, told, lost=_LOST)
        yield patches.remarks


def hear_kernels(patches: Patches, told: Callable[[Mapping[str, Sequence[str]]], None], *, lost: str) -> None:
    """Tell of the kernels of each graph where Inductor notes them; ``lost`` is said where it cannot."""

    def hear(call: Call) -> Any:
        found = getattr(import_module(_DEBUG), "_inductor_triton_kernel_to_post_grad_node_info", {})
        told({str(kernel): [str(name) for name in names] for kernel, names in found.items()})
        return call()

    patches.around(f"{_DEBUG}:dump_inductor_provenance_info", hear, lost)


def ahead_of_time_code(made: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs what AOTInductor has made, which is loaded when it is first called.

    Parameters
    ----------
    made
        The name of a shared library, or the list of files of a package.
    inputs
        What it was compiled for.
    """

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
