"""Graphs as files that other programs run."""

from fxlab.deployment.files.export import ExportedFile, export
from fxlab.deployment.files.judge_file import file_verdict
from fxlab.deployment.files.write_file import ExportError

__all__ = ["ExportError", "ExportedFile", "export", "file_verdict"]
