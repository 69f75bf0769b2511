"""A plugin of pytest: sessions in tests, of which a failed test leaves a report.

It is loaded by every run of pytest, so it imports nothing else before a test asks for a session.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fxlab.comparison import Comparison
    from fxlab.session import Session

_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder of reports."""
    group = parser.getgroup("fxlab")
    group.addoption(
        "--fxlab-reports", metavar="FOLDER", help="where failed tests write reports of their sessions"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note that a test has failed, for its fixture."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or bool(report.failed)
    return report


@pytest.fixture
def fxlab_compare(request: pytest.FixtureRequest) -> Iterator[Callable[..., Comparison]]:
    """Return a function that compares two models as ``fxlab.compare`` does, and fails if they differ.

    If the test fails and ``--fxlab-reports`` names a folder, each comparison is written there as HTML.
    """
    made: list[Comparison] = []

    def compared(*args: Any, **options: Any) -> Comparison:
        from fxlab import compare

        made.append(compare(*args, **options))
        assert made[-1], str(made[-1])
        return made[-1]

    yield compared
    _write_reports(request, made)


@pytest.fixture
def fxlab_session(request: pytest.FixtureRequest) -> Iterator[Callable[..., Session]]:
    """Return a function that makes sessions, ``fxlab_session(model, inputs)``.

    If the test fails and ``--fxlab-reports`` names a folder, each of them is written there as HTML.
    """
    made: list[Session] = []

    def make(*args: Any, **options: Any) -> Session:
        from fxlab.session import Session

        made.append(Session(*args, **options))
        return made[-1]

    yield make
    _write_reports(request, made)


def _write_reports(request: pytest.FixtureRequest, made: Sequence[Session | Comparison]) -> None:
    from fxlab import Session, report

    option = request.config.getoption("--fxlab-reports")
    if option is None or not request.node.stash.get(_FAILED, False):
        return
    folder = request.config.invocation_params.dir / option  # a test may be in another directory now
    test, _, parameters = request.node.nodeid.partition("[")
    name = re.sub(r"\W+", "-", f"{test}-{parameters}").strip("-")
    if re.search(r"\W", parameters.removesuffix("]")):  # "a-b" and "a.b" would be one file
        name += f"-{zlib.crc32(parameters.encode()):08x}"
    for number, each in enumerate(made, 1):
        file = folder / f"{name}{f'-{number}' if len(made) > 1 else ''}.html"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            report(each if isinstance(each, Session) else each.session, file)
        except Exception as error:  # a report is no reason for another failure
            warnings.warn(f"There is no report of {name}: {error}", stacklevel=1)
