"""Programs in files that ``torch.export.save`` wrote."""

from __future__ import annotations

import io
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import ExportedProgram

from fxlab.tracing.exported.archive_check import MayRunCodeError, check_is_data

SUFFIX = ".pt2"
_BROKEN = "{path}: expected a program saved by torch.export.save ({suffix}), but {what}. Save it again."


def load_program(path: str | os.PathLike[str], *, trusted: bool = False) -> ExportedProgram:
    """Load a program that ``torch.export.save`` wrote, without running code that the file brings.

    ``torch.export.load`` evaluates expressions and may unpickle any object. A file that needs neither is
    loaded; others only if they are trusted. Raises OSError if the file cannot be read; ValueError if it holds
    no program, or a broken one; MayRunCodeError if loading it could run code, and it is not trusted.
    """
    file = Path(path)
    data = io.BytesIO(file.read_bytes())  # one copy for checking and loading: the file may change meanwhile
    if not zipfile.is_zipfile(data):
        raise ValueError(_BROKEN.format(path=file, suffix=SUFFIX, what="it is no archive, or a part of one"))
    try:
        if not trusted:
            check_is_data(data)
        data.seek(0)
        with _export_logs_silent():
            return torch.export.load(data)
    except MayRunCodeError as error:
        raise error.of(str(file)) from error.__cause__
    except Exception as error:  # whatever torch's readers raise for what they do not expect
        lines = str(error).strip().splitlines() or [""]
        # torch writes what was wrong into its log, and raises this.
        words = (
            "no program in it"
            if "warnings above" in lines[0]
            else f"{type(error).__name__}: {lines[0][:200]}"
        )
        what = f"it cannot be read ({words})"
        raise ValueError(_BROKEN.format(path=file, suffix=SUFFIX, what=what)) from error


@contextmanager
def _export_logs_silent() -> Iterator[None]:
    """Keep torch from writing tracebacks of errors that are raised anyhow, and warning about itself."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
