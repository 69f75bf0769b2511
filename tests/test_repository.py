"""What GitHub, package indexes and citation tools read of the repository is what they expect."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import fxlab
from fxlab.command_line.main import command_parser

ROOT = Path(__file__).parent.parent
FILES = {
    "github-workflows": (".github/workflows", "*.yml"),
    "github-issue-forms": (".github/ISSUE_TEMPLATE", "[!c]*.yml"),
    "github-issue-config": (".github/ISSUE_TEMPLATE", "config.yml"),
    "dependabot": (".github", "dependabot.yml"),
    "github-actions": (".", "action.yml"),
    "citation-file-format": (".", "CITATION.cff"),
}


@pytest.mark.slow
@pytest.mark.parametrize("schema", FILES)
def test_files_are_of_their_schemas(schema: str) -> None:
    # Here: it takes seconds, in each process that collects tests.
    from check_jsonschema import main as check_jsonschema

    folder, names = FILES[schema]
    files = sorted((ROOT / folder).glob(names))
    assert files
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", *map(str, files)])
    assert done.exit_code == 0, done.output


def test_nothing_is_wrong_with_the_workflows() -> None:
    """Injection by templates, wide permissions, tokens left behind, actions that may change unseen."""
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists() and "CI" not in os.environ:
        pytest.skip("zizmor is not installed: run `make lint`.")
    command = [program, "--offline", "--quiet", "--no-progress", ROOT / ".github"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "code", "verdict", "page"),
    [
        (
            "report made.py:model --title 'two words' \\\n\n  --passes remove-identities\n",
            0,
            "same bits",
            True,
        ),
        pytest.param("compile script.py -- --json -o mine", 5, "none", False, marks=pytest.mark.weekly),
    ],
)
def test_the_action_tells_the_verdict_and_ends_as_the_command(tmp_path, command, code, verdict, page) -> None:
    run = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][1]["run"]
    text = "import torch\nmodel = torch.nn.Sequential(torch.nn.Dropout()).eval(), torch.ones(2)\n"
    (tmp_path / "made.py").write_text(text)
    (tmp_path / "script.py").write_text("import sys\nassert sys.argv[1:] == ['--json', '-o', 'mine']\n")
    environment = os.environ | {
        "COMMAND": command,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    bash = ["bash", "-e", "-o", "pipefail", "-c", run]
    done = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert (tmp_path / "fxlab-report.html").exists() == page


def test_the_hook_names_a_command_that_there_is() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert f"    {hook['args'][0]} " in command_parser().format_help()


def test_citation_and_changelog_have_this_version() -> None:
    assert f"\nversion: {fxlab.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest, *_ = re.findall(
        r"^## \[(\d.*?)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert newest[0] == fxlab.__version__


def test_every_python_that_is_named_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (tested,) = re.findall(
        r"^        python: (\[.*\])$", (ROOT / ".github/workflows/test.yml").read_text(), re.M
    )
    assert named == json.loads(tested)
    assert project["requires-python"] == f">={named[0]}"


def _metadata(address: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        env=os.environ | {"FXLAB_REPOSITORY": address},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_package_leads_to_the_repository_that_released_it() -> None:
    address = "https://example.org/me/fxlab"
    made = _metadata(address)
    tag = f"v{fxlab.__version__}"
    assert made["urls"]["Changelog"] == f"{address}/blob/{tag}/CHANGELOG.md"
    readme = made["readme"]["text"]
    assert f"]({address}/raw/{tag}/docs/images/inspector.webp)" in readme
    assert f"]({address}/blob/{tag}/docs/start.md)" in readme
    assert f"]({address}/blob/{tag}/docs/gallery.md)" in readme
    assert re.findall(r"\]\((?!https://)[^)]*", readme) == []


def test_where_there_is_a_site_live_reports_and_documentation_are_there() -> None:
    made = _metadata("https://github.com/Me/fxlab")
    assert made["urls"]["Documentation"] == "https://me.github.io/fxlab/"
    assert "](https://me.github.io/fxlab/gallery.html)" in made["readme"]["text"]
