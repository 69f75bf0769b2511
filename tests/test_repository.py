"""What GitHub and citation tools read of the repository is what they expect."""

import subprocess
import sys
from pathlib import Path

import pytest

import fxlab

ROOT = Path(__file__).parent.parent
FILES = {
    "github-workflows": (".github/workflows", "*.yml"),
    "github-issue-forms": (".github/ISSUE_TEMPLATE", "[!c]*.yml"),
    "github-issue-config": (".github/ISSUE_TEMPLATE", "config.yml"),
    "dependabot": (".github", "dependabot.yml"),
    "citation-file-format": (".", "CITATION.cff"),
}


@pytest.mark.parametrize("schema", FILES)
def test_files_are_of_their_schemas(schema: str) -> None:
    folder, names = FILES[schema]
    files = sorted((ROOT / folder).glob(names))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {fxlab.__version__}\n" in (ROOT / "CITATION.cff").read_text()
