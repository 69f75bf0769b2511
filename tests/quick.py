"""The tests of what has changed and of the rooms that import it, those that start within a minute."""

import os
import subprocess
import sys
import time
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SECONDS = 60


def changed() -> list[Path]:
    """Return the files that differ from main, or on main itself from the last commit, and new ones."""
    head, *bases = (git("rev-parse", each) for each in ("HEAD", "origin/main", "main", "HEAD~1"))
    base = next(git("merge-base", "HEAD", each[0]) for each in bases if each and each != head)
    names = [*git("diff", "--name-only", *base), *git("ls-files", "--others", "--exclude-standard")]
    return [
        ROOT / name for name in names if (ROOT / name).suffix in {".py", ".pyi"} and (ROOT / name).exists()
    ]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def room(file: Path) -> str:
    """Return the room of a file of the code or of its tests."""
    return Path(*file.relative_to(ROOT).parts[1:2]).stem


def importers(rooms: set[str]) -> set[str]:
    """Return the rooms that import some of others."""
    graph = grimp.build_graph("fxlab")
    for each in graph.find_children("fxlab"):
        graph.squash_module(each)
    names = graph.modules & {f"fxlab.{name}" for name in rooms}
    found = {each for name in names for each in graph.find_modules_that_directly_import(name)}
    return {each.partition(".")[2] for each in found} - rooms


def main() -> int:
    """Run the nearest tests first: changed files, those of changed files, of their rooms, of importers."""
    files = changed()
    rooms = {room(file) for file in files if file.is_relative_to(ROOT / "fxlab")}
    stems = {f"test_{file.stem.removeprefix('test_')}.py" for file in files}
    near = sorted(each for each in (ROOT / "tests").rglob("test_*.py") if each.name in stems)
    folders = [ROOT / "tests" / name for some in (rooms, importers(rooms)) for name in sorted(some)]
    chosen = [*near, *filter(Path.is_dir, folders)]
    if not chosen:
        print("No Python has changed.")
        return 0
    print("Tests of", *(each.relative_to(ROOT) for each in chosen), flush=True)
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", "-m", "not slow", "-rfE"]
    until = os.environ | {"FXLAB_TESTS_UNTIL": str(time.time() + SECONDS)}
    return subprocess.run([*command, *map(str, chosen)], cwd=ROOT, env=until, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
