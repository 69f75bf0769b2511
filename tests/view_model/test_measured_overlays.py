"""What a stage is coloured by is measured once, and anew when its weights have changed."""

import pytest
import torch
from torch import fx, nn

from fxlab import MergeLinears, Session
from fxlab.models.running.arguments import Inputs
from fxlab.overlays import Subject
from fxlab.view_model.measured_overlays import MeasuredOverlays


class TwoLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.a(x), self.b(x)], -1).relu()


def test_training_the_original_makes_what_was_measured_of_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[fx.GraphModule] = []

    class Counted(Subject):
        def __init__(
            self, graph_module: fx.GraphModule, original: fx.GraphModule, inputs: Inputs | None
        ) -> None:
            super().__init__(graph_module, original, inputs)
            measured.append(graph_module)

    monkeypatch.setattr("fxlab.view_model.measured_overlays.Subject", Counted)
    session = Session(fx.symbolic_trace(TwoLinears()), (torch.randn(3, 4),), passes=[MergeLinears()])
    session.apply("merge-linears")
    overlays = MeasuredOverlays(session)
    for stage in (*session.stages, *session.stages):
        overlays.of(stage, "flops")
    assert measured == [*session.stages]
    with torch.no_grad():
        session.original.get_parameter("a.weight").mul_(3)
    for stage in session.stages:
        overlays.of(stage, "flops")
    assert measured[2:] == [*session.stages]
