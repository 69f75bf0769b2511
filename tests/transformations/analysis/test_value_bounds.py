"""A bound of a value holds for every dtype, also where whole numbers wrap around."""

import operator
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

from fxlab.rewriting import GraphFacts, largest_magnitude

DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int64, torch.float16, torch.float32)
BINARY = (torch.add, torch.sub, torch.mul, operator.add, operator.sub, operator.mul, torch.rsub)
UNARY: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("call_function", torch.neg, ()),
    ("call_function", torch.abs, ()),
    ("call_method", "flip", (0,)),
    *(("call_method", "to", (dtype,)) for dtype in DTYPES),
)
STEPS = st.tuples(st.integers(0, len(BINARY) + len(UNARY) - 1), st.integers(0, 9), st.integers(0, 9))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    lowest = -40000 if dtype.is_floating_point else torch.iinfo(dtype).min
    highest = 40000 if dtype.is_floating_point else torch.iinfo(dtype).max
    numbers = st.integers(max(lowest, -(2**31)), min(highest, 2**31))
    return torch.tensor(draw(st.lists(numbers, min_size=2, max_size=2)), dtype=dtype)


def arithmetic(buffers: list[torch.Tensor], steps: list[tuple[int, int, int]]) -> fx.GraphModule:
    """Return a graph of some steps on the results so far, which begin with two buffers."""
    root, graph = nn.Module(), fx.Graph()
    made = []
    for place, buffer in enumerate(buffers):
        root.register_buffer(f"buffer_{place}", buffer)
        made.append(graph.get_attr(f"buffer_{place}"))
    for step, left, right in steps:
        first, second = made[left % len(made)], made[right % len(made)]
        if step < len(BINARY):
            made.append(graph.call_function(BINARY[step], (first, second)))
        else:
            op, target, rest = UNARY[step - len(BINARY)]
            made.append(graph.create_node(op, target, (first, *rest)))
    graph.output(made[-1])
    return fx.GraphModule(root, graph)


class Run(fx.Interpreter):
    """Runs a graph and notes what each node computed."""

    def run_node(self, node: fx.Node) -> object:
        node.meta["val"] = super().run_node(node)
        return node.meta["val"]


@given(tensors(), tensors(), st.lists(STEPS, min_size=1, max_size=4))
def test_bound_is_not_exceeded(
    first: torch.Tensor, second: torch.Tensor, steps: list[tuple[int, int, int]]
) -> None:
    graph_module = arithmetic([first, second], steps)
    Run(graph_module).run()
    facts = GraphFacts(graph_module)
    for node in graph_module.graph.nodes:
        if node.op != "output":
            bound = largest_magnitude(node, facts)
            assert not (node.meta["val"].double().abs() > bound * (1 + 1e-2)).any(), (node, bound)


def test_the_negative_of_a_number_without_a_sign_has_no_bound():
    ones = torch.ones(2, dtype=torch.uint8)
    gm = arithmetic([ones, ones], [(len(BINARY), 0, 0)])
    Run(gm).run()
    (negative,) = gm.graph.output_node().all_input_nodes
    assert largest_magnitude(negative, GraphFacts(gm)) >= float(negative.meta["val"].max()) == 255


def test_a_negative_number_as_one_without_a_sign_has_no_bound():
    root, graph = nn.Module(), fx.Graph()
    root.register_buffer("signed", torch.tensor([-1, 0, 1], dtype=torch.int8))
    node = graph.call_method("to", (graph.get_attr("signed"), torch.uint8))
    graph.output(node)
    assert largest_magnitude(node, GraphFacts(fx.GraphModule(root, graph))) >= 255


def test_a_difference_the_other_way_round_is_bounded_as_well():
    graph = fx.Graph()
    graph.output(graph.call_function(torch.rsub, (graph.get_attr("value"), 3)))
    gm = fx.GraphModule({"value": torch.tensor([-4.0, 2.0])}, graph)
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.rsub)
    node.meta["val"] = torch.empty(2, device="meta")
    assert largest_magnitude(node, GraphFacts(gm)) == 7


def test_whole_numbers_have_a_bound_up_to_where_they_wrap_around() -> None:
    bounds = []
    for dtype in (torch.int8, torch.uint8):
        graph_module = arithmetic([torch.tensor([3], dtype=dtype)] * 2, [(0, 0, 1)])
        Run(graph_module).run()
        (add,) = graph_module.graph.find_nodes(op="call_function", target=torch.add)
        bounds.append(largest_magnitude(add, GraphFacts(graph_module)))
    assert bounds == [6, torch.inf]
