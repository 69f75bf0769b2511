"""The tests nearest to what has changed, as many as take a minute: its rooms, then those that import them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SECONDS = 60
PROCESSES = 2
KEPT = ROOT / ".pytest_cache/v/fxlab/seconds"
"""How long each file of tests took when it ran last, without those that are slow."""
UNKNOWN = 3.0


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


def steps_to(files: Iterable[Path]) -> dict[tuple[str, str], int]:
    """Return how many imports lead from each module to some files, by its room and its name."""
    graph = grimp.build_graph("fxlab")
    parts = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    reached = {name for part in parts if (name := ".".join(part).removesuffix(".__init__")) in graph.modules}
    found: dict[tuple[str, str], int] = {}
    seen, steps = set(reached), 0
    while reached:
        for module in reached:
            place = module.split(".")
            for name in (place[-1], ""):  # the room itself
                found.setdefault((place[1] if len(place) > 1 else "", name), steps)
        reached = {each for name in reached for each in graph.find_modules_that_directly_import(name)} - seen
        seen, steps = seen | reached, steps + 1
    return found


def nearest(files: list[Path]) -> list[Path]:
    """Return files of tests: changed ones and those of changed files, of rooms, of all, of importers."""
    steps = steps_to(file for file in files if file.is_relative_to(ROOT / "fxlab"))
    rooms = {room(file) for file in files if file.is_relative_to(ROOT / "fxlab")}
    found = []
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        place, name = room(test), test.stem.removeprefix("test_")
        is_of_all = test.parent == ROOT / "tests"
        away = 1 if is_of_all else steps.get((place, name), steps.get((place, ""), -2) + 1)
        if test in files or away >= 0:
            found.append(((test not in files and away > 0, place not in rooms, away), test))
    return [test for _, test in sorted(found)]


def main() -> int:
    files = nearest(changed())
    if not files:
        print("No Python has changed.")
        return 0
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    chosen: list[Path] = []
    left_out: list[Path] = []
    seconds = 0.0
    for file in files:
        seconds += kept.get(str(file.relative_to(ROOT)), UNKNOWN)
        (chosen if seconds <= SECONDS * PROCESSES or not chosen else left_out).append(file)
    print(f"{len(chosen)} files of tests of", *dict.fromkeys(map(room, chosen)))
    if left_out:
        print(f"Left to `make test`: {len(left_out)} files of", *dict.fromkeys(map(room, left_out)))
    sys.stdout.flush()
    options = ["-m", "not slow and not weekly and not accelerator and not browser", "-rfE"]
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", str(PROCESSES), *options]
    until = os.environ | {"FXLAB_TESTS_UNTIL": str(time.time() + SECONDS)}
    return subprocess.run([*command, *map(str, chosen)], cwd=ROOT, env=until, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
