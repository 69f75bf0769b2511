"""The examples of README and docs are tests: Python blocks run in order, one namespace for each page."""

import signal
from contextlib import ExitStack, chdir
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

collect_ignore_glob = ["docs/*.py"]


def pytest_configure() -> None:
    """Take interrupts, which some tests send: a shell ignores them for what it runs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    """Draw the same random weights and inputs in each run, on one thread: a test fails always or never."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)


def into_a_folder_of_its_own(namespace: dict[str, Any]) -> None:
    """Let a page write its files where they are thrown away."""
    stack = namespace["_leave_folder"] = ExitStack()
    stack.enter_context(chdir(stack.enter_context(TemporaryDirectory())))


def out_of_it(namespace: dict[str, Any]) -> None:
    """Go back to where the tests run."""
    namespace["_leave_folder"].close()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"],
    setup=into_a_folder_of_its_own,
    teardown=out_of_it,
).pytest()
