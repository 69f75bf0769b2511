"""What passes do in a body is what they do to the same graph alone, and is taken back bit by bit."""

import torch
from exactness import assert_is, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import recipes
from test_laws import PASSES, pytestmark, some_of
from torch import fx

__all__ = ["pytestmark"]

EXAMPLES = 8 if settings.get_current_profile_name() == "default" else settings.default.max_examples


@settings(max_examples=EXAMPLES)
@given(recipes(), some_of(PASSES), st.data())
def test_a_body_is_rewritten_as_the_graph_alone_and_comes_back(recipe, passes, data):
    alone, body = (recipe.trace(recipe.build()) for _ in range(2))
    outer = called(body)
    before = snapshot(outer)
    for pass_ in passes:
        has_reasons_of_bodies = pass_.explain(outer).code.str.startswith("body-").any()
        pass_(outer)
        if has_reasons_of_bodies:
            break
        pass_(alone)
        assert calls(body) == calls(alone)
    for pass_ in data.draw(st.permutations(passes)):
        pass_(outer, reverse=True)
    assert_is(outer, before)


def called(body: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that calls another one as its body."""
    graph = fx.Graph()
    x, inner = graph.placeholder("x"), graph.get_attr("body")
    graph.output(graph.call_function(torch.ops.higher_order.wrap, (inner, x)))
    return fx.GraphModule({"body": body}, graph)


def calls(gm: fx.GraphModule) -> list[tuple[str, ...]]:
    return [
        (node.name, node.op, str(node.target), repr(node.args), repr(node.kwargs)) for node in gm.graph.nodes
    ]
