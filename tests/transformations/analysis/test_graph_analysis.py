"""What is known of a graph before it is changed: who else holds a tensor's memory."""

import torch
from torch import fx

from fxlab.rewriting import GraphFacts


def test_slices_of_one_storage_share_memory_where_they_have_a_byte_in_common():
    numbers = torch.zeros(12)
    held = {"first": numbers[:4], "second": numbers[4:8], "third": numbers[6:]}
    graph = fx.Graph()
    graph.output(tuple(graph.get_attr(name) for name in held))
    module = fx.GraphModule(held, graph)
    facts = GraphFacts(module)

    def others(name):
        found = facts.holders(module.get_buffer(name), "", name)
        return {other for other in held if other != name and any(other in holder for holder in found)}

    assert [others(name) for name in held] == [set(), {"third"}, {"second"}]
