"""The private hooks of Inductor by which compiles generate code, also ahead of time, and run it."""

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from fxlab.base.heard_calls import LOCK, Patches
from fxlab.base.interrupts import RestoringStack


@contextmanager
def generating() -> Iterator[None]:
    """Let Inductor generate code again: no graph is read from its caches, only compiled kernels are."""
    with LOCK, RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        yield


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
