"""What came of each model so far, so that a run that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.coverage.results import Result

_FOLDER = Path(__file__).parents[2] / "build"


class Progress:
    """Results of one task, each in a line of a file that lies there until a page has been written.

    Parameters
    ----------
    task
        The task.
    """

    def __init__(self, task: str) -> None:
        self._file = _FOLDER / f"coverage_{task}.jsonl"

    def results(
        self, names: Sequence[str], tried: Callable[[Sequence[str]], Iterator[Result]]
    ) -> Iterator[Result]:
        """Yield what is known of models, and then what comes of trying the others."""
        known = self._known()
        yield from (known[name] for name in names if name in known)
        for result in tried([name for name in names if name not in known]):
            _FOLDER.mkdir(exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(asdict(result))}\n")
            yield result

    def end(self) -> None:
        """Forget the results."""
        self._file.unlink(missing_ok=True)

    def _known(self) -> dict[str, Result]:
        if not self._file.exists():
            return {}
        rows = map(json.loads, self._file.read_text(encoding="utf-8").splitlines())
        return {row["name"]: Result(**row) for row in rows}
