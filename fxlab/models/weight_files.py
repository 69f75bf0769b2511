"""Weights of a model in safetensors files, mapped into memory: the system reads them as they are used.

Sessions take models on the meta device with such weights, and tables of weights compare them.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.node import map_aggregate

from fxlab.base.checks import type_error
from fxlab.base.words import listed
from fxlab.models.graph_modules.copies import deep_copy, share_tensors_copy
from fxlab.models.running.running import generators_kept
from fxlab.operators.node_info import dtype_name
from fxlab.values.results_on_disk import WeightFile, on_disk

_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_IN_ONE_THREAD = "HF_DEACTIVATE_ASYNC_LOAD"
_FOUR_BITS = "F4"
"""The name that safetensors gives to numbers of four bits."""


def with_weights(model: nn.Module, path: str | os.PathLike[str]) -> tuple[nn.Module, list[WeightFile]]:
    """Return a copy of a model, or of a graph, with weights in files, and the files.

    ``model``: a module on the meta device. ``path``: a folder with ``model.safetensors``, or with
    ``model.safetensors.index.json`` and its shards, or one such file. Raises TypeError if ``path`` is no
    path; ValueError if the model already has data; if a file is missing, broken or not of safetensors; or if
    a weight is missing or has another shape or dtype than the model's.
    """
    found = weights_of(model, path)
    memo: dict[int, Any] = {id(tensor): found.get(name, tensor) for name, tensor in _named(model).items()}
    files = [WeightFile.of(file) for file in _files_at(Path(path))]
    if not isinstance(model, GraphModule):
        return deep_copy(model, memo), files
    result = share_tensors_copy(model, own=lambda tensor: id(tensor) in memo, memo=memo)
    for node in result.graph.nodes:
        node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _off_meta)
    result.recompile()
    return result, files


def weights_of(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Return weights in files by the names of a model on the meta device; computed ones are in memory."""
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


def _named(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _like(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a parameter or a plain tensor, like the one that it replaces."""
    value = value.detach()
    return nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


def tensors_at(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file of safetensors or in those of a folder, by name; no data is read."""
    found: dict[str, torch.Tensor] = {}
    for file, names in _files_at(path).items():
        found |= (there := _tensors_in(file))
        if lost := [name for name in names if name not in there]:
            raise ValueError(f"weights: {file.name} in {path} lacks {listed(lost)}, which {_INDEX} names.")
    return found


def _files_at(path: Path) -> dict[Path, list[str]]:
    """Return the files of weights at a path, with the names that an index lists for each."""
    if path.is_file():
        return {path: []}
    if not path.is_dir():
        raise ValueError(f"weights: {path} is neither a folder nor a file.")
    index = path / _INDEX
    if not index.exists():
        if (path / _ONE).exists():
            return {path / _ONE: []}
        there = sorted(file.name for file in path.iterdir())
        raise ValueError(
            f"weights: {path} has neither {_ONE} nor {_INDEX}. It has: {listed(there) or 'nothing'}. "
            "Save weights with model.save_pretrained(folder), or safetensors.torch.save_model."
        )
    shards: dict[Path, list[str]] = {}
    for name, shard in sorted(_weight_map(index).items(), key=lambda item: item[1]):
        shards.setdefault(path / shard, []).append(name)
    for file, names in shards.items():
        if not file.exists():
            raise ValueError(
                f"weights: the shard {file.name} is missing in {path}. {_INDEX} lists in it {listed(names)}."
            )
    return shards


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if not all(isinstance(shard, str) and Path(shard).name == shard for shard in found.values()):
            raise ValueError("a shard is not the name of a file beside it")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"weights: {index} is no index of shards: {error}.") from error
    return {str(name): shard for name, shard in found.items()}


def _tensors_in(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {
                name: _of_four_bits(path, name)
                if file.get_slice(name).get_dtype() == _FOUR_BITS
                else file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 - the handle is no mapping
            }
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"weights: {path} is broken, or no file of safetensors: {error}. Download or save it again."
        ) from error


def _of_four_bits(path: Path, name: str) -> torch.Tensor:
    """Return numbers of four bits, two in a byte, by a file's header: safetensors gives no shape."""
    data = torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)
    length = int.from_bytes(data[:8].numpy().tobytes(), "little")
    facts = json.loads(data[8 : 8 + length].numpy().tobytes())[name]
    (start, end), shape = facts["data_offsets"], facts["shape"]
    return data[8 + length :][start:end].reshape(*shape[:-1], shape[-1] // 2).view(torch.float4_e2m1fn_x2)


def _as_pretrained(model: Any, in_files: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Return weights by a model's names, as ``from_pretrained`` renames, converts, ties and computes them."""
    try:
        with on_disk(), generators_kept(), _quiet():
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
    """Silence the reports and progress of transformers: a missing weight becomes an error here.

    It loads in this thread, whose modes those of its own threads would not have.
    """
    from transformers.utils import logging

    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    in_one_thread = os.environ.get(_IN_ONE_THREAD)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ[_IN_ONE_THREAD] = "1"
    try:
        yield
    finally:
        del os.environ[_IN_ONE_THREAD]
        if in_one_thread is not None:
            os.environ[_IN_ONE_THREAD] = in_one_thread
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
