"""What was done in the bodies of a graph is told under names of their own."""

import torch
from torch import fx, nn

from fxlab import FoldConstants, MergeLinears
from fxlab.transformations.journal.records_in_bodies import records_of


def body() -> fx.GraphModule:
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.query(x) * self.key(x)

    return fx.symbolic_trace(Body())


def with_bodies() -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_module("first", (x,)), graph.call_module("second", (x,))))
    return fx.GraphModule({"first": body(), "second": body()}, graph)


def test_records_of_bodies_have_the_paths_of_these_before_all_their_names():
    gm = with_bodies()
    expected = gm(torch.ones(2, 3))
    merged = MergeLinears()(gm)
    for now, then in zip(merged(torch.ones(2, 3)), expected, strict=True):
        torch.testing.assert_close(now, then)
    first, second = records_of(merged)
    assert first.candidate == ("first/query", "first/key")
    assert second.candidate == ("second/query", "second/key")
    assert {change.name.partition("/")[0] for change in first.nodes} == {"first"}
    changed = {change.name: change for change in first.nodes}
    assert changed["first/query"].before.target == "first.query"
    assert changed["first/query"].before.inputs == ["first/x"]
    (change,) = first.modules
    assert {*change.originals} == {"first.query", "first.key"}
    assert change.at.startswith("first.")
    assert set(change.callers) <= {"first/query", "first/key"}


def test_paths_of_bodies_in_bodies_are_joined():
    graph = fx.Graph()
    graph.output(graph.call_module("outer", (graph.placeholder("x"),)))
    record, _ = records_of(MergeLinears()(fx.GraphModule({"outer": with_bodies()}, graph)))
    assert record.candidate == ("outer/first/query", "outer/first/key")
    assert {*record.modules[0].originals} == {"outer.first.query", "outer.first.key"}


def test_what_a_node_reads_of_a_body_is_told_with_its_path_and_what_it_calls_as_it_is():
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, x):
            return x + torch.relu(self.weight)

    graph = fx.Graph()
    graph.output(graph.call_module("first", (graph.placeholder("x"),)))
    gm = fx.GraphModule({"first": fx.symbolic_trace(Body())}, graph)
    (record,) = records_of(FoldConstants()(gm))
    before = {change.name: change.before for change in record.nodes}
    assert before["first/weight"].target == "first.weight"
    assert before["first/relu"].target is torch.relu
