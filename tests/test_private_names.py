"""Private names of torch: only adapters know them, and graphs are read without any one of them."""

import ast
import json
import os
from pathlib import Path

import fresh_python
import pytest
from test_words import statements

from fxlab.tracing.torch_private import FOR_FLEX, FOR_STEPS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each absence is tried in a fork")
ROOT = Path(__file__).parents[1] / "fxlab"
ADAPTERS = {"base/torch_private.py", "tracing/torch_private.py"}
"""And each file ``hooks.py``."""


def is_private(name: str) -> bool:
    return name.startswith("torch.") and ("._" in name or ".experimental" in name)


def imported(code: str) -> list[str]:
    """Return the full names that code imports."""
    found = []
    for node in statements(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def test_only_adapters_import_private_names_of_torch():
    others = {}
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path not in ADAPTERS and file.name != "hooks.py":
            others[path] = [name for name in imported(file.read_text()) if is_private(name)]
    assert {path: names for path, names in others.items() if names} == {}


def texts(path: str) -> list[str]:
    """Return the names that an adapter looks up."""
    tree = ast.parse((ROOT / path).read_text())
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = (text for text in strings if isinstance(text, str) and text.count(".") > 1 and " " not in text)
    return sorted(filter(is_private, names))


OF_THE_CORE = texts("base/torch_private.py")
NOT_ALWAYS = FOR_STEPS.keys() | FOR_FLEX.keys()
OF_TRACING = [path for path in texts("tracing/torch_private.py") if path not in NOT_ALWAYS]
PROGRAM = """
    import importlib, json, os, sys, types
    import torch, pandas
    import torch._dynamo, torch.fx.experimental.symbolic_shapes, torch.fx._graph_pickler

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) / 3 + self.b(x)

    def without(paths):
        # As if torch had the names no more; torch itself goes on using them.
        lost = [path.rpartition(".")[::2] for path in paths.split()]
        found = importlib.import_module

        def lacking(asked, package=None):
            value, names = found(asked, package), [name for module, name in lost if module == asked]
            if not names:
                return value
            kept = {key: held for key, held in vars(value).items() if key not in names}
            return types.SimpleNamespace(**kept)

        importlib.import_module = lacking

    def use():
        graph, x = torch.fx.symbolic_trace(Model().eval()), torch.ones(2, 4)
        import fxlab
        assert len(fxlab.draw(graph).view.boxes) > 4
        session = fxlab.Session(graph, x)
        session.apply("merge-linears")
        found = fxlab.rewriting.transformed_nodes(session.graph_module, session.passes["merge-linears"])
        assert found.index.tolist() == ["a_b_merged"]
        session.revert("merge-linears")
        assert session.graph_module is session.original

    def trace():
        import fxlab
        fxlab.symbolic_trace(Model().eval(), torch.ones(2, 4))

    def trace_step():
        import fxlab
        step = fxlab.trace_step(Model(), torch.ones(2, 4), loss=lambda output: output.sum())
        assert "grad of a.weight" in step(**fxlab.Session(step).inputs)

    def outcome(paths, run):
        reads, writes = os.pipe()
        if (child := os.fork()) == 0:
            try:
                without(paths)
                run()
                told = "fine"
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(writes, told.encode())
            os._exit(0)
        os.close(writes)
        os.waitpid(child, 0)
        with open(reads) as answer:
            return answer.read()

    print(json.dumps({paths: outcome(paths, eval(sys.argv[1])) for paths in sys.argv[2:]}))
"""


def outcomes(run: str, paths: list[str]) -> dict[str, str]:
    return json.loads(fresh_python.run(PROGRAM, run, *paths))


@pytest.mark.weekly
def test_graphs_are_drawn_and_transformed_without_them():
    assert len(OF_THE_CORE) > 10
    assert list(outcomes("use", [" ".join(OF_THE_CORE)]).values()) == ["fine"]


@pytest.mark.weekly
def test_graphs_are_drawn_and_transformed_without_any_one_of_them():
    assert outcomes("use", OF_THE_CORE) == dict.fromkeys(OF_THE_CORE, "fine")


@pytest.mark.weekly
def test_tracing_says_which_one_it_lacks():
    assert len(OF_TRACING) > 25
    told = outcomes("trace", OF_TRACING)
    assert {path for path, words in told.items() if not words.startswith("TraceError: ")} == set()
    assert {path for path, words in told.items() if path not in words} == set()


@pytest.mark.weekly
def test_steps_say_which_one_they_lack_and_models_are_traced_without_it():
    told = outcomes("trace_step", [*FOR_STEPS])
    assert all(words.startswith("TraceError: ") and path in words for path, words in told.items()), told
    assert list(outcomes("trace", [" ".join(NOT_ALWAYS)]).values()) == ["fine"]
