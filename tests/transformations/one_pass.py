"""The tests, the laws and the types of one pass, side by side: ``make pass P=merge-linears``."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

from fxlab.transformations import passes

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/transformations"


def main(name: str) -> int:
    """Run what concerns a pass, by its name, and return how many of the commands failed."""
    found = {str(cls().name): cls for cls in (getattr(passes, each) for each in passes.__all__)}
    if name not in found:
        sys.exit(f"There is no pass {name!r}. There are {', '.join(found)}.")
    file = Path(inspect.getfile(found[name])).relative_to(ROOT)
    tested = [TESTS / f"passes/test_{stem}.py" for stem in (file.stem, file.parent.name)]
    python = [sys.executable, "-m"]
    commands = [
        [*python, "pytest", "--quiet", *(str(each) for each in tested if each.exists())],
        [*python, "pytest", "--quiet", str(TESTS / "test_laws.py")],
        [*python, "mypy", str(file)],
        [*python, "ruff", "check", str(file)],
    ]
    environment = os.environ | {"FXLAB_PASS": name, "HYPOTHESIS_PROFILE": "pass"}
    running = [subprocess.Popen(command, cwd=ROOT, env=environment) for command in commands]
    return sum(process.wait() != 0 for process in running)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
