"""The model that a command is about, made by code, built or loaded; its inputs, and its graph."""

from __future__ import annotations

import argparse
import logging
import pickle
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import CommandError, ExitCode, ends_with
from fxlab.front_desk import named_models

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.fx import GraphModule


DTYPES = ("float32", "float64", "bfloat16", "float16")

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_SIZES = re.compile(r"\d+(x\d+)*(,\d+(x\d+)*)*")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")
_CHANGES = ("dtype", "device", "meta", "random_weights")
"""Options that would change the contents of a file."""


@dataclass(frozen=True)
class Source:
    """A model, and the facts known of it before it is traced."""

    model: nn.Module
    words: str
    """Its description and its origin."""
    inputs: Any = None
    """The inputs to run it on, if they come with it."""

    @property
    def has_data(self) -> bool:
        """Whether it has weights, and its inputs numbers, so that it can be run."""
        from fxlab.values.tensors import tensor_leaves

        tensors = *self.model.parameters(), *self.model.buffers(), *tensor_leaves(self.inputs)
        return not any(tensor.is_meta for tensor in tensors)


def loaded(options: argparse.Namespace) -> Source:
    """Return the model that ``options.model`` names; ``CommandError`` if there is none."""
    path = Path(options.model)
    if named_models.is_named_in_code(options.model) and not path.exists():
        return _of_python(options)
    if path.suffix == ".pt2" and path.is_file():
        return _exported_program(path, options)
    if path.suffix in _PICKLES and path.is_file():
        raise CommandError(
            f"{path}: loading a pickle can run code that the file brings, so it is not read. Name a function "
            "that returns the model (file.py:name); for weights alone, the directory that has config.json "
            "beside them."
        )
    if path.is_dir() and not (path / "config.json").is_file():
        raise CommandError(f"{path}: there is no config.json in this directory.")
    if path.is_file() and path.suffix != ".json":
        raise CommandError(
            f"{path}: expected a config.json, a directory with one, a program saved by torch.export.save "
            "(.pt2), the name of a model on the Hugging Face hub, or file.py:name for one that Python makes."
        )
    is_file_name = path.suffix in (".json", ".pt2", ".py", *_PICKLES)
    if not path.exists() and (is_file_name or not _HUB_NAME.fullmatch(options.model)):
        raise CommandError(f"{path}: there is no such file or directory.")
    return _of_transformers(path, options)


def given_inputs(
    path: Path, device: torch.device, option: str = "--inputs", model: nn.Module | None = None
) -> Any:
    """Read inputs: ``.safetensors`` or ``.npz`` by name, a file of ``torch.save``, code, or sizes (2x8).

    Sizes that are joined by commas alone are those of one tensor, if the model takes one input alone.
    """
    import torch

    from fxlab.base.torch_private import pytree
    from fxlab.models.running.arguments import takes_one_input

    if _SIZES.fullmatch(str(path)):
        text = str(path)
        if "x" not in text and model is not None and takes_one_input(model):
            text = text.replace(",", "x")
        sizes = [[int(size) for size in one.split("x")] for one in text.split(",")]
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(one, generator=generator, device="cpu").to(device) for one in sizes)
    if named_models.is_named_in_code(str(path)):
        with ends_with(ExitCode.BAD_USAGE, ValueError):
            given = named_models.made_in_code(str(path), 0)
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), given)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            inputs: Any = load_file(path)
        elif path.suffix == ".npz":
            import numpy as np

            # Inputs may come from anybody, and a pickle may run code.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        else:
            inputs = torch.load(path, weights_only=True)
    except OSError as error:
        raise CommandError(f"{error} ({option} {path})") from error
    except Exception as error:  # a file of another kind raises anything
        words = "" if isinstance(error, pickle.UnpicklingError) else f" ({str(error).partition(chr(10))[0]})"
        raise CommandError(
            f"{option} {path}: expected a .safetensors or .npz file, or what torch.save writes of tensors, "
            f"numbers, strings, lists and mappings. This is none, is damaged, or holds other objects{words}."
        ) from error
    if not isinstance(inputs, Mapping | tuple | list | torch.Tensor):
        raise CommandError(
            f"{option} {path}: expected a mapping of names to tensors, a tuple or one tensor, "
            f"got {type(inputs).__name__}."
        )
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)


def _of_python(options: argparse.Namespace) -> Source:
    import torch

    from fxlab.front_desk.sources import source_made

    _refuse(
        "code that makes a model chooses this itself", options, "architecture", "attention", "random_weights"
    )
    device = torch.device("meta") if options.meta else device_of(options)
    with ends_with(ExitCode.BAD_USAGE, ValueError), torch.random.fork_rng(), device:
        made = named_models.made_in_code(options.model, options.seed)
    with ends_with(ExitCode.BAD_USAGE, Exception, hint=f"({options.model})"):
        found = source_made(made)
        module = _as_asked(found.module, options, device)
    return Source(module, f"{type(module).__name__}, {options.model}", found.inputs)


def _exported_program(path: Path, options: argparse.Namespace) -> Source:
    from fxlab.front_desk.sources import source_of
    from fxlab.tracing.exported.saved_program import MayRunCodeError, load_program

    kind = "an exported program"
    _refuse(f"{kind} is taken as it is", options, *_CHANGES)
    try:
        program = load_program(path, trusted=options.trust)
    except MayRunCodeError as error:
        raise CommandError(
            f"{path}: loading {kind} can run code that the file brings ({error.why}). If you trust where it "
            "comes from, give --trust."
        ) from error
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    with ends_with(ExitCode.BAD_USAGE, Exception, hint=f"({path})"):
        found = source_of(program)
    return Source(found.module, f"exported program, {path}", found.inputs)


def _refuse(why: str, options: argparse.Namespace, *names: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given:
        raise CommandError(f"{', '.join(given)}: {why}.")


def _of_transformers(path: Path, options: argparse.Namespace) -> Source:
    import torch

    try:
        import transformers
    except ModuleNotFoundError as error:
        raise CommandError(
            f"{options.model}: a configuration, or the name of a model, needs {error.name}. Install it with: "
            "pip install 'fxlab[transformers]'"
        ) from error
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        # A bar that is not on a terminal fills a log with lines.
        transformers.utils.logging.disable_progress_bar()
    is_local = path.exists()
    with ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="" if is_local else f"({options.model})"):
        if is_local:
            config = named_models.configuration(path)
        else:
            config = transformers.AutoConfig.from_pretrained(options.model, trust_remote_code=False)
    cls = named_models.model_class(config, options.architecture)
    if options.architecture and cls is transformers.AutoModel:
        raise CommandError(f"--architecture: transformers has no model class {options.architecture!r}.")
    if options.attention:
        config._attn_implementation = options.attention
    device, warning, more = device_of(options), "", ""
    with ends_with(ExitCode.BAD_USAGE, Exception, hint=f"({options.model})"):
        if options.meta:
            with torch.device("meta"):
                model, more = named_models.built(cls, config, options.seed), ", no weights"
        elif options.random_weights or (is_local and not named_models.has_weights(path)):
            model, more = (
                named_models.built(cls, config, options.seed),
                f", random weights (seed {options.seed})",
            )
        else:
            model, warning = named_models.pretrained(cls, options.model, config, _dtype_of(options))
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    return Source(_as_asked(model, options, device), f"{type(model).__name__}, {options.model}{more}")


def _dtype_of(options: argparse.Namespace) -> torch.dtype | None:
    import torch

    return getattr(torch, options.dtype) if options.dtype else None


def _as_asked(model: nn.Module, options: argparse.Namespace, device: torch.device) -> nn.Module:
    """Return a model on the device and in the dtype of the options."""
    return model.to(device=None if options.meta else device, dtype=_dtype_of(options))


def device_of(options: argparse.Namespace) -> torch.device:
    """Return the device of ``--device``, on which a tensor can be made."""
    import torch

    with ends_with(ExitCode.BAD_USAGE, RuntimeError, AssertionError, hint=f"(--device {options.device})"):
        device = torch.device(options.device or "cpu")
        torch.empty(0, device=device)
    return device


def traced(source: Source, options: argparse.Namespace) -> tuple[GraphModule, Any]:
    """Return the graph of a model, and inputs to run it on; ``None`` for a graph that comes without."""
    from torch.fx import GraphModule

    from fxlab.tracing import TraceError
    from fxlab.tracing.symbolic_trace import symbolic_trace

    inputs = inputs_for(source, options)
    if isinstance(source.model, GraphModule):
        return source.model, inputs
    with ends_with(ExitCode.NOT_TRACED, TraceError), ends_with(ExitCode.BAD_USAGE, TypeError, ValueError):
        check = not options.no_check
        return symbolic_trace(source.model, inputs, dynamic=not options.fixed, check=check), inputs


def inputs_for(source: Source, options: argparse.Namespace) -> Any:
    """Return inputs to run a model on; ``None`` for a graph that comes without."""
    import torch
    from torch.fx import GraphModule

    from fxlab.tracing.inputs.example_inputs import example_inputs

    model = source.model
    if options.inputs:
        first = next(model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
        return given_inputs(Path(options.inputs), device, model=model)
    if source.inputs is not None or (isinstance(model, GraphModule) and not hasattr(model, "config")):
        return source.inputs
    hint = "(or in a file: --inputs)"  # not where it is the model that is wrong
    with ends_with(ExitCode.BAD_USAGE, TypeError), ends_with(ExitCode.BAD_USAGE, ValueError, hint=hint):
        return example_inputs(model, batch_size=options.batch_size, sequence_length=options.length)
