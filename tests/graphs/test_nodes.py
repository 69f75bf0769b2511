"""The table of all nodes of a graph."""

import pytest
import torch
from planted import traced
from torch import nn

import fxlab
from fxlab import MergeLinears, Session, Transformation, nodes
from fxlab.models.graph_modules.copies import share_tensors_copy


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x):
        return torch.relu(self.query(x)) * self.key(x)


LINE = "return torch.relu(self.query(x)) * self.key(x)"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.heads = nn.Embedding(9, 4), nn.ModuleList(Head() for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        return torch.stack([head(x) for head in self.heads]).sum()


def session():
    graph = fxlab.symbolic_trace(Model().eval(), (torch.zeros(2, 3, dtype=torch.int64),))
    return Session(graph, passes=[MergeLinears()])


def test_a_row_says_what_is_known_of_a_node():
    table = nodes(session())
    assert table.index.name == "name"
    assert table.index.tolist() == [node.name for node in session().original.graph.nodes]
    row = table.loc["relu"]
    found = row[["op", "target", "module", "class"]].tolist()
    assert found == ["call_function", "torch.relu", "heads.0", "Head"]
    assert (row["shape"], row["dtype"]) == ((2, 3, 5), "float32")
    assert row["source"].splitlines()[0].endswith(" Head.forward: " + LINE)
    assert (row["inputs"], row["users"]) == (["heads_0_query"], ["mul"])
    assert table.loc["heads_1_key", "class"] == "Head Linear"
    assert table.loc["tokens", "dtype"] == "int64"


def test_a_method_has_not_the_class_of_a_module_of_its_name():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(x).relu()

    assert nodes(torch.fx.symbolic_trace(Twice()))["class"].tolist()[1:3] == ["ReLU", ""]


def test_an_operator_that_no_node_calls_selects_none():
    model = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    for operator in (torch.add, torch.relu, nn.functional.gelu, torch.ops.aten.add.Tensor, len):
        assert nodes(model, where=operator).empty
    assert [*nodes(model, where=lambda node: node.op == "output").index] == ["output"]


def test_targets_are_chosen_by_themselves_or_in_words():
    for target in (torch.relu, "torch.relu"):
        assert nodes(session(), target=target).index.tolist() == ["relu", "relu_1"]


def test_marks_are_names_of_passes():
    changed = session()
    changed.apply("merge-linears")
    marked = {node.name for node in changed.graph_module.graph.nodes if node.meta.get("transformations")}
    for model in (changed, changed.graph_module):
        table = nodes(model)
        assert {*table.index[table["marks"] == "merge-linears"]} == marked
        assert {*table["marks"]} == {"", "merge-linears"}


def test_a_pass_that_nobody_knows_is_named_by_its_signature():
    class Touch(Transformation):
        def transform(self, graph_module):
            self.mark_as_transformed(graph_module.graph.output_node())
            return graph_module

    graph, _ = traced("bert")
    touched = Touch()(share_tensors_copy(graph))
    assert nodes(touched).iloc[-1]["marks"] == Touch().signature


def test_a_selection_of_an_unknown_module_or_op_is_refused():
    model = fxlab.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Identity()), torch.ones(2, 4))
    for select in (lambda **one: nodes(model, **one), lambda **one: nodes(Session(model), **one)):
        with pytest.raises(ValueError, match=r"no node or module named '00'\. Did you mean '0'"):
            select(module="00")
        with pytest.raises(ValueError, match=r"op: expected one of placeholder, .* got 'call_func'"):
            select(op="call_func")
        assert len(select(module="0", op="output")) == 0
        assert len(select(op="get_attr")) == 0
        assert len(select(module="1")) in (0, 1)  # it may compute nothing
