"""``fxlab trace``."""

import json

import pytest
import torch
from torch import nn

import fxlab as package


@pytest.mark.slow
def test_it_says_what_a_trace_holds_for(fxlab, config_file):
    ended = fxlab("trace", config_file)
    assert ended.code == 0
    assert "BertModel" in ended.out
    assert "traced on  dynamic shapes" in ended.out
    assert "same bits as the model" in ended.out


def test_fixed_sizes_are_said_to_be_fixed(fxlab, tiny):
    answer = json.loads(fxlab("trace", tiny, "--fixed", "--json").out)
    assert answer["traced_on"] == "fixed shapes"
    assert not any(finding["kind"] == "symbolic size" for finding in answer["findings"])


def test_code_alone_is_printed_and_compiles(fxlab, tiny):
    out = fxlab("trace", tiny, "--no-check", "--code").out
    assert out.startswith("def forward(self, x):")
    compile(out, "model.py", "exec")


def test_nodes_are_those_of_the_graph_in_its_order(fxlab, tiny, tmp_path):
    path = tmp_path / "graph.pt"
    ended = fxlab("trace", tiny, "--no-check", "--nodes", "--json", "-o", path)
    rows = json.loads(ended.out)["graph"]
    graph = torch.load(path, weights_only=False).graph
    assert [row["node"] for row in rows] == [node.name for node in graph.nodes]
    assert {"op", "target", "inputs", "shape", "dtype", "module"} < rows[0].keys()


class Unrunnable(nn.Module):
    def forward(self, x):
        raise RuntimeError("this layer is broken")


def test_what_cannot_be_traced_ends_with_3_and_names_the_line(fxlab, tmp_path):
    torch.save((torch.ones(2),), tmp_path / "inputs.pt")
    ended = fxlab("trace", f"{__name__}:Unrunnable", "--inputs", tmp_path / "inputs.pt")
    assert ended.code == 3
    assert "this layer is broken" in ended.err
    assert "test_trace_command.py" in ended.err


class Branching(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_what_a_trace_warns_of_is_on_stderr(fxlab, tmp_path):
    torch.save((torch.ones(2),), tmp_path / "inputs.pt")
    ended = fxlab("trace", f"{__name__}:Branching", "--inputs", tmp_path / "inputs.pt")
    assert ended.code == 0
    assert ended.err.startswith("warning: The traced graph is specialised")
    assert "warning" not in ended.out


@pytest.mark.parametrize(
    ("path", "words"), [("no/folder/graph.pt", "no folder no/folder"), (".", "is a folder")]
)
def test_where_nothing_can_be_saved_it_says_so_before_anything_is_loaded(fxlab, path, words):
    ended = fxlab("trace", "there is no such model", "-o", path)
    assert ended.code == 2
    assert words in ended.err


def misnamed():
    model = nn.Sequential()
    model.add_module("a\x1b]0;title\x07", nn.ReLU())
    return package.symbolic_trace(model, torch.ones(2))


def test_control_characters_of_a_model_do_not_reach_the_terminal(fxlab):
    ended = fxlab("trace", f"{__name__}:misnamed", "--nodes")
    assert ended.code == 0
    assert "title" in ended.out
    assert "\x1b" not in ended.out
