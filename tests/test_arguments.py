"""Wrong arguments: each public callable says which one it was, what was expected and what came."""

import inspect
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import torch
from torch import nn

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, from_callable, from_pattern
from fxlab.graphs.changes_made import changes_made


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x) * self.b(x) / 3


X = torch.ones(2, 4)  # the same in each process, as tests are named by what is given
GRAPH = torch.fx.symbolic_trace(Model().eval())
SESSION = Session(GRAPH, X, passes=[MergeLinears(), ChangeTrueDivToMulByInverse()])
PASS = MergeLinears()
OBJECT = types.SimpleNamespace()  # without an address in its name

NO_MODULE = [None, 3, "a", [], OBJECT, nn.Linear]
NO_GRAPH = [*NO_MODULE, Model()]
NO_INPUTS = [3, "a", OBJECT, MergeLinears]
NO_NUMBER = [None, "a", [], OBJECT, -1, float("nan")]
NO_NAMES = [3, "input_ids", OBJECT, [3], [None], ["x", "x"]]
NO_PASSES = [3, "merge-linears", OBJECT, PASS, MergeLinears, [3], [None]]
NO_PASS = [None, 3, [], OBJECT, nn.Bilinear, "none of that name"]
NO_PATH = [None, 3, [], OBJECT, "", "a\0b.html", "report.txt"]
NO_EXPORTED = [None, 3, "a", [], OBJECT, nn.Linear, Model()]
NO_SESSION = [*NO_MODULE, Model(), Session]
NO_VARIANTS = [3, "a", [3], OBJECT]
NO_TABLE = [None, 3, "a", [], OBJECT, pd.DataFrame(), pd.DataFrame({"other": [1]})]
PAIR = {"original": GRAPH, "transformed": GRAPH}
RUNNING_COMPARISONS = (
    fxlab.verdict,
    fxlab.compare_outputs,
    fxlab.compare_nodes,
    fxlab.first_divergence,
)
COMPARISONS = (*RUNNING_COMPARISONS, fxlab.graph_diff)
NO_COUNT = [0, -1, 1.5, "a", [], OBJECT, True]
NO_FLAG = [None, 0, 1, "no", [], OBJECT, torch.ones(2)]
REFERENCE = fxlab.Reference(GRAPH, X)
STAGES = {"below": GRAPH, "above": GRAPH, "pass_": PASS}

CALLS = [
    (fxlab.symbolic_trace, {"model": Model(), "inputs": X}, {"model": NO_MODULE, "inputs": NO_INPUTS}),
    (fxlab.symbolic_trace, {"model": Model(), "inputs": {"x": X}}, {"input_names": NO_NAMES}),
    (fxlab.example_inputs, {"model": Model()}, {"model": NO_MODULE, "input_names": NO_NAMES}),
    (fxlab.example_inputs, {"model": Model()}, dict.fromkeys(("batch_size", "sequence_length"), NO_COUNT)),
    (fxlab.example_inputs, {"model": Model()}, {"batch_size": [10**12], "sequence_length": [10**12]}),
    (fxlab.from_exported, {}, {"program": NO_EXPORTED}),
    (Session, {"model": GRAPH, "inputs": X}, {"model": NO_MODULE, "passes": NO_PASSES}),
    (fxlab.compile_session, {"model": Model(), "inputs": X}, {"model": NO_MODULE, "inputs": NO_INPUTS}),
    (fxlab.compile_session, {"model": Model(), "inputs": X}, {"options": [3, "a", ["a"], OBJECT, {"a": 1}]}),
    (fxlab.compile_session, {"model": Model(), "inputs": X}, {"training": [None, 1, "a", [], OBJECT]}),
    (fxlab.compile_session, {"model": Model(), "inputs": X}, {"dynamic": [1, "a", [], OBJECT]}),
    (fxlab.draw, {"model": GRAPH}, {"model": NO_MODULE, "overlay": [3, OBJECT, "none of that name"]}),
    (fxlab.draw, {"model": GRAPH}, {"highlight": [3, OBJECT, MergeLinears, "no node", [3]]}),
    (
        fxlab.draw,
        {"model": GRAPH},
        {"opened": [-1, True, "a", OBJECT, [3], ["no group"]], "budget": NO_COUNT},
    ),
    *(
        (compare, {**PAIR, "inputs": X}, {"original": NO_MODULE, "transformed": NO_MODULE})
        for compare in COMPARISONS
    ),
    *((compare, PAIR, {"inputs": NO_INPUTS}) for compare in RUNNING_COMPARISONS),
    (fxlab.compare_outputs, {**PAIR, "inputs": X}, {"atol": NO_NUMBER, "rtol": NO_NUMBER}),
    (fxlab.verdict, {**PAIR, "inputs": X}, {"variants": NO_VARIANTS}),
    (fxlab.evaluate, {"reference": SESSION, "batches": [X]}, {"reference": NO_MODULE, "keep": NO_COUNT}),
    (fxlab.evaluate, {"reference": SESSION}, {"batches": [None, 3, "a", OBJECT, X, {"x": X}, [3], ["a"]]}),
    (fxlab.evaluate, {"reference": SESSION, "batches": [X]}, {"metrics": [3, "a", [3], {"a": 3}, {3: len}]}),
    (
        fxlab.evaluate,
        {"reference": SESSION, "batches": [X]},
        {"executor": [3, "a", OBJECT, ThreadPoolExecutor]},
    ),
    (fxlab.evaluate, {"reference": SESSION, "batches": [X]}, {"resume": [3, [], OBJECT, "", "a\0b"]}),
    (fxlab.nodes, {}, {"model": NO_MODULE}),
    (fxlab.transformed_nodes, {"model": GRAPH}, {"model": NO_MODULE, "original": NO_MODULE[1:]}),
    (fxlab.transformed_nodes, {"model": GRAPH}, {"pass_": [3, "a", OBJECT, MergeLinears]}),
    (fxlab.input_variants, {"inputs": X}, {"inputs": [None, *NO_INPUTS], "vocabulary": NO_COUNT}),
    (fxlab.profile, {"model": GRAPH, "inputs": X}, {"model": NO_MODULE, "inputs": NO_INPUTS}),
    (fxlab.profile, {"model": GRAPH, "inputs": X}, {"rounds": NO_COUNT}),
    *((use, {}, {"session": NO_SESSION}) for use in (fxlab.compare_stages,)),
    (fxlab.bisect, {"model": SESSION}, {"model": NO_MODULE, "inputs": NO_INPUTS}),
    (fxlab.bisect, {"model": SESSION}, {"variants": NO_VARIANTS}),
    (fxlab.compose, {}, {"passes": [(3,), ("a",), (nn.Linear,), (PASS, None)]}),
    (fxlab.inspect, {"model": GRAPH}, {"model": NO_MODULE, "inputs": NO_INPUTS, "passes": NO_PASSES}),
    (fxlab.inspect, {"model": GRAPH}, {"overlay": [3, OBJECT, "none of that name"]}),
    (fxlab.inspect, {"model": SESSION}, {"inputs": [X], "passes": [[]]}),
    (fxlab.Inspector, {"model": SESSION}, {"model": [3, OBJECT], "height": ["a", 1.5, -1]}),
    (fxlab.benchmark, {"reference": SESSION}, {"reference": NO_MODULE, "rounds": NO_COUNT}),
    (fxlab.benchmark, {"reference": SESSION}, {"inputs": NO_INPUTS, "each": NO_FLAG[1:]}),
    (fxlab.benchmark, {"reference": SESSION}, {"passes": [3, "a", PASS, [3], [None], ["a"]]}),
    (fxlab.benchmark, {"reference": SESSION}, {"min_seconds": NO_NUMBER}),
    (fxlab.export, {"path": "a.pt2"}, {"session": NO_SESSION}),
    (fxlab.export, {"session": SESSION}, {"path": NO_PATH[1:]}),
    (fxlab.export, {"session": SESSION, "path": "a.pt2"}, {"dynamic": [None, 1, "a"], "check": [None, 1]}),
    (fxlab.report, {"model": SESSION}, {"path": NO_PATH}),
    (fxlab.report, {"model": SESSION, "path": "a.html"}, {"overlay": [3, OBJECT, "none of that name", [3]]}),
    (fxlab.record_run, {"model": Model(), "inputs": X}, {"path": [None, 3, [], OBJECT, "", "a\0b"]}),
    (fxlab.record_run, {"path": "a.run", "inputs": X}, {"model": NO_MODULE}),
    (fxlab.record_run, {"model": Model(), "inputs": X, "path": "a.run"}, {"backward": NO_FLAG}),
    (fxlab.compare_runs, {}, {"runs": [None, 3, [], OBJECT, "", "no folder", [3], {"a": 3}]}),
    (fxlab.report, {"path": "a.html"}, {"model": NO_MODULE}),
    (SESSION.verdict, {}, {"variants": NO_VARIANTS}),
    (SESSION.transformed_nodes, {}, {"pass_": NO_PASS[1:]}),
    (SESSION.add, {}, {"pass_": [None, 3, "a", OBJECT]}),
    (SESSION.move, {"pass_": PASS}, {"place": [None, "a", 1.5, -1, 10**12]}),
    (SESSION.on_change, {}, {"callback": [None, 3, "a", OBJECT]}),
    (SESSION.toggle, {}, {"pass_": NO_PASS}),
    (SESSION.find, {}, {"pass_": [None, 3, [], OBJECT, "none of that name"]}),
    *((getattr(SESSION, name), {}, {"pass_": NO_PASS}) for name in ("is_on", "remove", "preview")),
    (SESSION.explain, {}, {"pass_": [value for value in NO_PASS if value is not None]}),
    (fxlab.symbolic_trace, {"model": Model(), "inputs": X}, {"dynamic": NO_FLAG, "check": NO_FLAG}),
    (fxlab.draw, {"model": GRAPH}, {"shapes": NO_FLAG, "inputs": NO_INPUTS}),
    (fxlab.report, {"model": SESSION, "path": "a.html"}, {"measure": NO_FLAG, "values": NO_FLAG}),
    (fxlab.compose, {}, {"inplace": NO_FLAG}),
    (from_callable, {"function": len}, {"preserves_computation": NO_FLAG, "writes_tensors": NO_FLAG}),
    (from_callable, {"function": len}, {"name": [3, [], OBJECT, torch.ones(2)]}),
    (
        from_pattern,
        {"pattern": torch.relu, "replacement": torch.sigmoid},
        {"name": [3, [], torch.ones(2)]}
        | dict.fromkeys(("ignore_literals", "preserves_computation"), NO_FLAG),
    ),
    (fxlab.verdict, {**PAIR, "inputs": X}, {"gradients": NO_FLAG}),
    (fxlab.compare_nodes, {**PAIR, "inputs": X}, {"judge": NO_FLAG}),
    (fxlab.compare_stages, {"session": SESSION}, {"in_float64": NO_FLAG}),
    (fxlab.Reference, {"original": GRAPH, "inputs": X}, {"original": NO_MODULE, "gradients": NO_FLAG}),
    (REFERENCE.verdict, {}, {"transformed": NO_MODULE}),
    (changes_made, STAGES, {"below": NO_GRAPH, "above": NO_GRAPH, "pass_": NO_PASS[1:]}),
    (fxlab.benchmark, {"reference": SESSION}, {"min_seconds": [float("inf"), 10**30]}),
    (fxlab.compare_outputs, {**PAIR, "inputs": X}, {"atol": [10**400], "rtol": [10**400]}),
    *((compare, PAIR, {"inputs": NO_INPUTS}) for compare in (fxlab.graph_diff, fxlab.code_diff)),
    *(
        (getattr(PASS, name), {}, {"graph_module": NO_GRAPH})
        for name in ("__call__", "explain", "candidates")
    ),
    (PASS.named, {}, {"name": [None, 3, [], "", " "]}),
    (from_callable, {}, {"function": [None, 3, "a", OBJECT, PASS, MergeLinears]}),
    (
        from_pattern,
        {"pattern": torch.relu, "replacement": torch.sigmoid},
        {"pattern": [None, 3, "a", OBJECT], "replacement": [None, 3, "a", OBJECT]},
    ),
]
WRONG = [
    pytest.param(
        function,
        {**right, argument: wrong},
        argument,
        id=f"{function.__name__}-{argument}-{type(wrong).__name__}{number}",  # the same in every process
    )
    for function, right, arguments in CALLS
    for argument, values in arguments.items()
    for number, wrong in enumerate(values)
    if argument in inspect.signature(function).parameters
]


@pytest.mark.parametrize("function", [fxlab.draw, fxlab.Session, fxlab.inspect])
def test_a_misspelt_option_is_no_input(function):
    option = {fxlab.draw: "opened", fxlab.Session: "passes", fxlab.inspect: "height"}[function]
    with pytest.raises(TypeError) as raised:
        function(GRAPH, **{option[:-2]: []})
    words = str(raised.value)
    assert f"{option[:-2]}: expected an option, or an input of the model (" in words
    assert f"Did you mean {option}? It takes (model, inputs=None, " in words


@pytest.mark.parametrize(("function", "arguments", "name"), WRONG)
def test_a_wrong_argument_is_named(function, arguments, name):
    several = arguments.pop("passes", ()) if function is fxlab.compose else ()
    with pytest.raises((TypeError, ValueError)) as raised:
        function(*several, **arguments)
    assert name in str(raised.value)
    assert len(str(raised.value)) > len(name) + 10


def test_the_table_names_arguments_that_there_are():
    for function, right, arguments in CALLS:
        assert {*right, *arguments} <= inspect.signature(function).parameters.keys(), function


def broken():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first, second = graph.call_function(torch.relu, (x,)), graph.call_function(torch.neg, (x,))
    graph.output(second)
    first.args = (second,)  # reads what comes later
    graph_module = torch.fx.GraphModule(nn.Module(), torch.fx.Graph())
    graph_module._graph = graph
    graph.owning_module = graph_module
    return graph_module


@pytest.mark.parametrize(
    "use",
    [
        *(pass_ for pass_ in fxlab.transformations.offered()),
        *(pass_.explain for pass_ in fxlab.transformations.offered()),
        from_callable(lambda graph_module: None, name="nothing"),
        lambda graph: Session(graph, X),
        lambda graph: fxlab.draw(graph),
        lambda graph: fxlab.verdict(GRAPH, graph, X),
        lambda graph: fxlab.compare_nodes(GRAPH, graph, X),
        lambda graph: fxlab.graph_diff(GRAPH, graph),
        lambda graph: fxlab.profile(graph, X),
        lambda graph: fxlab.transformed_nodes(graph),
    ],
)
def test_a_graph_that_was_broken_before_is_said_to_have_been(use):
    with pytest.raises(ValueError, match="its graph is broken, and was so before"):
        use(broken())


@pytest.mark.slow
def test_packages_are_found_after_importing_fxlab_alone():
    code = "import fxlab, sys; assert 'torch' not in sys.modules; assert fxlab.transformations.offered()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_inputs_without_data_have_variants_of_their_shapes():
    assert "batch of 5" in fxlab.input_variants(torch.ones(2, 4, device="meta"))


def test_a_large_tolerance_is_one():
    assert fxlab.compare_outputs(GRAPH, GRAPH, X, atol=10**30)["allclose"].all()
