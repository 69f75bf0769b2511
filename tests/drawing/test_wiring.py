"""Reads among nodes as numbers, against reading them off the graph one by one."""

import operator
import random

import numpy as np
from torch import fx

from fxlab.drawing.hierarchy.wiring import Wiring


def chain(blocks: int, block: int) -> list[fx.Node]:
    """Return calls of which each reads the one before and an input that is not among them."""
    graph = fx.Graph()
    start, node = graph.placeholder("x"), graph.placeholder("y")
    return [node := graph.call_function(operator.add, (node, start)) for _ in range(blocks * block)]


def test_stretches_that_are_wired_alike_are_equal_and_others_are_not() -> None:
    nodes = chain(blocks=3, block=4)
    nodes[9].args = (nodes[8], nodes[8])  # reads the start no longer
    wiring = Wiring(nodes)
    assert wiring.inside(0, 4) == wiring.inside(4, 8)
    assert wiring.inside(4, 8) != wiring.inside(8, 12)
    assert wiring.inside(0, 4) != wiring.inside(0, 5)


def test_a_read_within_a_stretch_differs_from_one_out_of_it() -> None:
    nodes = chain(blocks=2, block=3)
    nodes[5].args = (nodes[3], nodes[0])
    wiring = Wiring(nodes)
    assert wiring.inside(0, 3) != wiring.inside(3, 6)


def test_edges_of_nodes_in_another_order_are_those_of_the_graph() -> None:
    nodes = chain(blocks=5, block=8)
    wiring = Wiring(nodes)
    order = random.Random(0).sample(nodes, len(nodes))
    place = {node: number for number, node in enumerate(order)}
    expected = [
        (place[source], target)
        for target, node in enumerate(order)
        for source in node.all_input_nodes
        if source in place
    ]
    sources, targets = wiring.edges(order)
    assert np.stack([sources, targets], axis=1).tolist() == [list(edge) for edge in expected]


def test_no_nodes_have_no_edges() -> None:
    sources, targets = Wiring([]).edges([])
    assert len(sources) == len(targets) == 0
