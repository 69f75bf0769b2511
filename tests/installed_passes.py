"""A package of somebody else's that offers passes by entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install_passes(folder: Path, module: str, text: str, entry_points: Mapping[str, str]) -> None:
    """Write a module and the metadata of its distribution into a folder, which is to be put on the path."""
    (folder / f"{module}.py").write_text(text)
    info = folder / "somebodys_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-package\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[fxlab.transformations]", *lines]))
