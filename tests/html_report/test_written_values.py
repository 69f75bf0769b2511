"""The values of nodes that a report holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import MergeLinears, Session
from fxlab.html_report import written_values
from fxlab.html_report.report import _data


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(60, 60), nn.Linear(60, 60)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.query(x) * self.key(x) / 0.0


@pytest.fixture
def session() -> Session:
    torch.manual_seed(0)
    made = Session(fx.symbolic_trace(Heads()), torch.randn(3, 60), passes=[MergeLinears()])
    made.apply("merge-linears")
    return made


def test_a_report_has_no_values_unless_they_are_asked_for(session: Session, tmp_path: Path):
    assert _data(session, measure=False, values=False)["values"] is None
    small, large = (
        fxlab.report(session, path=tmp_path / f"{values}.html", measure=False, values=values)
        for values in (False, True)
    )
    assert 10_000 < large.stat().st_size - small.stat().st_size < 200_000


def test_the_changed_nodes_have_theirs_in_all_graphs_of_the_last_stage(session: Session):
    data = _data(session, measure=False, values=True)
    values, stages = data["values"], data["stages"]
    assert values["graphs"] == [stages["alone"]["1"], stages["merged"]["1/0"]]
    assert list(values["nodes"]) == ["query_key_merged", "query", "key"]
    assert values["text"].startswith("This report has values of the nodes of the last stage")
    merged = values["nodes"]["query_key_merged"]
    assert [t["kind"] for t in merged["value"]["tensors"]] == ["value", "weight", "weight"]
    assert "stands for 2 nodes" in merged["value"]["notes"][0]
    assert [part["map"]["size"] for part in merged["parts"]] == [(3, 40), (40, 30), (1, 40)]
    query = values["nodes"]["query"]
    assert [t["kind"] for t in query["value"]["tensors"]] == ["value", "original", "difference"]
    assert len(query["parts"]) == 3
    json.dumps(values, allow_nan=False)


def test_what_was_left_out_is_said(session: Session, monkeypatch: Any):
    monkeypatch.setattr(written_values, "MOST_NODES", 1)
    found = written_values.written_values(session, [0])
    assert len(found["nodes"]) == 1
    assert "1 of the 3 nodes" in found["text"]
    session.revert()
    assert "no pass has changed a node" in written_values.written_values(session, [0])["text"]


def test_a_model_that_does_not_run_has_no_values_and_says_why():
    broken = Session(fx.symbolic_trace(Heads()), torch.randn(3, 7), passes=[MergeLinears()])
    broken.apply("merge-linears")
    found = written_values.written_values(broken, [0])
    assert found["nodes"] == {}
    assert "0 of the 3 nodes" in found["text"]
    assert "does not run on these inputs" in found["text"]
