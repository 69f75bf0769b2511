"""Collectives overlap with computation: starts move up, waits move down, and nothing else changes."""

import copy
import random

import pytest
import torch
import torch.distributed as dist
from torch import fx
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxlab
from fxlab.graphs.reordering import reordering

C10D = torch.ops._c10d_functional
GATHER, REDUCE, WAIT = C10D.all_gather_into_tensor, C10D.reduce_scatter_tensor, C10D.wait_tensor


def traced(function) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def gathered(shard):
    return WAIT(GATHER(shard, 2, "0"))


def order(gm):
    return [node.name for node in gm.graph.nodes if node.op not in ("placeholder", "output")]


def two_layers(a, b, x):
    y = (x @ gathered(a.to(torch.bfloat16)).t()).relu()
    return (y @ gathered(b.to(torch.bfloat16)).t()).relu()


def test_a_gather_starts_while_the_layer_before_computes_with_its_cast():
    gm = fxlab.OverlapCollectives()(traced(two_layers))
    assert order(gm) == [
        *("to", "all_gather_into_tensor", "wait_tensor", "t", "to_1", "all_gather_into_tensor_1"),
        *("matmul", "relu", "wait_tensor_1", "t_1", "matmul_1", "relu_1"),
    ]
    assert not fxlab.steps.collectives(gm)["exposed"].iloc[1]


def test_a_reduction_is_waited_for_while_the_next_computes_and_in_order():
    def function(x, y):
        first = WAIT(REDUCE(x.sin(), "sum", 2, "0")) / 2
        second = WAIT(REDUCE(y.cos(), "sum", 2, "0")) / 2
        return first, second

    gm = fxlab.OverlapCollectives()(traced(function))
    assert order(gm) == [
        *("sin", "reduce_scatter_tensor", "cos", "wait_tensor", "truediv"),
        *("reduce_scatter_tensor_1", "wait_tensor_1", "truediv_1"),
    ]
    code = gm.code
    assert order(fxlab.OverlapCollectives()(gm, reverse=True)) == order(traced(function))
    assert code != gm.code


@pytest.mark.parametrize(("nodes", "place"), [(0, 5), (2, 3), (20, 0)])
def test_nodes_bound_the_distance(nodes, place):
    def function(shard, x):
        y = x.sin().cos().tan().exp().log()
        return y, gathered(shard)

    gm = fxlab.OverlapCollectives(nodes=nodes)(traced(function))
    assert order(gm).index("all_gather_into_tensor") == place


def test_bytes_bound_those_that_are_on_their_way():
    def function(shards, x):
        for shard in shards:
            x = x.sin() + gathered(shard)
        return x

    graph = fx.Graph()
    x, shards = graph.placeholder("x"), [graph.placeholder(f"s{n}") for n in range(3)]
    known = torch.empty(4, device="meta")
    for shard in (x, *shards):
        shard.meta["val"] = known
    for shard in shards:
        x = graph.call_method("sin", (x,))
        start = graph.call_function(GATHER.default, (shard, 1, "0"))
        wait = graph.call_function(WAIT.default, (start,))
        x = graph.call_function(torch.add, (x, wait))
        for node in (x, start, wait, x):
            node.meta["val"] = known
    graph.output(x)
    gm = fx.GraphModule({}, graph)

    def most(gm):
        going, peak = 0, 0
        for node in gm.graph.nodes:
            going += {GATHER.default: 16, WAIT.default: -16}.get(node.target, 0)
            peak = max(peak, going)
        return peak

    assert most(fxlab.OverlapCollectives()(copy.deepcopy(gm))) == 48
    assert most(fxlab.OverlapCollectives(bytes=32)(copy.deepcopy(gm))) == 32
    assert order(fxlab.OverlapCollectives(bytes=0)(copy.deepcopy(gm))) == order(gm)


def test_no_node_passes_what_it_depends_on_or_what_writes_what_it_reads():
    def written(shard, x):
        y = x.sin()
        shard.add_(1)
        z = y.cos()
        return gathered(shard), z

    gm = fxlab.OverlapCollectives()(traced(written))
    assert order(gm) == ["sin", "add_", "all_gather_into_tensor", "cos", "wait_tensor"]

    def overwritten(x, y):
        wait = WAIT(REDUCE(x, "sum", 2, "0"))
        z = y.sin()
        x.zero_()
        return wait, z

    gm = fxlab.OverlapCollectives()(traced(overwritten))
    assert order(gm).index("wait_tensor") < order(gm).index("zero_")

    def dependent(x):
        return gathered(x.sin())

    table = fxlab.OverlapCollectives().explain(traced(dependent))
    assert table.loc["all_gather_into_tensor", "code"] == "nothing-to-pass"


def test_starts_keep_their_order_and_unknown_calls_are_not_passed():
    def function(a, b, x):
        first = REDUCE(x, "sum", 2, "0")
        y = x.sin()
        second = GATHER(a, 2, "0")
        return WAIT(first), WAIT(second), y

    gm = fxlab.OverlapCollectives()(traced(function))
    assert order(gm)[:2] == ["reduce_scatter_tensor", "all_gather_into_tensor"]

    graph = fx.Graph()
    x = graph.placeholder("x")
    done = graph.call_function(_anything, (x,))
    start = graph.call_function(GATHER.default, (x, 2, "0"))
    graph.output((graph.call_function(WAIT.default, (start,)), done))
    table = fxlab.OverlapCollectives().explain(fx.GraphModule({}, graph))
    assert table["code"].tolist() == ["nothing-to-pass"]


def _anything(x):
    return x


def test_the_verdict_says_that_only_the_order_changed():
    gm = traced(two_layers)
    session = fxlab.Session(gm, passes=[fxlab.OverlapCollectives()])
    session.apply("overlap-collectives")
    verdict = session.verdict()
    assert verdict.same_bits
    assert "only the order changed" in str(verdict)
    assert verdict.max_abs_diff == 0
    assert set(fxlab.graph_diff(session.original, session.graph_module)["change"]) == {"moved"}
    assert str(session.changes(session.applied[0])).endswith("nodes moved")
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


def _random_graph(seed):
    """Return a graph of collectives in a group of one, which writes nothing that is on its way."""
    choose = random.Random(seed)
    graph = fx.Graph()
    values = [graph.placeholder(name) for name in "abc"]
    memory = {value: value for value in values}
    waiting = []
    aten = torch.ops.aten
    for _ in range(25):
        value = choose.choice(values)
        kind = choose.randrange(6)
        if kind < 2:
            args = (value, 1, "0") if kind else (value, "sum", "0")
            waiting.append(graph.call_function((GATHER if kind else C10D.all_reduce).default, args))
        elif kind == 2 and waiting:
            values.append(graph.call_function(WAIT.default, (waiting.pop(choose.randrange(len(waiting))),)))
        elif kind == 3 and memory[value] not in [memory[start.args[0]] for start in waiting]:
            graph.call_function(aten.add_.Tensor, (value, 1))
        elif kind == 4:
            values.append(graph.call_function(aten.view.default, (value, [4])))
            memory[values[-1]] = memory[value]
        else:
            values.append(graph.call_function(aten.sin.default, (value,)))
        memory.setdefault(values[-1], values[-1])
    values += [graph.call_function(WAIT.default, (start,)) for start in waiting]
    graph.output(tuple(values))
    return fx.GraphModule({}, graph)


def test_moves_never_change_bits_and_are_proved_and_reversed():
    # In a group of gloo a wait has not ended, of a graph in which nothing was moved.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        moved = 0
        for seed in range(60):
            gm = _random_graph(seed)
            given = [torch.randn(4) for _ in "abc"]
            expected = gm(*(tensor.clone() for tensor in given))
            overlap = fxlab.OverlapCollectives(nodes=seed % 7 + 1)
            after = overlap(copy.deepcopy(gm))
            found = after(*(tensor.clone() for tensor in given))
            assert all(map(torch.equal, expected, found))
            if order(after) != order(gm):
                moved += 1
                assert reordering(gm, after).collectives == 0
            assert order(overlap(after, reverse=True)) == order(gm)
        assert moved > 30
    finally:
        dist.destroy_process_group()
