"""The files of the front end, which ``hatch_build.py`` builds from ``frontend/``."""

from __future__ import annotations

from pathlib import Path

_STATIC = Path(__file__).parent / "static"


class FrontEndMissingError(RuntimeError):
    """The package was installed without its front end."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The front end is missing: {_STATIC / name}. "
            "Install fxlab again, or run `python hatch_build.py` in its repository."
        )


def front_end_file(name: str) -> str:
    """Return the text of a built file; empty if there is none."""
    path = _STATIC / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""
