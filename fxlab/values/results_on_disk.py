"""Large results in temporary files, which the system keeps out of memory as it does files of weights.

Transformations of a graph whose weights are in files run so, as their new weights may not fit in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.fx import GraphModule

from fxlab.base.torch_private import TorchDispatchMode, pytree
from fxlab.values.tensors import is_strided_on_cpu, storage_of

_KEY = "weight_files"
_LARGE = 2**20


@dataclass(frozen=True)
class WeightFile:
    """A file of weights, as it was when it was mapped into memory."""

    path: str
    size: int
    changed: int
    """The time of its last write, in nanoseconds."""

    @classmethod
    def of(cls, path: Path) -> WeightFile:
        """Look at a file; raises ``ValueError`` if it cannot be read."""
        try:
            state = path.stat()
        except OSError as error:
            raise ValueError(f"weights: {path} cannot be read: {error.strerror}.") from error
        return cls(str(path.absolute()), state.st_size, state.st_mtime_ns)


def note_files(graph_module: GraphModule, files: Iterable[WeightFile]) -> None:
    """Note the files in which the weights of a graph are; its copies keep the note."""
    if files := tuple(files):
        graph_module.meta[_KEY] = files


def check_files(graph_module: GraphModule) -> None:
    """Raise a ``ValueError`` if a file of the weights of a graph has changed since it was mapped."""
    for file in graph_module.meta.get(_KEY, ()):
        if WeightFile.of(Path(file.path)) != file:
            raise ValueError(f"weights: {file.path} has changed since the session was made. Make a new one.")


def results_on_disk(graph_module: GraphModule) -> AbstractContextManager[Any]:
    """Return a context for a change of a graph, in which large results are in files if its weights are."""
    return on_disk() if _KEY in graph_module.meta else nullcontext()


def on_disk() -> AbstractContextManager[Any]:
    """Return a context in which each large new result on the CPU is in a temporary file."""
    mode: Any = _OnDisk()  # type: ignore[no-untyped-call]
    return cast(AbstractContextManager[Any], mode)


class _OnDisk(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves each large new result of an operation on the CPU to a temporary file, which goes with it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        result = func(*args, **(kwargs or {}))
        given = {storage_of(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if is_strided_on_cpu(leaf)}

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            is_large = is_strided_on_cpu(tensor) and tensor.untyped_storage().nbytes() >= _LARGE
            return _in_file(tensor) if is_large and storage_of(tensor) not in given else tensor

        return pytree.tree_map_only(torch.Tensor, moved, result)


def _in_file(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    with tempfile.NamedTemporaryFile(prefix="fxlab-") as file:
        try:  # a full disk is an error here; a later write into the mapping would end the process
            os.posix_fallocate(file.fileno(), 0, storage.nbytes())
        except OSError as error:
            words = f"{tempfile.gettempdir()} lacks {storage.nbytes():,} bytes for a new tensor; set TMPDIR"
            raise OSError(error.errno, f"{words} to a folder on a larger disk") from error
        mapped: Any = torch.UntypedStorage.from_file(file.name, True, storage.nbytes())
    mapped.copy_(storage)
    made = torch.empty(0, dtype=tensor.dtype, device="cpu")
    return made.set_(mapped, tensor.storage_offset(), tensor.shape, tensor.stride())
