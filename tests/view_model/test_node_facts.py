"""What the details panel says of a node, read from its metadata."""

from __future__ import annotations

import builtins
import operator
from pathlib import Path

import pytest
import torch
from torch import fx, nn

from fxlab.view_model import node_facts


@pytest.fixture
def node() -> fx.Node:
    graph = fx.Graph()
    return graph.call_function(operator.add, (graph.placeholder("x"), 1))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (operator.add, "operator.add"),
        (builtins.getattr, "getattr"),
        (torch.cat, "torch.cat"),
        (torch.nn.functional.linear, "torch.nn.functional.linear"),
        (nn.functional.relu, "torch.nn.functional.relu"),
    ],
)
def test_a_target_is_named_as_people_import_it(node: fx.Node, target: object, text: str) -> None:
    node.target = target
    assert node_facts.target_text(node) == text


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (torch.ones(2, 3), [("(2, 3)", "torch.float32")]),
        (torch.tensor(1), [("()", "torch.int64")]),
        ((torch.ones(2), [torch.ones(1).bool()]), [("(2)", "torch.float32"), ("(1)", "torch.bool")]),
        ({"logits": torch.ones(4), "loss": None}, [("(4)", "torch.float32")]),
        (7, [("7", "int")]),
        (0.5, [("0.5", "float")]),
        (torch.float16, [("", "dtype")]),
        ([torch.ones(1)] * 80, [("(1)", "torch.float32")] * 50),
    ],
    ids=["tensor", "scalar", "nested", "dict", "int", "float", "other", "many"],
)
def test_each_tensor_of_a_result_has_a_row(node: fx.Node, value: object, rows: list[tuple[str, str]]) -> None:
    node.meta["val"] = value
    assert node_facts.value_rows(node) == rows


def test_a_node_without_metadata_says_nothing(node: fx.Node) -> None:
    assert node_facts.value_rows(node) == []
    assert node_facts.module_path_of(node) == node_facts.class_name_of(node) == ""
    assert node_facts.frames_of(node) == []


@pytest.mark.parametrize("cls", [nn.Linear, "torch.nn.modules.linear.Linear"], ids=["class", "name"])
def test_the_innermost_module_is_the_one_that_a_node_belongs_to(node: fx.Node, cls: object) -> None:
    node.meta["nn_module_stack"] = {"": ("", nn.Module), "a": ("a", nn.Module), "b": ("a.b", cls)}
    assert node_facts.module_path_of(node) == "a.b"
    assert node_facts.class_name_of(node) == "torch.nn.modules.linear.Linear"


def test_frames_are_listed_from_the_innermost_with_their_code(node: fx.Node) -> None:
    node.meta["stack_trace"] = (
        'File "outer.py", line 3, in forward\n    y = self.inner(x)\nFile "inner.py", line 8, in call\n'
        'File "last.py", line 1, in leaf\n    return x'
    )
    frames = node_facts.frames_of(node)
    assert [(frame["file"], frame["line"], frame["code"]) for frame in frames] == [
        ("last.py", 1, "return x"),
        ("inner.py", 8, ""),
        ("outer.py", 3, "y = self.inner(x)"),
    ]


def test_an_excerpt_has_the_line_and_those_around_it(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert [row["line"] for row in node_facts.excerpt(str(file), 5)] == [2, 3, 4, 5, 6, 7, 8]
    assert node_facts.excerpt(str(file), 1)[0] == {"line": 1, "text": "line 1"}
    assert node_facts.excerpt(str(file), 10)[-1] == {"line": 10, "text": "line 10"}


def test_only_lines_of_python_that_are_there_are_shown(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("a password\n")
    (tmp_path / "short.py").write_text("one line\n")
    assert node_facts.excerpt(str(tmp_path / "secrets.txt"), 1) == []
    assert node_facts.excerpt(str(tmp_path / "short.py"), 2) == []
    assert node_facts.excerpt(str(tmp_path / "missing.py"), 1) == []
