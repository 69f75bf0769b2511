"""What a query finds in a graph."""

from __future__ import annotations

import contextlib
import operator
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

import fxlab
from fxlab import MergeLinears, Session, Transformation, find_nodes
from fxlab.view_model.search.query import QueryError


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.query(x)) * self.key(x)  # the product


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.heads = nn.ModuleList(Head() for _ in range(11))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        return torch.stack([head(x) for head in self.heads]).sum()


LINE = Head.forward.__code__.co_firstlineno + 1


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    return fxlab.symbolic_trace(Model().eval(), (torch.zeros(2, 3, dtype=torch.int64),))


@pytest.fixture(scope="module")
def session(traced: fx.GraphModule) -> Session:
    session = Session(traced, passes=[MergeLinears()])
    session.apply("merge-linears")
    return session


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("op:placeholder", ["tokens"]),
        ("name:heads_1 -name:query", ["heads_1_key"]),
        ("module:heads.1 op:call_module", ["heads_1_query", "heads_1_key"]),
        ("module:HEADS.10 target:relu", ["relu_10"]),
        ("class:Embedding", ["embed"]),
        ("class:Head target:key name:_3_", ["heads_3_key"]),
        ("class:torch.nn.modules.sparse", ["embed"]),
        ("shape:2x3 -shape:5", ["tokens", "embed"]),
        ("shape:(2, 3)", ["tokens"]),
        ("shape:[2,3]", ["tokens"]),
        ("shape:3×4", ["embed"]),  # noqa: RUF001
        ("shape:()", ["sum_1"]),
        ("dtype:int", ["tokens"]),
        ("dtype:I64", ["tokens"]),
        ("dtype:torch.int64", ["tokens"]),
        (f"source:test_node_index.py:{LINE} target:relu module:heads.0", ["relu"]),
        ('source:"the product" op:call_module module:heads.7', ["heads_7_query", "heads_7_key"]),
        (f"test_node_index.py:{LINE} relu_9", ["relu_9"]),
        ("Head.forward mul_4", ["mul_4"]),
        ("inputs:relu", ["tokens", "embed", "heads_0_query"]),
        ("users:stack", ["sum_1", "output"]),
        ("path:embed..mul_1", ["embed", "heads_1_query", "relu_1", "heads_1_key", "mul_1"]),
        ("path:sum_1..sum_1", ["sum_1"]),
        ("users:EMBED target:stack", ["stack"]),
        ("nowhere", []),
        ("", []),
    ],
)
def test_all_terms_must_hold(traced: fx.GraphModule, query: str, expected: list[str]) -> None:
    assert find_nodes(traced, query) == expected


@pytest.mark.parametrize(
    "name", ["F.gelu", "torch.nn.functional.gelu", "functional.gelu", "torch._C._nn.gelu"]
)
def test_a_function_is_found_by_any_of_its_names(name: str) -> None:
    graph_module = fx.symbolic_trace(lambda x: nn.functional.gelu(x) + 1)
    assert find_nodes(graph_module, f"target:{name}") == find_nodes(graph_module, name) == ["gelu"]


@pytest.mark.parametrize("query", ["by:merge-linears", "by:MERGE", "by:MergeLinears", 'by:"merge linears"'])
def test_nodes_are_found_by_the_pass_that_changed_them(session: Session, query: str) -> None:
    marked = [n.name for n in session.graph_module.graph.nodes if n.meta.get("transformations")]
    assert marked
    assert find_nodes(session, query) == marked
    assert find_nodes(session.graph_module, query) == marked, "the journal knows the pass"
    assert not set(find_nodes(session, f"-{query}")) & set(marked)


def test_a_pass_without_a_journal_is_known_if_it_is_given(traced: fx.GraphModule) -> None:
    class Touch(Transformation):
        def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
            for node in graph_module.graph.find_nodes(op="call_function", target=operator.mul):
                self.mark_as_transformed(node)
            return graph_module

    touched = Touch()(fx.symbolic_trace(Model().eval()))
    with pytest.raises(ValueError, match='There is no pass "touch"'):
        find_nodes(touched, "by:touch")
    assert len(find_nodes(touched, "by:touch", passes=[Touch()])) == 11
    assert len(find_nodes(touched, f"by:{Touch().signature[:10]}")) == 11


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("inputs:nobody", 'There is no node "nobody".'),
        ("users:stac", 'There is no node "stac". There is "stack".'),
        ("path:tokens..nobody", 'There is no node "nobody".'),
        ("path:tokens", "path: needs two nodes"),
        ("path:relu..mul_1", 'There is no path from "relu" to "mul_1".'),
        ("path:sum_1..embed", "There is a path in the opposite direction."),
        ("by:nothing", 'There is no pass "nothing".'),
        ("-by:nothing", 'There is no pass "nothing".'),
        ("shape:xx", "shape: needs sizes"),
        ("colour:red", 'There is no field "colour".'),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(session: Session, query: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        find_nodes(session, query)
    assert "\n" not in str(caught.value)


def test_an_argument_of_another_type_is_refused(traced: fx.GraphModule) -> None:
    with pytest.raises(TypeError, match=r"file or an fxlab.Session, got 'graph'"):
        find_nodes("graph", "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="query: expected a str, got 3"):
        find_nodes(traced, 3)  # type: ignore[arg-type]


some_edges = st.lists(st.lists(st.integers(0, 10**6), max_size=3), min_size=1, max_size=14)


@given(some_edges, st.data())
def test_reachability_is_that_of_all_paths(edges: list[list[int]], data: Any) -> None:
    graph = fx.Graph()
    nodes = [graph.placeholder("start")]
    for inputs in edges:
        nodes.append(graph.call_function(max, tuple(nodes[i % len(nodes)] for i in inputs)))
    graph_module = fx.GraphModule({}, graph)

    def before(node: fx.Node) -> set[str]:
        return {name for n in node.all_input_nodes for name in {n.name, *before(n)}}

    a, b = (data.draw(st.sampled_from(nodes)) for _ in range(2))
    order = [node.name for node in nodes]
    behind = {node.name for node in nodes if a.name in before(node)}
    assert find_nodes(graph_module, f"inputs:{b.name}") == sorted(before(b), key=order.index)
    assert find_nodes(graph_module, f"users:{a.name}") == sorted(behind, key=order.index)
    between = ({a.name} | behind) & ({b.name} | before(b))
    if between:
        found = find_nodes(graph_module, f"path:{a.name}..{b.name}")
        assert found == sorted(between, key=order.index)
    else:
        with pytest.raises(QueryError, match="There is no path"):
            find_nodes(graph_module, f"path:{a.name}..{b.name}")


@given(st.text(st.sampled_from('-:"()[]. path:by:shape:relu..xinputs:') | st.characters(), max_size=60))
def test_any_text_gets_an_answer(session: Session, query: str) -> None:
    names = [node.name for node in session.graph_module.graph.nodes]
    with contextlib.suppress(QueryError):
        found = find_nodes(session, query)
        assert found == [name for name in names if name in set(found)]


def test_calls_of_a_graph_without_scopes_are_found_by_their_classes():
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    for node in gm.graph.nodes:
        node.meta.pop("nn_module_stack", None)
    assert find_nodes(gm, "class:Linear") == ["_0"]
