"""Values of nodes that are computed when a page asks for them."""

from __future__ import annotations

import base64
import json
import signal
from typing import Any

import numpy as np
import pytest
import torch
from inspected import FUSE, MERGE, Page
from torch import fx, nn

from fxlab import Session
from fxlab.notebook import looked_at_values
from fxlab.notebook.inspector import Inspector
from fxlab.notebook.page.messages import LONGEST_LIST, MessageError, parse_message

WIRE = 200_000


class Attends(nn.Module):
    """Scores of two batches and three heads, some of which become NaN on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(200, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        scores = x @ x.transpose(-1, -2)
        return torch.softmax(scores, -1), (scores - scores) / 0.0


@pytest.fixture(scope="module")
def attending() -> Page:
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Attends().eval()), torch.randn(2, 3, 5, 200))
    return Page(Inspector(session))


def value(
    page: Page, name: str, before: int | None = None, graph: int | None = None, inputs: str = ""
) -> dict[str, Any]:
    number = page.number if graph is None else graph
    message = {"type": "value", "graph": number, "name": name, "before": before, "inputs": inputs}
    found: dict[str, Any] = page.asks(message)
    return found


def part(page: Page, name: str, tensor: int = 0, inputs: str = "", **axes: Any) -> dict[str, Any]:
    axes = {"rows": None, "columns": None, "index": [], **axes}
    place = {"graph": page.number, "name": name, "before": None, "inputs": inputs}
    message = {"type": "value-part", **place, "tensor": tensor}
    found: dict[str, Any] = page.asks({**message, **axes})
    return found


def cells(part: dict[str, Any]) -> np.ndarray[Any, Any]:
    map_ = part["map"]
    return np.frombuffer(base64.b64decode(map_["cells"]), f"<{map_['numbers']}").reshape(map_["size"])


def test_a_value_is_what_the_node_computes_on_the_inputs_of_the_session(attending: Page):
    answer = value(attending, "softmax")
    session = attending.inspector.session
    expected, _ = session.graph_module(session.inputs)
    assert answer["state"] == "ready"
    assert answer["value"]["tensors"] == [
        {"kind": "value", "name": "output", "shape": [2, 3, 5, 5], "dtype": "float32"}
    ]
    assert answer["part"]["map"]["index"] == [0, 0, None, None]
    np.testing.assert_array_equal(cells(answer["part"]), expected[0, 0].detach().numpy())
    assert sum(answer["part"]["histogram"]["counts"]) == expected.numel()
    assert answer["part"]["statistics"][0]["nan"] == 0


def test_all_heads_are_beside_each_other_as_small_maps(attending: Page):
    small = value(attending, "softmax")["part"]["map"]["small"]
    expected, _ = attending.inspector.session.graph_module(attending.inspector.session.inputs)
    numbers = np.frombuffer(base64.b64decode(small["cells"]), "<f4").reshape(small["count"], *small["size"])
    assert (small["dimension"], small["first"]) == (1, 0)
    np.testing.assert_array_equal(numbers, expected[0].detach().numpy())
    along = part(attending, "softmax", rows=1, columns=3, index=[1, 0, 4, 0])["part"]["map"]["small"]
    assert (along["dimension"], along["count"], along["size"]) == (2, 5, (3, 5))
    assert part(attending, "linear", tensor=1)["part"]["map"]["small"] is None


def test_another_head_and_other_axes_are_read_without_another_run(attending: Page, monkeypatch: Any):
    value(attending, "softmax")
    session = attending.inspector.session
    expected = session.graph_module(session.inputs)[0].detach()
    monkeypatch.setattr(looked_at_values, "values_in", None)
    head = part(attending, "softmax", rows=2, columns=3, index=[1, 2, 0, 0])["part"]
    np.testing.assert_array_equal(cells(head), expected[1, 2].numpy())
    heads = part(attending, "softmax", rows=3, columns=1, index=[1, 0, 4, 0])["part"]
    np.testing.assert_array_equal(cells(heads), expected[1, :, 4].T.numpy())


def test_a_model_that_was_trained_meanwhile_is_run_again(attending: Page):
    value(attending, "linear")
    before = part(attending, "linear")["part"]
    linear = attending.inspector.session.original.linear
    with torch.no_grad():
        linear.bias.add_(1.0)
    after = part(attending, "linear")["part"]
    assert after["statistics"][0]["mean"] == pytest.approx(before["statistics"][0]["mean"] + 1.0, abs=1e-5)


def test_weights_are_shown_as_maps_that_say_what_a_cell_stands_for(attending: Page):
    tensors = value(attending, "linear")["value"]["tensors"]
    assert [(t["kind"], t["name"]) for t in tensors] == [
        ("value", "output"), ("weight", "weight"), ("weight", "bias"),
    ]  # fmt: skip
    found = part(attending, "linear", tensor=1)["part"]["map"]
    assert (found["shape"], found["size"], found["block"]) == ((200, 200), (100, 100), (2, 2))
    bias = part(attending, "linear", tensor=2)["part"]["map"]
    assert (bias["rows"], bias["columns"], bias["shape"]) == (None, 0, (1, 200))


def test_nan_is_counted_and_said_where_it_comes_from(attending: Page):
    answer = value(attending, "truediv")
    statistics = answer["part"]["statistics"][0]
    assert (statistics["nan"], statistics["min"], statistics["firstNonFinite"]) == (150, "nan", [0, 0, 0, 0])
    assert (answer["value"]["firstNan"], answer["value"]["firstInf"]) == ("truediv", None)
    assert np.isnan(cells(answer["part"])).all()
    json.dumps(answer, allow_nan=False)


def test_a_changed_node_has_both_stages_and_their_difference(page: Page):
    page.switches(FUSE, True)
    answer = value(page, "stem_conv")
    kinds = [(t["kind"], t["name"]) for t in answer["value"]["tensors"][:3]]
    assert kinds == [("value", "output"), ("original", "output"), ("difference", "output")]
    assert answer["value"]["compared"] == "Original"
    new, old, difference = answer["part"]["statistics"]
    assert abs(difference["mean"]) < 1e-5 < new["std"]
    assert old["mean"] == pytest.approx(new["mean"], abs=1e-5)


def test_a_value_is_compared_with_the_stage_that_the_page_compares_with(page: Page):
    page.switches(FUSE, True)
    page.switches(MERGE, True)
    version = page.inspector._shown_stages["version"]
    page.asks({"type": "graph", "version": version, "stage": 2, "before": 1, "beside": False})
    graph = page.inspector._shown_stages["merged"]["2/1"]
    answer = value(page, "mul", before=1, graph=graph)
    assert answer["value"]["compared"] == "1. Fuse batch norm2d in conv2d"
    assert {t["kind"] for t in answer["value"]["tensors"]} == {"value", "original", "difference"}
    page.asks({"type": "graph", "version": version, "stage": 2, "before": 0, "beside": False})
    graph = page.inspector._shown_stages["merged"]["2/0"]
    gone = value(page, "stem_norm", before=0, graph=graph)
    assert {t["kind"] for t in gone["value"]["tensors"]} == {"value", "weight"}
    assert (gone["value"]["compared"], gone["value"]["at"]) == ("", "Original")
    merged = value(page, "query_key_merged", before=0, graph=graph)
    assert "stands for 2 nodes" in merged["value"]["notes"][0]


def test_what_is_missing_is_said():
    page = Page(Inspector(Session(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3))))))
    answer = value(page, "_0")
    assert "no inputs" in answer["value"]["notes"][0]
    assert [t["kind"] for t in answer["value"]["tensors"]] == ["weight", "weight"]
    meta = Page(Inspector(Session(fx.symbolic_trace(nn.Linear(2, 3).to("meta")), torch.ones(1, 2))))
    node = next(n.name for n in meta.inspector.session.original.graph.nodes if n.op == "get_attr")
    assert "on the meta device" in " ".join(value(meta, node)["value"]["notes"])
    assert value(meta, node)["value"]["tensors"] == []


def test_inputs_that_the_model_does_not_take_are_said_in_place(page: Page):
    session = Session(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3))), torch.ones(1, 5))
    own = Page(Inspector(session))
    answer = value(own, "_0")
    assert answer["state"] == "failed"
    assert "does not run on these inputs" in answer["text"]
    assert own.error is None


def test_an_interrupt_ends_it_and_leaves_the_inspector_as_it_was(page: Page, monkeypatch: Any):
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(looked_at_values, "values_in", interrupted)
    assert value(page, "mul") == {"state": "cancelled"}
    assert page.error is None
    assert page.inspector._shown_status["busy"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"tensor": 7},
        {"tensor": -1},
        {"rows": 9, "columns": 0},
        {"rows": 1, "columns": 1},
        {"rows": 2, "columns": 3, "index": [2, 0, 0, 0]},
        {"rows": 2, "columns": 3, "index": [0]},
    ],
)
def test_a_part_that_there_is_not_is_refused_in_words(attending: Page, wrong: dict[str, Any]):
    answer = part(attending, "softmax", **wrong)
    assert answer["state"] == "failed"
    assert answer["text"]


@pytest.mark.parametrize("before", [-1, 1, 10**30])
def test_a_stage_that_there_is_not_is_refused(attending: Page, before: int):
    assert value(attending, "softmax", before=before) is None
    assert "no stage" in attending.error["text"]
    assert value(attending, "x", graph=99) is None


def test_a_list_of_indices_is_checked():
    good = {
        "type": "value-part", "graph": 0, "name": "x", "before": None, "inputs": "",
        "tensor": 0, "rows": None, "columns": None, "index": [0, 1],
    }  # fmt: skip
    assert parse_message(good)[1]["index"] == [0, 1]
    for index in ([True], ["0"], [1.0], [[0]], [0] * (LONGEST_LIST + 1), (0,)):
        with pytest.raises(MessageError):
            parse_message({**good, "index": index})


def test_a_value_is_shown_on_other_inputs_and_the_session_stays_on_its_own(monkeypatch: Any):
    torch.manual_seed(0)
    inputs = torch.randn(2, 4)
    session = Session(fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()), inputs)
    page = Page(Inspector(session))
    choices = value(page, "_1")["value"]["inputs"]
    assert (choices["chosen"], choices["batches"]) == ("", 0)
    assert {"name": "variant batch of 17", "title": "made: batch of 17"} in choices["choices"]
    assert value(page, "_1", inputs="variant batch of 17")["value"]["tensors"][0]["shape"] == [17, 4]

    batches = [torch.randn(3, 4), (torch.randn(5, 4), "a label")]
    session.evaluate(batches)
    for number, batch in ((0, batches[0]), (1, batches[1][0])):
        answer = value(page, "_1", inputs=f"batch {number}")
        expected = session.graph_module(batch).detach().numpy()
        np.testing.assert_array_equal(cells(answer["part"]), expected)
        monkeypatch.setattr(looked_at_values, "values_in", None)
        again = part(page, "_1", inputs=f"batch {number}")["part"]
        np.testing.assert_array_equal(cells(again), expected)
        monkeypatch.undo()
    worst = session._internals.evaluation.worst[0].number
    choices = answer["value"]["inputs"]
    assert (choices["chosen"], choices["batches"]) == ("batch 1", 2)
    assert choices["choices"][1] == {"name": f"batch {worst}", "title": f"worst batch {worst}: same bits"}
    assert session.inputs is inputs
    for wrong in ("batch 2", "batch -1", "batch x", "batch " + "9" * 5000, "variant none", "no such"):
        answer = value(page, "_1", inputs=wrong)
        assert (answer["state"], answer["text"] != "") == ("failed", True)
    session.evaluate(iter(batches))
    assert value(page, "_1")["value"]["inputs"]["batches"] == 0


def test_no_variants_are_made_of_large_inputs():
    session = Session(fx.symbolic_trace(nn.ReLU()), torch.zeros(2, 2**19 + 1))
    page = Page(Inspector(session))
    assert len(value(page, "input_1")["value"]["inputs"]["choices"]) == 1


def test_little_crosses_the_wire_whatever_the_size(page: Page):
    class Large(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    own = Page(Inspector(Session(fx.symbolic_trace(Large()), torch.randn(1000, 1000))))
    assert len(json.dumps(value(own, "mul"))) < WIRE / 2
    exact = Session(fx.symbolic_trace(Large()), torch.randn(600, 700, dtype=torch.float64))
    answer = value(Page(Inspector(exact)), "mul")
    assert answer["part"]["map"]["numbers"] == "f8"
    assert len(json.dumps(answer)) < WIRE
