"""The first page of a report: the verdict on a session in a few words."""

import torch
from torch import nn
from torch.fx import Graph, GraphModule

import fxlab
from fxlab.html_report.contents import verdict_words


def test_a_graph_that_returns_nothing_is_not_accused():
    graph = Graph()
    graph.call_method("sin", (graph.placeholder("x"),))
    graph.output(())
    session = fxlab.Session(GraphModule(nn.Module(), graph), torch.ones(2))
    session.apply("remove-dead-code")
    words, agrees, reason = verdict_words(session, judge=True)
    assert (words, agrees) == ("returns nothing", True)
    assert "nothing to compare" in reason
