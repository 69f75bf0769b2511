"""A page for each public name, from the one list of them: reference.md stays as it is read in the repository.

On the site each block of that list becomes a table, which leads to the pages; they are written to
``docs/reference``, and stay out of git.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

from sphinx.application import Sphinx

from fxlab.transformations import passes

LIST = "reference"
PASSES, TABLE = "PASSES\n", "<!--- the passes --->\n"
"""Places of the passes: in the list, and of a table of them in other pages."""
BLOCK = re.compile(r"^```\{names\}\n(.*?)^```$", flags=re.M | re.S)
ENTRY = re.compile(r"^([\w.]+)(?:: (.+))?$", flags=re.M)
"""A name below fxlab, and the members that its page shows."""


def write_pages(app: Sphinx) -> None:
    """Write the pages that are not there or say something else, and remove those of names that are gone."""
    folder = Path(app.srcdir) / LIST
    folder.mkdir(exist_ok=True)
    pages = {}
    for block in BLOCK.findall(with_passes((Path(app.srcdir) / f"{LIST}.md").read_text())):
        for below, members in ENTRY.findall(block):
            name = f"fxlab.{below}"
            pages[folder / f"{name}.rst"] = f"{name}\n{'=' * len(name)}\n\n{_directive(name, members)}"
    for path in {*folder.iterdir()} - pages.keys():
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _directive(name: str, members: str) -> str:
    """Return what autodoc documents a name with."""
    value = resolve_name(name)
    if inspect.isroutine(value):
        return f".. autofunction:: {name}\n"
    if not inspect.isclass(value):
        return f".. autodata:: {name}\n   :no-value:\n"
    kind = "exception" if issubclass(value, Exception) else "class"
    shown = f"   :members: {members}\n   :undoc-members:\n" if members else ""
    return f".. auto{kind}:: {name}\n{shown}"


def list_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Put a table of the pages in the place of each block."""
    if name == LIST:
        written = with_passes(source[0])
        source[0] = BLOCK.sub(lambda block: _table([entry[0] for entry in ENTRY.findall(block[1])]), written)
    source[0] = source[0].replace(TABLE, _table_of_passes())


def with_passes(text: str) -> str:
    """Return the list with an entry for each pass, in their order."""
    return text.replace(PASSES, "".join(f"{cls.__name__}\n" for cls in _passes()))


def _passes() -> list[type]:
    """Return the classes of passes: those on offer in their order, then the others."""
    return [getattr(passes, name) for name in dict.fromkeys((*passes.ORDER, *passes.__all__))]


def _table_of_passes() -> str:
    rows = (f"| [`{cls.__name__}`](reference.md) | {_effect(cls)} |\n" for cls in _passes())
    return f"| Pass | Effect |\n|---|---|\n{''.join(rows)}"


def _effect(cls: type) -> str:
    first = (cls.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")


def _table(names: list[str]) -> str:
    listed = "\n".join(f"   {name}" for name in names)
    pages = "\n".join(f"   {LIST}/fxlab.{name}" for name in names)
    return (
        f"```{{eval-rst}}\n.. currentmodule:: fxlab\n\n.. autosummary::\n   :nosignatures:\n\n{listed}\n\n"
        f".. toctree::\n   :hidden:\n\n{pages}\n```"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Take part in the build."""
    app.setup_extension("sphinx.ext.autosummary")
    app.connect("builder-inited", write_pages)
    app.connect("source-read", list_pages)
    return {"parallel_read_safe": True}
