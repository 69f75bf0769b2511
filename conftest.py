"""The examples of README and docs are tests: Python blocks run in order, one namespace for each page."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

collect_ignore_glob = ["docs/*.py"]

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"],
).pytest()
