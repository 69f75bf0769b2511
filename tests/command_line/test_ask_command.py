"""``fxlab nodes``, ``explain`` and ``why-not``, and passes in Python code."""

import csv
import io
import json

import pytest

MADE = """
import torch
from torch import nn

import fxlab

def make():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout()
    return nn.Sequential(*layers).eval(), torch.ones(1, 3, 8, 8)

def double(graph_module):
    graph_module.get_submodule("0").weight.data.mul_(2)
    return graph_module

class NoReLU(fxlab.Transformation):
    def transform(self, graph_module):
        raise KeyError("here")
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"{tmp_path.name}.py"  # Python imports a name once
    (tmp_path / name).write_text(MADE)
    return name


def test_nodes_are_listed_by_module_and_bounded(fxlab, made):
    answer = json.loads(fxlab("nodes", f"{made}:make", "--json").out)
    assert [row["name"] for row in answer["nodes"]] == ["input_1", "_0", "_1", "_2", "_3", "output"]
    assert fxlab("nodes", f"{made}:make", "--json").out == fxlab("nodes", f"{made}:make", "--json").out
    inside = json.loads(fxlab("nodes", f"{made}:make", "--json", "--module", "1", "--top", 1).out)
    assert (inside["rows"], [row["name"] for row in inside["nodes"]]) == (1, ["_1"])
    ended = fxlab("nodes", f"{made}:make", "--module", "nope")
    assert (ended.code, "no node or module named 'nope'. (--module)" in ended.err) == (2, True)
    fused = json.loads(fxlab("nodes", f"{made}:make", "--json", "--passes", "fuse-batch-norm2d").out)
    assert "fuse-batch-norm2d-in-conv2d" in {row["marks"] for row in fused["nodes"]}


def test_csv_has_the_facts_where_there_is_no_table(fxlab, made):
    ended = fxlab("bisect", f"{made}:make", "--passes", f"{made}:double", "--format", "csv")
    assert ended.code == 1
    assert next(csv.DictReader(io.StringIO(ended.out)))["different_since"] == "double"
    ended = fxlab("draw", f"{made}:make", "-o", "graph.svg", "--format", "csv")
    assert (ended.code, next(csv.DictReader(io.StringIO(ended.out)))["picture"]) == (0, "graph.svg")


def test_passes_are_named_beside_the_model_and_by_the_option(fxlab, made):
    command = "explain", f"{made}:make", "remove-identities", "--passes", "fuse-batch-norm2d"
    rows = json.loads(fxlab(*command, "--json").out)["candidates"]
    assert {row["pass"] for row in rows} == {"remove-identities", "fuse-batch-norm2d-in-conv2d"}


def test_candidates_and_reasons_are_those_of_a_session(fxlab, made):
    explained = json.loads(fxlab("explain", f"{made}:make", "--passes", "all", "--json").out)
    assert {(row["node"], row["pass"]) for row in explained["candidates"]} >= {
        ("_3", "remove-identities"),
        ("_1", "fuse-batch-norm2d-in-conv2d"),
    }
    ended = fxlab("why-not", f"{made}:make", "--passes", "fuse-batch-norm2d", "--node", "nope")
    assert (ended.code, ended.err) == (2, "fxlab: node: the graph has no node or module named 'nope'.\n")
    positional = json.loads(fxlab("explain", f"{made}:make", "all", "--json").out)
    assert positional["candidates"] == explained["candidates"]
    ended = fxlab("explain", f"{made}:make")
    assert (ended.code, "--passes: expected names" in ended.err) == (2, True)


def test_words_of_other_programs_are_commands(fxlab, made):
    rows = json.loads(fxlab("summary", f"{made}:make", "--json").out)["nodes"]
    profiled = json.loads(fxlab("cost", f"{made}:make", "--json", "--apply", "remove-id").out)["nodes"]
    assert len(profiled) < len(rows)
    checked = fxlab("check", f"{made}:make", "--passes", "remove-identities", "--json")
    assert (checked.code, "same bits" in checked.out) == (0, True)
    assert fxlab("check", f"{made}:make").code == 2
    assert "fxlab report MODEL" in fxlab("lab").err


def test_passes_in_python_code_are_applied_after_those_on_offer(fxlab, made):
    ended = fxlab("verdict", f"{made}:make", "--passes", f"{made}:double,remove-id", "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["verdict"], answer["different_since"]) == (1, "different", "double")
    assert [row["pass"] for row in answer["passes"]] == ["remove-identities", "double"]
    ended = fxlab("verdict", f"{made}:make", "--passes", f"{made}:NoReLU")
    assert (ended.code, "here" in ended.err) == (4, True)
    assert fxlab("verdict", f"{made}:make", "--passes", f"{made}:absent").code == 2


def test_options_have_the_names_of_arguments_and_are_given_several_times(fxlab, made):
    one = fxlab("check-model", f"{made}:make", "-p", "remove-id", "--transforms", f"{made}:double", "--json")
    answer = json.loads(one.out)
    assert (one.code, answer["agrees"], answer["different_since"]) == (1, False, "double")
    timed = fxlab("bench", f"{made}:make", "--runs", 1, "--warm-up", 2, "--pass=remove-id", "--json")
    assert [row["passes"] for row in json.loads(timed.out)["times"]] == ["original", "remove-identities"]
    assert fxlab("draw", f"{made}:make", "--filename", "a.svg").code == 0
    fxlab("report", f"{made}:make", "--title", "Halves", "--out", "a.html")
    with open("a.html", encoding="utf-8") as page:
        assert "<title>Halves · fxlab</title>" in page.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "--seeed", "1"], "unrecognized arguments: --seeed 1. Did you mean --seed? (see"),
        (["verdict", "--passes", "a", "b"], "unrecognized arguments: b; names of passes are separated by"),
        (["stats"], "invalid choice: 'stats'"),
    ],
)
def test_a_wrong_word_leads_to_the_right_one(fxlab, made, arguments, words):
    ended = fxlab(arguments[0], f"{made}:make", *arguments[1:])
    assert (ended.code, words in ended.err) == (2, True), ended.err


def test_the_pass_that_breaks_a_model_is_found(fxlab, made):
    ended = fxlab("bisect", f"{made}:make", "--passes", f"remove-identities,{made}:double", "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["different_since"], answer["first_node"]) == (1, "double", "_0")
    right = fxlab("bisect", f"{made}:make", "--passes", "remove-identities", "--json")
    assert (right.code, json.loads(right.out)["agrees"]) == (0, True)
    assert fxlab("bisect", f"{made}:make").code == 2


def test_sizes_with_commas_are_one_tensor_for_a_model_of_one_input(fxlab, made):
    for sizes in ("1,3,8,8", "1x3x8x8"):
        row = json.loads(fxlab("nodes", f"{made}:make", "--input-shape", sizes, "--json").out)["nodes"][0]
        assert row["shape"] == [1, 3, 8, 8]
