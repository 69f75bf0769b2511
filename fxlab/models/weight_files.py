"""Weights of a model in safetensors files, read when they are used."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.node import map_aggregate

from fxlab.base.checks import type_error
from fxlab.base.units import listed
from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.running.running import generators_kept
from fxlab.operators.node_info import dtype_name
from fxlab.values.lazy import LazyTensor, Source, as_parameter, deferred, is_lazy

_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FOUR_BITS = "F4"
"""The name that safetensors gives to numbers of four bits."""


def with_weights(graph_module: GraphModule, model: nn.Module, path: str | os.PathLike[str]) -> GraphModule:
    """Return a copy of a graph whose weights are read from files whenever they are used.

    ``model``: the graph's module on the meta device, whose tensors it holds; or the graph itself.
    ``path``: a folder with ``model.safetensors``, or with ``model.safetensors.index.json`` and its shards, or
    one such file. Raises TypeError if ``path`` is no path; ValueError if the model already has data; if a
    file is missing, broken or not of safetensors; or if a weight is missing or has another shape or dtype
    than the model's.
    """
    found = weights_of(model, path)
    tensors = {id(tensor): found[name] for name, tensor in _named(model).items() if name in found}
    result = share_tensors_copy(graph_module)
    for module in result.modules():
        holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, vars(module))
        for holder in holders:
            for name, value in holder.items():
                if isinstance(value, torch.Tensor):
                    holder[name] = tensors.get(id(value), value)
    for node in result.graph.nodes:
        node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _off_meta)
    result.recompile()
    rest = [name for name, tensor in _named(result).items() if tensor.is_meta]
    if rest:
        raise ValueError(f"weights: the graph holds tensors that the model does not name: {listed(rest)}.")
    return result


def weights_of(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Return lazy tensors of a model on the meta device by name; computed ones are in memory."""
    if not isinstance(path, str | os.PathLike):
        raise type_error("weights", "the path of a folder", path)
    held = {name: tensor for name, tensor in _named(model).items() if tensor.is_meta}
    if not held:
        raise ValueError(
            "weights: the model has weights already. Make it without: with torch.device('meta'): model = ..."
        )
    in_files = tensors_at(Path(path))
    pretrained: Any = getattr(sys.modules.get("transformers"), "PreTrainedModel", ())
    found = _as_pretrained(model, in_files, Path(path)) if isinstance(model, pretrained) else in_files
    # Tied weights are one tensor in the model, and so they are here. A file may have it under one of its
    # names; if it has several, the last counts, as in load_state_dict.
    named = {id(tensor): name for name, tensor in held.items() if name in found}
    _check(model, held, named, found, Path(path))
    made = {place: _like(found[name], held[name]) for place, name in named.items()}
    return {name: made[id(tensor)] for name, tensor in held.items()}


def _off_meta(value: Any) -> Any:
    """Return the CPU for the meta device among a call's arguments, and any other value unchanged."""
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "meta" else value


def are_in_files(graph_module: nn.Module) -> bool:
    """Tell whether weights of a module are read from files."""
    return any(map(is_lazy, _named(graph_module).values()))


def check_in_memory(graph_module: nn.Module) -> None:
    """Raise a ``ValueError`` if weights of a module are read from files: running it often would take long."""
    if are_in_files(graph_module):
        raise ValueError(
            "The weights of the session are in files, and are read to judge the model. To run it, load it "
            "(from_pretrained) and make a session of that."
        )


def files_of(graph_module: nn.Module) -> "list[_InFile]":
    """Return a tensor in each file from which weights of a module are read; ``check`` tells of its file."""
    lazy = (tensor for tensor in _named(graph_module).values() if isinstance(tensor, LazyTensor))
    origins = (origin for tensor in lazy for origin in tensor.snapshot().origins())
    return [*{origin.path: origin for origin in origins if isinstance(origin, _InFile)}.values()]


def _named(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _like(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a parameter or a plain tensor, like the one that it replaces."""
    if isinstance(tensor, nn.Parameter):
        if isinstance(value, LazyTensor):
            return as_parameter(value, requires_grad=tensor.requires_grad)
        return nn.Parameter(value.detach(), tensor.requires_grad)
    return value.detach()


@dataclass(frozen=True)
class _InFile(Source):
    """A tensor in a file, as the file was when it was found."""

    path: str
    name: str
    size: int
    changed: int
    """When the file was last written, in nanoseconds."""

    def check(self) -> None:
        """Raise a ``ValueError`` if the file has changed since."""
        now = _stat(Path(self.path))
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise ValueError(f"weights: {self.path} has changed since the session was made. Make a new one.")

    def read(self) -> torch.Tensor:
        """Read the bytes of this tensor."""
        self.check()
        with _opened(Path(self.path)) as file:
            if file.get_slice(self.name).get_dtype() == _FOUR_BITS:
                return _of_four_bits(Path(self.path), self.name)
            tensor: torch.Tensor = file.get_tensor(self.name)
            return tensor

    def text(self) -> str:
        """Return the names and the state of the file."""
        return f"{Path(self.path).name}:{self.name}:{self.size}:{self.changed}"


def tensors_at(path: Path) -> dict[str, LazyTensor]:
    """Return the tensors in a file of safetensors or in those of a folder, by name; no data is read."""
    if path.is_file():
        return _tensors_in(path)
    if not path.is_dir():
        raise ValueError(f"weights: {path} is neither a folder nor a file.")
    index = path / _INDEX
    if not index.exists():
        if (path / _ONE).exists():
            return _tensors_in(path / _ONE)
        there = sorted(file.name for file in path.iterdir())
        raise ValueError(
            f"weights: {path} has neither {_ONE} nor {_INDEX}. It has: {listed(there) or 'nothing'}. "
            "Save weights with model.save_pretrained(folder), or safetensors.torch.save_model."
        )
    shard_of = _weight_map(index)
    found: dict[str, LazyTensor] = {}
    for shard in sorted({*shard_of.values()}):
        if not (path / shard).exists():
            names = [name for name, file in shard_of.items() if file == shard]
            raise ValueError(
                f"weights: the shard {shard} is missing in {path}. {_INDEX} lists in it {listed(names)}."
            )
        found |= _tensors_in(path / shard)
    if lost := [name for name in shard_of if name not in found]:
        shards = sorted({shard_of[name] for name in lost})
        raise ValueError(f"weights: {listed(shards)} in {path} lacks {listed(lost)}, which {_INDEX} names.")
    return found


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if not all(isinstance(shard, str) and Path(shard).name == shard for shard in found.values()):
            raise ValueError("a shard is not the name of a file beside it")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"weights: {index} is no index of shards: {error}.") from error
    return {str(name): shard for name, shard in found.items()}


def _tensors_in(path: Path) -> dict[str, LazyTensor]:
    state = _stat(path)
    with _opened(path) as file:
        return {
            name: LazyTensor(
                _InFile(str(path.absolute()), name, state.st_size, state.st_mtime_ns), _on_meta(file, name)
            )
            for name in file.keys()  # noqa: SIM118 - the handle is no mapping
        }


def _on_meta(file: Any, name: str) -> torch.Tensor:
    """Return a tensor of the shape and dtype of one in a file; at most a single number is read."""
    part = file.get_slice(name)
    shape = part.get_shape()
    if part.get_dtype() == _FOUR_BITS:
        dtype, shape = torch.float4_e2m1fn_x2, [*shape[:-1], shape[-1] // 2]
    else:
        dtype = (part[:0] if shape and all(shape) else file.get_tensor(name)).dtype
    return torch.empty(shape, dtype=dtype, device="meta")


def _of_four_bits(path: Path, name: str) -> torch.Tensor:
    """Read numbers of four bits, two in a byte, by the header of a file: safetensors gives them no shape."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        facts = json.loads(file.read(length))[name]
        start, end = facts["data_offsets"]
        file.seek(8 + length + start)
        data = torch.frombuffer(bytearray(file.read(end - start)), dtype=torch.uint8)
    shape = facts["shape"]
    return data.reshape(*shape[:-1], shape[-1] // 2).view(torch.float4_e2m1fn_x2)


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise ValueError(f"weights: {path} cannot be read: {error.strerror}.") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        # Not mapped: a shard may be larger than the address space that the process may have.
        with safe_open(path, framework="pt", backend="pread") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"weights: {path} is broken, or no file of safetensors: {error}. Download or save it again."
        ) from error


def _as_pretrained(model: Any, in_files: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Return weights by a model's names, as ``from_pretrained`` renames, converts, ties and computes them."""
    try:
        with deferred(), generators_kept(), _quiet():
            loaded, info = type(model).from_pretrained(
                None,
                config=model.config,
                state_dict=dict(in_files),
                dtype=model.dtype,
                ignore_mismatched_sizes=True,  # reported below, like other errors
                output_loading_info=True,
            )
    except (RuntimeError, KeyError) as error:
        raise ValueError(f"weights: transformers cannot convert those of {path}: {error}") from error
    if other := sorted(info["mismatched_keys"]):
        raise _other_shape(*other[0])
    return {name: tensor for name, tensor in _named(loaded).items() if name not in info["missing_keys"]}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the reports and progress of transformers: a missing weight becomes an error here."""
    from transformers.utils import logging

    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()


def _check(
    model: nn.Module,
    held: Mapping[str, torch.Tensor],
    named: Mapping[int, str],
    found: Mapping[str, torch.Tensor],
    path: Path,
) -> None:
    """Raise the ``ValueError`` that says which weight does not fit."""
    if missing := [name for name, tensor in held.items() if id(tensor) not in named]:
        stored = model.state_dict()
        computed = [name for name in missing if name not in stored]
        more = f" No file has buffers with persistent=False: give the model tensors for {listed(computed)}."
        words = f"weights: {path} has no {listed(missing)}. It has: {listed(sorted(found))}."
        raise ValueError(words + more * bool(computed))
    for name, tensor in held.items():
        value = found.get(name, tensor)
        if value.shape != tensor.shape:
            raise _other_shape(name, value.shape, tensor.shape)
        if value.dtype != tensor.dtype:
            raise ValueError(
                f"weights: {name} is {dtype_name(value.dtype)} in {path} and {dtype_name(tensor.dtype)} in "
                "the model. Make the model with the dtypes that it has there; one of transformers with "
                "from_config(config, dtype=...), and without .to(dtype)."
            )


def _other_shape(name: str, there: Sequence[int], here: Sequence[int]) -> ValueError:
    return ValueError(
        f"weights: {name} has the shape {tuple(there)} in the files and {tuple(here)} in the model. Make the "
        "model from the configuration that the weights are of."
    )
