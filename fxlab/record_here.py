"""Record the processes of a command that fxlab starts, and those that it starts: servers and ranks.

``fxlab compile -o FOLDER -- COMMAND`` starts a command with :func:`environment_for`. There torch calls
:func:`begin` when imported. The first call of ``torch.compile`` begins a record, written as the process ends.
"""

import functools
import os
import sys
from pathlib import Path
from typing import Any

_FOLDER = "FXLAB_RECORD"


def environment_for(folder: Path, metadata: Path) -> dict[str, str]:
    """Return an environment in which processes write their records into a folder.

    ``metadata``: an empty folder, which has to stay until the processes have ended. It becomes the first on
    Python's path, and holds the entry point by which torch finds :func:`begin`.
    """
    info = metadata / "fxlab_record-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fxlab-record\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nfxlab_record = fxlab.record_here:begin\n")
    # Children may start elsewhere; fxlab may be on the path of this process alone.
    places = [str(metadata), os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[1])]
    return {
        **os.environ,
        _FOLDER: str(folder.absolute()),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    }


def begin() -> None:
    """Begin a record at the first call of ``torch.compile``."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        return
    import torch

    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        if torch.compile is compile:
            torch.compile = original
        _record(folder)
        return original(*args, **kwargs)

    torch.compile = compile


@functools.cache
def _record(folder: str) -> None:
    """Record from now on, and write it at the end of this process; errors are printed, and not raised."""
    from contextlib import ExitStack
    from multiprocessing.util import Finalize

    try:
        from fxlab.compiler import record_compile

        stack = ExitStack()
        record = stack.enter_context(record_compile())
    except Exception as error:
        print(f"fxlab: nothing is recorded: {error}", file=sys.stderr)
        return
    # Not atexit, which processes of multiprocessing do not come to.
    Finalize(None, _write, (record, stack, folder, os.getpid()), exitpriority=0)


def _write(record: Any, stack: Any, folder: str, process: int) -> None:
    if os.getpid() != process:
        return
    stack.close()
    if record.story().empty:
        return
    name, rank = f"process-{process}", os.environ.get("RANK")
    if rank is not None:
        is_taken = os.path.exists(os.path.join(folder, f"rank-{rank}"))
        name = f"rank-{rank}-{name}" if is_taken else f"rank-{rank}"
    try:
        written = record.write(os.path.join(folder, name))
        if record.sessions:
            from fxlab.html_report.report import report_several

            options: Any = {"notes": record.remarks, "measure": False, "skip_failing": True}
            report_several(record.sessions, written / "report.html", **options)
    except Exception as error:
        print(f"fxlab: the record is not complete: {error}", file=sys.stderr)
