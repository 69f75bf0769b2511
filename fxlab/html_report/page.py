"""The page around the data of a report: one file in which only the scripts of the front end run."""

import base64
import gzip
import hashlib
import html
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxlab._version import __version__
from fxlab.base.checks import file_to_write
from fxlab.drawing.rendering.theme import printable

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


_LARGE = 4_000_000
"""Letters from which on data is compressed, to a tenth; less can be read and searched as it stands."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="fxlab {version}">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
{body}
</body>
</html>
"""
_BODY = """<noscript>This report draws its graph with JavaScript, which is switched off.</noscript>
{data}
<script type="text/plain" id="fxlab-layout-worker">{worker}</script>
<script>{script}</script>"""


def checked_path(path: str | os.PathLike[str] | None) -> Path:
    """Return the file that a report is written to, or raise an error that says why it cannot be."""
    if path is None:
        raise TypeError(
            "path: expected the name of a file that ends in .html: report(session, path='a.html')."
        )
    return file_to_write(path, "path", ".html", ".htm")


def page(title: str, data: Mapping[str, Any]) -> str:
    """Return the page of a report.

    ``title``: its name in the browser. ``data``: id of an element -> its contents, as JSON. Raises
    FrontEndMissingError if the package was installed without its front end.
    """
    files = ("report.js", "report.css", "layout_worker.js")
    script, css, worker = texts = [front_end_file(name) for name in files]
    for name, text in zip(files, texts, strict=True):
        if not text:
            raise FrontEndMissingError(name)
    # Nothing is loaded from anywhere, and no other code runs than that written here.
    policy = (
        "default-src 'none'",
        f"style-src {_digest(css)}",
        "base-uri 'none'",
        "form-action 'none'",
        # Graphviz runs in the page as WebAssembly.
        f"script-src {_digest(script)} 'wasm-unsafe-eval'",
        "worker-src blob:",
        "img-src blob: data:",
    )
    elements = (_element(name, value) for name, value in data.items())
    body = _BODY.format(data="\n".join(elements), worker=worker, script=script)
    return _PAGE.format(
        policy="; ".join(policy),
        version=__version__,
        title=html.escape(f"{printable(title[:200])} · fxlab"),
        css=css,
        body=body,
    )


def write(file: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    unfinished = file.with_name(f".{file.name[:100]}.{uuid.uuid4().hex}")
    try:
        with unfinished.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _element(name: str, data: Mapping[str, Any]) -> str:
    """Return an element with JSON in which no text can end it; much of it is compressed."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    kind = "application/json"
    if len(text) > _LARGE:
        # Without the time, so that the same report has the same bytes.
        kind, text = "application/gzip", base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="{kind}" id="{name}">{text}</script>'
