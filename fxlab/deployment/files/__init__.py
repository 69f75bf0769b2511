"""Graphs as files that other programs run."""

from fxlab.deployment.files.export import ExportedFile, ExportError, export

__all__ = ["ExportError", "ExportedFile", "export"]
