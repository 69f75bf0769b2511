"""Graphs that differ in the order of their nodes alone."""

import torch
from torch import fx

import fxlab
from fxlab.graphs.reordering import reordering

C10D = torch.ops._c10d_functional
GATHER, REDUCE, WAIT = C10D.all_gather_into_tensor, C10D.reduce_scatter_tensor, C10D.wait_tensor


def traced(function) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def test_the_verdict_says_that_only_the_order_changed():
    def function(a, b):
        first, second = WAIT(GATHER(a, 2, "0")), b.sin()
        return first, second

    def start_last(gm):
        nodes = {node.name: node for node in gm.graph.nodes}
        for name in ("wait_tensor", "all_gather_into_tensor"):
            nodes["sin"].append(nodes[name])

    gm = traced(function)
    session = fxlab.Session(gm, passes=[fxlab.from_callable(start_last)])
    session.apply("start-last")
    verdict = session.verdict()
    assert verdict.same_bits
    assert "only the order changed" in str(verdict)
    assert verdict.max_abs_diff == 0
    assert set(fxlab.graph_diff(session.original, session.graph_module)["change"]) == {"moved"}
    assert str(session.changes("start-last")).endswith("moved")
    assert fxlab.verdict(gm, session.graph_module).reason == verdict.reason


def test_an_order_that_changes_values_is_no_proof():
    def function(x):
        y = x.sin()
        z = x.add_(1)
        return y, z

    def moved(first, behind):
        gm = traced(function)
        nodes = {node.name: node for node in gm.graph.nodes}
        nodes[behind].append(nodes[first])
        gm.recompile()
        return gm

    assert reordering(traced(function), moved("sin", "add_")) is None
    assert reordering(traced(function), traced(function)) is None

    def random(x):
        return torch.rand_like(x), torch.randn_like(x), x.sin()

    gm = traced(random)
    rand, randn, sin = (node for node in gm.graph.nodes if node.op.startswith("call"))
    rand.prepend(sin)
    assert reordering(traced(random), gm).moved == ("sin",)
    randn.append(rand)
    assert reordering(traced(random), gm) is None


def test_a_function_that_reorders_says_so_and_collectives_that_change_places_are_counted():
    def swap(gm):
        first, second = (n for n in gm.graph.nodes if n.target is GATHER or n.target is REDUCE)
        second.append(first)

    def function(a, b):
        first, second = GATHER(a, 2, "0"), REDUCE(b, "sum", 2, "0")
        return WAIT(first), WAIT(second)

    gm = traced(function)
    session = fxlab.Session(gm)
    session.add(fxlab.from_callable(swap))
    session.apply("swap")
    assert str(session.changes(session.applied[0])) == "1 node moved"
    assert reordering(gm, session.graph_module).collectives == 1
