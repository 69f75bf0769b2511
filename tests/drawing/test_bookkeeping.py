"""What of a graph only serves the rest of it."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from drawing_models import boxes_of
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn
from torch.nn import functional

import fxlab
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.hierarchy.auxiliary_nodes import AuxiliaryNodes
from fxlab.drawing.rendering.box import make_boxes, title_of
from fxlab.operators.node_info import modules_by_path


def kinds_of(graph_module: fx.GraphModule) -> dict[str, str]:
    found = AuxiliaryNodes(graph_module, modules_by_path(graph_module))
    return {node.name: found.kinds[node] for node in graph_module.graph.nodes if node in found.kinds}


def traced(forward: Callable[..., Any], inputs: Mapping[str, torch.Tensor]) -> fx.GraphModule:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(16, 4))
            self.angles = nn.Buffer(torch.arange(4.0))

    Model.forward = forward  # type: ignore[assignment]
    return fxlab.symbolic_trace(Model().eval(), dict(inputs))


IDS = {"ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
MASKED = IDS | {"mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}


def test_a_mask_is_made_of_conditions_that_no_parameter_has_touched() -> None:
    def forward(self: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.table[ids]
        allowed = (1.0 - mask.to(hidden.dtype)) * -1e9
        rows = torch.arange(ids.size(1))
        causal = rows[:, None] >= rows
        return (hidden @ hidden.mT + allowed[:, None]).masked_fill(~causal, -1e9)

    kinds = kinds_of(traced(forward, MASKED))
    assert {kinds.pop(name) for name in ("to", "mul", "arange", "ge")} == {"mask"}
    assert not {"matmul", "add", "masked_fill", "getitem"} & kinds.keys()


def test_positions_are_whole_numbers_or_angles() -> None:
    def forward(self: Any, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.size(1))
        turns = (places[:, None].float() * self.angles).cos()
        return (self.table[ids] + self.table[places]) * turns

    graph_module = traced(forward, IDS)
    kinds = kinds_of(graph_module)
    assert {kinds[name] for name in ("arange", "float_1", "mul", "cos")} == {"positions"}
    assert "mul_1" not in kinds


def test_tokens_on_their_way_to_an_embedding_are_the_main_path() -> None:
    def forward(self: Any, ids: torch.Tensor) -> torch.Tensor:
        return self.table[ids.view(-1)] + self.table[ids.clone().flatten()]

    assert set(kinds_of(traced(forward, IDS)).values()) <= {"sizes", "checks"}


def test_what_leads_to_an_output_is_what_the_model_computes() -> None:
    def forward(self: Any, ids: torch.Tensor) -> torch.Tensor:
        return (ids + 1) * 2 > 3

    assert kinds_of(traced(forward, IDS)) == {}


AS_DATA: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "one-hot": lambda self, ids: functional.one_hot(ids, 16).float() @ self.table,
    "compared one-hot": lambda self, ids: (ids[..., None] == torch.arange(16)).float() @ self.table,
    "hashed": lambda self, ids: self.table[(ids * 31 + 7) % 16],
    "shifted": lambda self, ids: self.table[torch.cat([ids.new_zeros(2, 1), ids[:, :-1]], 1)],
    "padding replaced": lambda self, ids: self.table[ids.masked_fill(ids == 3, 0)],
    "sorted": lambda self, ids: self.table[ids.sort(-1).values],
    "feature": lambda self, ids: (ids[:, None].float() / 10) @ self.table[:3],
    "scaled feature": lambda self, ids: (ids.float() * self.table[:2, :3] + 1.0) @ self.table[:3],
    "timestep": lambda self, ids: (ids[..., None] * self.angles).sin() @ self.table[:4],
    "schedule": lambda self, ids: self.angles[ids % 4] * self.table[0, 0],
    "counts": lambda self, ids: torch.zeros(2, 16).scatter_add(1, ids, torch.ones(2, 3)) @ self.table,
    "bits": lambda self, ids: ((ids[..., None] >> torch.arange(16)) & 1).float() @ self.table,
}
"""Tokens, features, time steps and so on: whole numbers that are the model's data."""


@pytest.mark.parametrize("forward", AS_DATA.values(), ids=AS_DATA)
def test_whole_numbers_that_are_data_stay_on_the_main_path(forward: Callable[..., Any]) -> None:
    graph_module = traced(forward, IDS)
    kinds = kinds_of(graph_module)
    (ids,) = graph_module.graph.find_nodes(op="placeholder")
    reached = {ids}
    for node in graph_module.graph.nodes:
        if reached.intersection(node.all_input_nodes):
            reached.add(node)
    assert {kinds.get(node.name) for node in reached} <= {None, "sizes", "checks"}
    assert len(reached) > 3


def test_flags_that_are_multiplied_with_parameters_or_choose_some_are_data() -> None:
    def forward(self: Any, flags: torch.Tensor) -> torch.Tensor:
        return flags[:, None].float() @ self.table[:3] + self.table[flags.long()]

    flags = {"flags": torch.tensor([[True, False, True], [False, True, True]])}
    assert not {"mask", "positions"} & set(kinds_of(traced(forward, flags)).values())


def test_edges_of_a_graph_and_the_weights_computed_of_them_are_data() -> None:
    def forward(self: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        with_loops = torch.cat([edges, torch.arange(4).repeat(2, 1)], 1)
        sources, targets = with_loops[0], with_loops[1]
        degree = torch.zeros(4).scatter_add(0, targets, torch.ones(7)).rsqrt()
        messages = x[sources] * (degree[sources] * degree[targets])[:, None]
        return torch.zeros(4, 4).index_add(0, targets, messages)

    inputs = {"x": torch.randn(4, 4), "edges": torch.tensor([[0, 1, 2], [1, 2, 3]])}
    kinds = kinds_of(traced(forward, inputs))
    assert not {"cat", "scatter_add", "rsqrt", "mul", "getitem"} & kinds.keys()
    assert "mask" not in kinds.values()


def test_positions_counted_of_conditions_and_masks_added_to_biases_are_bookkeeping() -> None:
    def forward(self: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        is_token = (ids != 1).int()
        hidden = self.table[ids] + self.table[torch.cumsum(is_token, 1) * is_token + 1]
        bias = self.table[:3, :3] + (1.0 - mask.to(hidden.dtype))[:, None] * -1e9
        return (hidden @ hidden.mT + bias).softmax(-1)

    kinds = kinds_of(traced(forward, MASKED))
    assert {kinds.get(name) for name in ("ne", "int_1", "cumsum")} == {"positions"}
    assert {kinds.get(name) for name in ("to", "sub")} == {"mask"}


def test_decisions_on_data_and_random_numbers_are_no_bookkeeping() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(x.size(0), x.size(1))
        return torch.where(x > 0, x, x + noise)

    graph_module = traced(forward, {"x": torch.ones(2, 3)})
    kinds = kinds_of(graph_module)
    assert "rand" in {node.name for node in graph_module.graph.nodes}
    assert set(kinds.values()) == {"sizes", "checks"}


def test_small_integers_may_be_quantized_weights_and_a_table_of_floats_is_one() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.ones(4, 4, dtype=torch.int8))
            self.table = nn.Buffer(torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.float() + self.table.exp()

    assert kinds_of(fxlab.symbolic_trace(Quantized(), torch.ones(4, 4))) == {}


def test_checks_and_what_only_they_ask() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    total = graph.call_method("sum", (x,))
    graph.call_function(torch._assert, (graph.call_function(operator.gt, (total, 0)), "positive"))
    graph.call_function(print, (x,))
    graph.output(graph.call_function(operator.mul, (x, 2)))
    kinds = kinds_of(fx.GraphModule(nn.Module(), graph))
    assert kinds == {"sum_1": "checks", "gt": "checks", "_assert": "checks"}


def test_without_results_sizes_are_known_by_what_is_called() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x, 0))
    shape = graph.call_function(builtins.getattr, (x, "shape"))
    last = graph.call_function(operator.getitem, (shape, -1))
    area = graph.call_function(operator.mul, (size, last))
    data = graph.call_function(builtins.getattr, (x, "data"))
    read = graph.call_method("item", (x,))
    graph.output(graph.call_method("view", (graph.call_function(operator.add, (data, read)), area)))
    kinds = kinds_of(fx.GraphModule(nn.Module(), graph))
    assert kinds == dict.fromkeys(["size", "getattr_1", "getitem", "mul"], "sizes")


def test_objects_that_are_returned_are_drawn_with_the_output(bert_with_cache: fx.GraphModule) -> None:
    hierarchy = build_hierarchy(bert_with_cache)
    output = hierarchy.groups["#output"]
    assert output.host is hierarchy.leaves[-1]
    assert output.host.node.op == "output"
    assert {leaf.bookkeeping for leaf in output.children[:-1]} == {"results"}
    box = make_boxes(View(hierarchy), {}, ())[output.id]
    assert (box.kind, box.title) == ("output", "output")
    assert box.lines[0].startswith("logits")
    assert View(hierarchy).reveal(["output"]).opened == View(hierarchy).opened  # its box bears its name
    assert View(hierarchy).reveal(output.children[0].names).opened == View(hierarchy).opened | {output.path}
    assert "fx-bookkeeping" not in box.classes


def test_what_is_made_of_one_input_is_drawn_with_it() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            first = x.masked_fill((keep == 0)[:, None].expand(x.size(0), x.size(1)), 0.0)
            return first + x.masked_fill((keep == 0) & (other == 0), 1.0).mean(0)

    graph_module = fxlab.symbolic_trace(
        Model(), (torch.ones(3, 3), torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    )
    hierarchy = build_hierarchy(graph_module)
    view = View(hierarchy)
    boxes = make_boxes(view, {}, ())
    served = [group.path for group in hierarchy.groups.values() if group.kind == "bookkeeping"]
    assert "#x" in served, "its sizes, and the checks of all inputs"
    assert boxes[hierarchy.groups["#x"].id].lines[0].endswith(" f32 · 2 size reads, 3 checks")
    assert "#" in served, "a mask of two inputs is a box"
    assert title_of(hierarchy.groups["#"]).startswith("mask")
    ends = {(edge.source.id, edge.target.id) for edge in view.edges}
    assert {source for source, target in ends if target == hierarchy.groups["#"].id} == {
        boxes_of(view)["keep"],
        boxes_of(view)["other"],
    }


def test_a_mask_of_one_input_has_no_box_of_its_own() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(keep[:, None] == 0, 0.0)

    graph_module = fxlab.symbolic_trace(Model(), (torch.ones(3, 4), torch.ones(3, dtype=torch.int64)))
    hierarchy = build_hierarchy(graph_module)
    view = View(hierarchy)
    assert "mask of 2 nodes" in make_boxes(view, {}, ())[boxes_of(view)["keep"]].lines[0]
    assert boxes_of(view)["eq"] == boxes_of(view)["keep"]
    assert (boxes_of(view)["keep"], boxes_of(view)["masked_fill"]) in {
        (e.source.id, e.target.id) for e in view.edges
    }
    assert boxes_of(view.open("#keep"))["eq"] != boxes_of(view.open("#keep"))["keep"]


@pytest.fixture(scope="module")
def bert_with_cache() -> fx.GraphModule:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=30, n_positions=16)
    return fxlab.symbolic_trace(GPT2LMHeadModel(config).eval())


def test_closed_bookkeeping_draws_no_lines_of_sizes(bert_with_cache: fx.GraphModule) -> None:
    hierarchy = build_hierarchy(bert_with_cache)
    closed = View(hierarchy)
    kinds = {leaf.bookkeeping for leaf in hierarchy.groups["#input_ids"].children}
    assert {"sizes", "checks"} <= kinds
    drawn = {source.name for edge in closed.edges for source in edge.leaves}
    assert "input_ids" in drawn
    assert not any(leaf.bookkeeping == "sizes" for leaf in hierarchy.leaves if leaf.name in drawn)
    opened = closed.open("#input_ids")
    assert any(leaf.bookkeeping == "sizes" for edge in opened.edges for leaf in edge.leaves)


def test_a_module_that_only_serves_is_one_box_and_stays_closed() -> None:
    class Angles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.Buffer(torch.arange(4.0))

        def forward(self, places: torch.Tensor) -> torch.Tensor:
            return (places[:, None] * self.steps).cos()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles, self.linear = Angles(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.angles(torch.arange(x.size(0)))

    hierarchy = build_hierarchy(fxlab.symbolic_trace(Model(), torch.ones(3, 4)))
    assert [child.name for child in hierarchy.groups["angles"].children] == ["getitem", "mul", "cos"]
    assert "angles" not in View.default(hierarchy).opened


@given(
    st.lists(st.sampled_from(["add", "size", "arange", "cast", "compare", "assert"]), max_size=12), st.data()
)
def test_nothing_that_a_touched_value_reaches_is_hidden(steps: list[str], data: st.DataObject) -> None:
    """Whatever is computed of an input of floating point and reaches the output has a box of its own."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2, 3)
    values, touched = [x], {x}
    for step in steps:
        source = data.draw(st.sampled_from(values))
        if step == "assert":
            graph.call_function(torch._assert, (source, "no"))
            continue
        if step == "arange":
            node = graph.call_function(torch.arange, (3,))
            node.meta["val"] = torch.arange(3)
        elif step == "size":
            node = graph.call_method("size", (source, 0))
            node.meta["val"] = 2
        else:
            other = data.draw(st.sampled_from(values))
            target = {"add": operator.add, "cast": torch.mul, "compare": operator.lt}[step]
            node = graph.call_function(target, (source, other))
            dtype = torch.bool if step == "compare" else torch.float32
            node.meta["val"] = torch.ones(2, 3, dtype=dtype)
            if {source, other} & touched:
                touched.add(node)
        values.append(node)
    graph.output(tuple(values))
    graph_module = fx.GraphModule(nn.Module(), graph)
    kinds = kinds_of(graph_module)
    # All are returned, so none but sizes, checks and what only leads to those may be folded.
    assert not {node.name for node in touched} & kinds.keys()
    hierarchy = build_hierarchy(graph_module)
    assert sorted(hierarchy.names) == sorted(node.name for node in graph.nodes)
