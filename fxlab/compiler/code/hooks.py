"""The private hooks of Inductor by which compiles generate code."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from fxlab.base.heard_calls import LOCK, Patches
from fxlab.base.interrupts import RestoringStack


@contextmanager
def generating() -> Iterator[None]:
    """Let Inductor generate code again: no graph is read from its caches, only compiled kernels are."""
    with LOCK, RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        yield


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
