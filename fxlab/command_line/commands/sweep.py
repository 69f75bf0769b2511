"""``fxlab sweep``: many models, each with many stacks of passes, judged on batches, as one table."""

from __future__ import annotations

import argparse
import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.model_source import device_of, given_batches, loaded, loader
from fxlab.command_line.pass_names import chosen_names

if TYPE_CHECKING:
    from torch import nn

    from fxlab.sweeping import Sweep

_NAMED = re.compile(r"([\w. -]+)=(.*)", re.DOTALL)
_IN_TEXT = ["model", "stack", "status", "agreement", "batches", "time", "memory", "reason"]


def sweep(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Judge each model with each stack, and print a row for each."""
    from fxlab.sweeping import sweep as swept

    models = {name: _model(what, options) for name, what in _by_name("MODEL", options.models).items()}
    stacks = {name: _stack(what) for name, what in _by_name("--stack", options.stacks).items()}
    with _executor(options.workers) as executor, ends_with(ExitCode.BAD_USAGE, OSError, ValueError):
        found = swept(models, stacks, _data(options, list(models)), executor, options.output)
    facts: dict[str, Any] = {
        "judged": len(found.cells),
        "of": len(models) * len(stacks),
        "agree": sum(cell.agrees for cell in found.cells),
    }
    if found.path is not None:
        facts["page"] = str(found.path / "index.html")
    return Answer(facts, {"cells": found.table().reset_index()}, {"cells": _IN_TEXT}), _code_of(found)


def _by_name(option: str, given: list[str]) -> dict[str, str]:
    """Return what was given by the name before ``=``, or by itself where there is none."""
    found: dict[str, str] = {}
    for text in given:
        named = _NAMED.fullmatch(text)
        name, what = (named[1], named[2]) if named and not Path(text).exists() else (text, text)
        if name in found:
            raise CommandError(f"{option}: {name!r} is given twice. Give each a name of its own: NAME={what}")
        found[name] = what
    return found


def _model(what: str, options: argparse.Namespace) -> Callable[[], nn.Module]:
    own = argparse.Namespace(**{**vars(options), "model": what})
    loader(own)
    return partial(_loaded_model, own)


def _loaded_model(options: argparse.Namespace) -> nn.Module:
    return loaded(options).model


def _stack(what: str) -> str | list[str]:
    from fxlab.transformations import offered

    if what.endswith(".json"):
        return what
    return chosen_names(what, [pass_.name for pass_ in offered()], "--stack") if what.strip() else []


def _data(options: argparse.Namespace, models: list[str]) -> Any:
    """Return functions that read batches where the worker is, by model."""
    device = device_of(options)
    given = _by_name("--data", options.data)
    for_all = [file for name, file in given.items() if name == file]
    named = {name: file for name, file in given.items() if name != file}
    if unknown := [name for name in named if name not in models]:
        raise CommandError(f"--data {unknown[0]}=...: expected the name of a model ({', '.join(models)}).")
    if len(for_all) > 1:
        raise CommandError("--data: one file can be for all models; name the model of each other: NAME=FILE")
    for name in models:
        if name not in named and not for_all:
            raise CommandError(f"--data: there is none for {name}. Give {name}=FILE, or a FILE for all.")
    files = {name: Path(named.get(name, *for_all)).absolute() for name in models}
    for file in dict.fromkeys(files.values()):
        given_batches(file, device)
    return {name: partial(given_batches, file, device) for name, file in files.items()}


@contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    if workers == 1:
        yield None
        return
    # A fork of a process in which torch has threads would hang.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def _code_of(found: Sweep) -> ExitCode:
    """Return the exit code of a sweep: a model that is different says more than one that was not judged."""
    from fxlab.validation import Status

    if found.stopped:
        return ExitCode.INTERRUPTED
    if any(cell.status == Status.DIFFERENT for cell in found.cells):
        return ExitCode.DIFFERENT
    return ExitCode.DONE if found.agrees else ExitCode.NOT_COMPARED
