"""The chart above the table of memory."""

import pandas as pd
import torch
from torch import nn

import fxlab
from fxlab.view_model.measurements import MEASUREMENTS
from fxlab.view_model.table_state import memory_chart

(MEMORY,) = [each for each in MEASUREMENTS if each.name == "memory"]


def test_the_table_of_a_step_has_a_chart_with_the_peak_of_the_original():
    blocks = (nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()) for _ in range(4))
    model = nn.Sequential(*blocks)
    step = fxlab.trace_step(model, torch.randn(2048, 64), loss=lambda output: output.square().mean())
    session = fxlab.Session(step, passes=[fxlab.ActivationCheckpointing(("1", "2", "3"))])
    session.apply("activation-checkpointing")
    frame, words = MEMORY.make(session)
    before = fxlab.memory(session.original, session.inputs).peak
    now = fxlab.memory(session).peak
    assert now < before
    chart = MEMORY.table(frame, {*frame.index})["chart"]
    assert chart["before"] == before
    sums = [sum(values) for values in zip(*(kind["values"] for kind in chart["kinds"]), strict=True)]
    assert max(sums) == now
    assert chart["names"][sums.index(max(sums))] in words
    assert {"Parameters", "Activations", "Gradients"} <= {kind["title"] for kind in chart["kinds"]}


def test_a_point_of_a_long_graph_is_the_largest_of_its_nodes():
    live = [number % 7 for number in range(2000)]
    frame = pd.DataFrame({"live": live, "Temporaries": live}, index=[f"n{i}" for i in range(2000)])
    chart = memory_chart(frame)
    assert len(chart["names"]) == 400
    assert {*chart["kinds"][0]["values"]} <= {4, 5, 6}
    assert chart["before"] is None
