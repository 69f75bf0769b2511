"""Graphs as files that other programs run."""

from fxlab.deployment.files.export import ExportedFile, ExportError, export, file_verdict

__all__ = ["ExportError", "ExportedFile", "export", "file_verdict"]
