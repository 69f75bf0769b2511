"""The file that a report is: what it holds, how it is written, and that nothing in it runs but its own."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import operator
import platform
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from received import Received
from torch import fx, nn
from torch.fx.passes.shape_prop import TensorMetadata

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, Transformation, from_callable
from fxlab.drawing import LayoutError
from fxlab.html_report.contents import made_lines
from fxlab.html_report.report import ANY_TWO, _graphs, report_several
from fxlab.overlays import SOURCES

report_module = importlib.import_module("fxlab.html_report.report")
HOSTILE = "</script><script>alert(1)</script><!-- <img src=x> ]]> \u202e\u2028 'quotes' & \U0001f600"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.add_module(HOSTILE.replace(".", ""), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.get_submodule(HOSTILE.replace(".", ""))(self.query(x) * self.key(x) / 3.0)


class Blocks(nn.Module):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def make_session(count: int = 3) -> Session:
    torch.manual_seed(0)
    passes = [MergeLinears(), ChangeTrueDivToMulByInverse()]
    traced = fx.symbolic_trace(Blocks(count))
    for node in traced.graph.nodes:
        node.meta["tensor_meta"] = TensorMetadata(torch.Size([2, 4]), HOSTILE, False, (4, 1), None, False, {})
    session = Session(traced, (torch.randn(2, 4),), passes=passes)
    session.apply("merge-linears")
    session.apply("change-true-div-to-mul-by-inverse")
    return session


class Page(HTMLParser):
    """The elements of a page with the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}, ""))

    def handle_data(self, data: str) -> None:
        if self.elements:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = (tag, attributes, text + data)

    def text_of(self, tag: str, **attributes: str) -> str:
        (found,) = (t for n, a, t in self.elements if n == tag and attributes.items() <= a.items())
        return found

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text_of("script", id="fxlab-session"))
        return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fxlab.report(make_session(), path=tmp_path_factory.mktemp("report") / "session.html")


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page(written.read_text(encoding="utf-8"))


def test_it_holds_each_stage_and_what_the_tables_say(page: Page) -> None:
    data, session = page.data, make_session()
    stages, received = data["stages"], Received(data["data"])
    assert stages["names"] == ["Original", "Merge linears", "Change true div to mul by inverse"]
    alone = [stages["alone"][str(number)] for number in range(3)]
    assert [received.names(number) for number in alone] == [
        [node.name for node in stage.graph.nodes] for stage in session.stages
    ]
    assert list(stages["merged"]) == list(stages["pairs"]) == ["1/0", "2/0", "2/1"]
    for number in alone:
        overlays = [o["name"] for o in received.tables["overlays"] if o["graph"] == number]
        assert overlays == [source.name for source in SOURCES if source.is_made_of(session.original)]
    for graph in received.tables["graphs"]:
        assert len(graph["extras"]["nodes"]) == len(graph["order"])
    assert len(received.layouts) == 1, "that of the last stage"
    outputs = data["tables"]["outputs"]
    assert (outputs["agrees"], outputs["canJudge"]) == (True, False)
    assert outputs["text"].startswith("Within the model's own rounding")
    assert "compared in " in outputs["text"]
    assert data["tables"]["nodes"]["table"]["total"] == len(
        fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)
    )
    candidates, summary = data["tables"]["more"]
    titles = ["0. Original", "1. Merge linears", "2. Change true div to mul by inverse"]
    assert [row[0] for row in summary["table"]["rows"]] == titles
    assert summary["table"]["leads"] == "stages"
    assert candidates["table"]["total"] == sum(len(session.explain(p)) for p in session.passes)
    assert [card["on"] for card in data["passes"]["passes"]] == [True, True]


def test_it_says_when_and_with_which_versions_it_was_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    files = [fxlab.report(make_session(), path=tmp_path / f"{name}.html", measure=False) for name in "ab"]
    first, second = (file.read_text(encoding="utf-8") for file in files)
    assert first == second
    made, no_kernel = Page(first).data["passes"]["made"]
    versions = f"fxlab {fxlab.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    assert made == f"Made 1970-01-02 00:00 UTC with {versions}."
    assert "no kernel" in no_kernel


def test_it_names_the_versions_of_packages_that_the_model_is_made_of(monkeypatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"modelled": "7.1"}.__getitem__)
    monkeypatch.setattr("importlib.metadata.PackageNotFoundError", KeyError)
    graph_module = fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.ReLU()))
    for node, owner in zip(graph_module.graph.nodes, ("modelled.vit.Block", "<b>.Block", ""), strict=False):
        node.meta["nn_module_stack"] = {"block": ("block", owner)}
    assert ", modelled 7.1, Python" in made_lines(graph_module)[0]
    assert "<b>" not in made_lines(graph_module)[0]


def test_a_time_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ValueError, match=r"SOURCE_DATE_EPOCH.*'yesterday'"):
        fxlab.report(make_session(), path=tmp_path / "a.html", measure=False)
    assert not list(tmp_path.iterdir())


def test_names_of_a_model_cannot_leave_the_data(page: Page) -> None:
    tags = [tag for tag, *_ in page.elements]
    assert tags.count("script") == 3
    assert "img" not in tags
    assert set(re.findall(r"alert", json.dumps(page.data["data"]["texts"]))) == {"alert"}


def test_the_data_holds_no_character_that_markup_is_made_of(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="fxlab-session">(.*?)</script>', text, re.S)
    assert not set("<>&") & set(data)


def test_the_title_is_escaped_and_holds_no_mark_that_turns_what_follows(tmp_path: Path) -> None:
    graph_module = fx.symbolic_trace(nn.ReLU())
    graph_module.meta["class_name"] = "</title><img src=x>\u202egnp.\u2066exe\u2069"
    session = Session(graph_module, (torch.ones(2),), passes=[])
    page = Page(fxlab.report(session, path=tmp_path / "session.html").read_text(encoding="utf-8"))
    assert page.text_of("title") == "</title><img src=x>gnp.exe · fxlab"
    assert "img" not in [tag for tag, *_ in page.elements]


def test_nothing_runs_or_loads_but_what_the_file_holds(page: Page) -> None:
    (policy,) = (
        a["content"] for t, a, _ in page.elements if t == "meta" and "Policy" in str(a.get("http-equiv"))
    )
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe-inline" not in policy
    assert "http" not in policy
    (script,) = (text for tag, a, text in page.elements if tag == "script" and not a)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in rules["script-src"]
    links = [a for _, attributes, _ in page.elements for a in attributes if a in ("src", "href")]
    assert links == []


def test_without_graphviz_the_page_lays_out_its_first_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(dot: str) -> bytes:
        raise LayoutError("Graphviz was not found")

    monkeypatch.setattr("fxlab.view_model.graph_data.graph_data.lay_out", fail)
    file = fxlab.report(make_session(2), path=tmp_path / "report.html", measure=False)
    assert '"layouts":{}' in file.read_text(encoding="utf-8")


def test_the_embedded_scripts_end_where_they_should(page: Page) -> None:
    worker = page.text_of("script", id="fxlab-layout-worker")
    (script,) = (text for tag, a, text in page.elements if tag == "script" and not a)
    for text in (worker, script):
        assert not re.search(r"</script|<!--", text, re.IGNORECASE)
    assert "Graphviz" in worker


@pytest.mark.slow
def test_a_report_is_as_large_as_its_code_and_its_nodes(tmp_path: Path) -> None:
    tiny, small, medium, large = (
        fxlab.report(make_session(count), path=tmp_path / f"{count}.html", measure=False).stat().st_size
        for count in (5, 15, 25, 35)
    )
    assert tiny < 1_300_000
    # The first picture, whose layout is in the file, grows no more.
    assert large - medium == pytest.approx(medium - small, rel=0.15)


def clones(number: int) -> Transformation:
    """Return a pass that adds a node."""

    def clone(graph_module: fx.GraphModule) -> fx.GraphModule:
        node = next(iter(graph_module.graph.find_nodes(op="placeholder")))
        with graph_module.graph.inserting_after(node):
            graph_module.graph.call_function(torch.clone, (node,))
        return graph_module

    return from_callable(clone, name=f"clone-{number}")


@pytest.mark.parametrize("passes", [ANY_TWO - 1, ANY_TWO])
def test_any_two_of_a_few_stages_are_compared_and_of_many_those_that_are_asked_for_most(passes: int) -> None:
    session = Session(fx.symbolic_trace(nn.ReLU()), passes=[clones(number) for number in range(passes)])
    for p in session.passes:
        session.apply(p)
    state = _graphs(session, {}, measure=False).state()
    all_twos = [(stage, before) for stage in range(passes + 1) for before in range(stage)]
    few = [(stage, before) for stage, before in all_twos if before in (0, stage - 1)]
    expected = [f"{stage}/{before}" for stage, before in (all_twos if passes < ANY_TWO else few)]
    assert list(state["merged"]) == list(state["pairs"]) == expected


def test_a_model_is_traced_and_shown_without_passes(tmp_path: Path) -> None:
    path = fxlab.report(
        Session(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(3, 2)), str(tmp_path / "a.HTML")
    )
    assert path == tmp_path / "a.HTML"
    data = Page(path.read_text(encoding="utf-8")).data
    assert data["stages"]["names"] == ["Original"]
    assert data["tables"]["outputs"]["text"].startswith(
        "No pass is on: same bits as the model on the inputs; "
    )


def test_a_session_without_inputs_or_weights_can_be_reported(tmp_path: Path) -> None:
    with torch.device("meta"):
        session = Session(fx.symbolic_trace(Blocks()), passes=[MergeLinears()])
    session.apply("merge-linears")
    data = Page(fxlab.report(session, path=tmp_path / "a.html").read_text(encoding="utf-8")).data
    assert data["tables"]["outputs"]["state"] == "none"
    assert "no inputs" in data["tables"]["outputs"]["text"]


def test_a_model_that_cannot_be_judged_has_a_report_that_says_there_is_no_verdict(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 3.0 + torch._standard_gamma(x + 1)  # which draws as many numbers as it takes

    session = Session(
        fx.symbolic_trace(Noisy()), torch.linspace(0, 9, 64), passes=[ChangeTrueDivToMulByInverse()]
    )
    session.apply("change-true-div-to-mul-by-inverse")
    data = Page(fxlab.report(session, path=tmp_path / "a.html").read_text(encoding="utf-8")).data
    outputs = data["tables"]["outputs"]
    assert outputs["agrees"] is None
    assert outputs["text"].startswith(("There is no verdict", "Nothing compared"))


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.html"
    path.write_text("before")

    def fails(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fails)
        with pytest.raises(OSError, match="disk full"):
            fxlab.report(make_session(1), path=path, measure=False)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    fxlab.report(make_session(1), path=path, measure=False)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (3, TypeError, "expected a path, got 3"),
        ("report.pdf", ValueError, "ends in .html"),
        ("missing/report.html", FileNotFoundError, "make it first"),
        ("folder.html", IsADirectoryError, "is a folder"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_any_work(
    path: Any, error: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(error, match=words):
        fxlab.report(object(), path=path)  # type: ignore[arg-type]


def test_only_sessions_are_reported(tmp_path: Path) -> None:
    for other in (operator.add, nn.ReLU(), "model.pt2"):
        with pytest.raises(TypeError, match=r"session: expected an fxlab\.Session.*Make one"):
            fxlab.report(other, tmp_path / "a.html")  # type: ignore[arg-type]


def test_a_missing_front_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxlab.html_report.page._STATIC", tmp_path)
    with pytest.raises(RuntimeError, match=r"front end is missing.*hatch_build.py"):
        fxlab.report(make_session(1), path=tmp_path / "a.html", measure=False)


def test_the_public_name_stays_a_function_whatever_is_imported() -> None:
    assert fxlab.report is report_module.report


def test_of_several_sessions_one_that_cannot_be_written_is_said_if_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = make_session(1), make_session(1)
    data = report_module._data

    def fails(session: Session, measure: bool, values: bool) -> dict[str, Any]:
        if session is bad:
            raise LayoutError("too large")
        return data(session, measure, values)

    monkeypatch.setattr(report_module, "_data", fails)
    sessions, path = {"a": bad, "b": good}, tmp_path / "a.html"
    report_several(sessions, path, measure=False, skip_failing=True)
    page = Page(path.read_text(encoding="utf-8"))
    first = json.loads(page.text_of("script", id="fxlab-contents"))
    assert [row["name"] for row in first["graphs"]] == ["b"]
    assert first["notes"] == ["a is not shown: too large"]
    assert json.loads(page.text_of("script", id="fxlab-session-1"))["stages"]["names"][0] == "Original"
    with pytest.raises(LayoutError):
        fxlab.report(sessions, path=path, measure=False)
    with pytest.raises(LayoutError):
        report_several({"a": bad}, path, measure=False, skip_failing=True)
