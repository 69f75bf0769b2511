"""Facts about a node, read from its target and metadata."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

import fxlab
from fxlab.command_line.commands.trace import _node_table
from fxlab.drawing import build_hierarchy
from fxlab.drawing.rendering.box import lines_of
from fxlab.operators import node_info, operator_for
from fxlab.transformations.marks import add_mark
from fxlab.view_model.graph_data.facts import Facts


class Called:
    """A callable object without a name."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture
def node() -> fx.Node:
    graph = fx.Graph()
    return graph.call_function(operator.add, (graph.placeholder("x"), 1))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("view", "view"),
        (operator.add, "operator.add"),
        (builtins.getattr, "getattr"),
        (torch._assert, "torch._assert"),
        (torch.linalg.inv, "torch.linalg.inv"),
        (torch.Tensor.add, "torch.Tensor.add"),
        (functional.linear, "F.linear"),
        (functional.max_pool2d, "F.max_pool2d"),
        (torch._C._nn.log_sigmoid, "F.logsigmoid"),
        (torch._C._nn.pad, "F.pad"),
        (torch._C._VariableFunctions.cat, "torch.cat"),
        (torch.ops.aten.mm.default, "aten.mm"),
        (torch.ops.aten.mm, "aten.mm"),
        (torch.ops.aten.add.Tensor, "aten.add.Tensor"),
        (torch.ops.higher_order.cond, "higher_order.cond"),
        (torch.utils.checkpoint.checkpoint, "torch.utils.checkpoint.checkpoint"),
        (torch.Size, "torch.Size"),
        (Called(), "Called"),
        (functools.partial(torch.add), "partial"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_target_is_named_as_code_that_imports_it_writes_it(node: fx.Node, target: object, text: str):
    node.target = target
    assert node_info.target_text(node) == text


@pytest.mark.parametrize(
    "module",
    [functional, torch, torch.linalg, torch.special, torch.fft, operator, math],
    ids=lambda m: m.__name__,
)
def test_the_text_of_a_public_function_leads_to_it(module: ModuleType):
    names = {"F": functional, "torch": torch, "operator": operator, "math": math, "aten": torch.ops.aten}
    functions = [value for name, value in vars(module).items() if node_info._is_public(name, value, module)]
    assert functions
    for function in functions:
        assert eval(node_info.function_text(function), vars(builtins) | names) is function


def test_no_function_of_torch_has_the_text_of_another_operator():
    private = [getattr(torch._C._nn, name) for name in dir(torch._C._nn) if not name.startswith("_")]
    texts = {node_info.function_text(function): function for function in private if callable(function)}
    assert len(texts) == len([function for function in private if callable(function)])
    assert {text.rpartition(".")[0] for text in texts} == {"F", "torch._C._nn"}


@pytest.mark.parametrize("function", [functional.gelu, torch.linalg.inv, torch.ops.aten.exp.default], ids=str)
def test_a_function_has_one_text_on_every_screen_and_in_every_table(function: Callable[..., torch.Tensor]):
    class Named(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    graph_module = fxlab.symbolic_trace(nn.Sequential(Named()), torch.eye(2))
    node = next(node for node in graph_module.graph.nodes if node.op == "call_function")
    text = node_info.target_text(node)
    add_mark(node, "mark")
    hierarchy = build_hierarchy(graph_module)
    facts = Facts()
    row = facts.rows.values[facts.number(node, hierarchy.modules)]
    lines = lines_of(hierarchy.leaves[hierarchy.position_of[node.name]], hierarchy.modules)
    tables = [
        fxlab.nodes(graph_module),
        fxlab.rewriting.transformed_nodes(graph_module),
        fxlab.profile(graph_module, torch.eye(2)),
        fxlab.compare_nodes(graph_module, graph_module, torch.eye(2)),
        _node_table(graph_module).set_index("node"),
    ]
    assert lines[0] == f"{text.rpartition('.')[2]} of Named"
    assert facts.texts.values[row[2]] == text
    assert [table.at[node.name, "target"] for table in tables] == [text] * len(tables)


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
    assert node_info.value_rows(node) == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(2, 3), "2×3 f32"),  # noqa: RUF001
        (torch.tensor(True), "scalar bool"),
        ([torch.ones(2), torch.ones(2)], "2 × (2 f32)"),  # noqa: RUF001
        ((torch.ones(2), torch.ones(3)), "(2 values)"),
        (7, "7"),
        (torch.strided, "layout"),
        (None, ""),
    ],
)
def test_a_result_is_described_by_shape_and_dtype(value: object, text: str) -> None:
    node = fx.Graph().placeholder("x")
    node.meta["val"] = value
    assert node_info.result_text(node) == text


def test_a_node_without_metadata_says_nothing(node: fx.Node) -> None:
    assert node_info.value_rows(node) == []
    assert node_info.module_path(node) == node_info.class_name(node) == ""
    assert node_info.frames_of(node) == []


@pytest.mark.parametrize("cls", [nn.Linear, "torch.nn.modules.linear.Linear"], ids=["class", "name"])
def test_the_innermost_module_is_the_one_that_a_node_belongs_to(node: fx.Node, cls: object) -> None:
    node.meta["nn_module_stack"] = {"": ("", nn.Module), "a": ("a", nn.Module), "b": ("a.b", cls)}
    assert node_info.module_path(node) == "a.b"
    assert node_info.class_name(node) == "torch.nn.modules.linear.Linear"


def test_paths_of_an_exported_graph_are_those_of_its_modules(node: fx.Node) -> None:
    node.meta["nn_module_stack"] = {"L__self__": ("", nn.Module), "a": ("L['self'].layers.0", "some.Layer")}
    assert node_info.module_path(node) == "layers.0"
    assert node_info.class_names(node, nn.Linear(1, 1)) == "Layer Linear"


def test_a_module_that_has_two_paths_holds_its_parameters_at_both() -> None:
    shared = nn.Linear(2, 3)
    root = nn.ModuleDict({"a": shared, "b": shared})
    graph = fx.Graph()
    x = graph.placeholder("x")
    calls = [graph.call_module("a", (x,)), graph.call_module("b", (x,))]
    graph.output(calls)
    modules = node_info.modules_by_path(graph_module := fx.GraphModule(root, graph))
    assert [node_info.parameter_count(call, modules) for call in calls] == [9, 9]
    assert sum(node_info.parameter_counts(graph_module).values()) == 9


def test_an_attribute_that_there_is_not_is_an_error_or_the_default() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    assert node_info.attribute_at(model, "0.bias") is model[0].bias
    assert node_info.attribute_at(model, "1.bias", None) is None
    with pytest.raises(AttributeError):
        node_info.attribute_at(model, "0.missing")


def test_frames_are_listed_from_the_innermost_with_their_code(node: fx.Node) -> None:
    node.meta["stack_trace"] = (
        'File "outer.py", line 3, in forward\n    y = self.inner(x)\nFile "inner.py", line 8, in call\n'
        'File "last.py", line 1, in leaf\n    return x'
    )
    frames = node_info.frames_of(node)
    assert [(frame["file"], frame["line"], frame["code"]) for frame in frames] == [
        ("last.py", 1, "return x"),
        ("inner.py", 8, ""),
        ("outer.py", 3, "y = self.inner(x)"),
    ]


def test_an_excerpt_has_the_line_and_those_around_it(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert [number for number, _ in node_info.excerpt(str(file), 5)] == [2, 3, 4, 5, 6, 7, 8]
    assert node_info.excerpt(str(file), 1)[0] == (1, "line 1")
    assert node_info.excerpt(str(file), 10)[-1] == (10, "line 10")


def test_only_lines_of_python_that_are_there_are_shown(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("a password\n")
    (tmp_path / "short.py").write_text("one line\n")
    assert node_info.excerpt(str(tmp_path / "secrets.txt"), 1) == []
    assert node_info.excerpt(str(tmp_path / "short.py"), 2) == []
    assert node_info.excerpt(str(tmp_path / "missing.py"), 1) == []


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (nn.Linear(2, 2), "linear"),
        (nn.BatchNorm2d(2), "batch norm"),
        (nn.Conv1d(2, 2, 1), "conv"),
        (nn.RMSNorm(2), "RMS norm"),
    ],
)
def test_the_kind_of_a_call_of_a_module_is_its_class_in_words(module: nn.Module, kind: str):
    graph_module = fx.symbolic_trace(nn.Sequential(module))
    node = list(graph_module.graph.nodes)[1]
    assert node_info.kind_text(node, node_info.modules_by_path(graph_module)) == kind


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: torch.nn.functional.linear(x, x), "linear"),
        (lambda x: torch.conv2d(x, x), "conv"),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), "scaled dot product attention"),
        (lambda x: x / 2, "truediv"),
        (lambda x: x.add_(1), "add"),
        (lambda x: torch.ops.aten.add.Tensor(x, 1), "add"),
    ],
)
def test_the_kind_of_a_call_of_a_function_is_its_name_in_words(function, kind: str):
    graph_module = fx.symbolic_trace(function)
    assert node_info.kind_text(list(graph_module.graph.nodes)[1], {}) == kind


def test_paths_have_no_prefix_of_a_tool():
    paths = "L['self'].encoder.layer", "L__self___encoder", "encoder"
    assert [*map(node_info.model_path, paths)] == ["encoder.layer", "encoder", "encoder"]


def test_modules_around_a_tensor_are_no_lists():
    found = node_info.modules_around("model.layers.0.mlp.weight")
    assert found == ["model", "model.layers.0", "model.layers.0.mlp"]


def test_indices_of_elements_of_the_first_argument_are_a_later_one():
    asked = (torch.gather, torch.embedding, torch.Tensor.index_put, torch.unravel_index, torch.add)
    assert [operator_for(function).takes_indices for function in asked] == [True] * 3 + [False] * 2
