"""Passes of pipelines are recorded as they run: each that changes a graph is a stage; torch is as before."""

import pytest
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import (
    PassManager,
    pass_result_wrapper,
    this_before_that_pass_constraint,
)

import fxlab
from fxlab.validation import Status

# Of torch about its own pytrees.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, input):  # the node is input_1, as Python has an `input`
        return self.norm(torch.relu(self.linear(input)))


class RelusToClamps(PassBase):
    """Replace relu by a clamp at a number, which is right for zero."""

    def __init__(self, at=0.0):
        self.at = at

    def call(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target, node.args = aten.clamp_min.default, (node.args[0], self.at)
        return PassResult(graph_module, True)


class SaysModified(PassBase):
    def call(self, graph_module):
        return PassResult(graph_module, True)


class Both(PassBase):
    """A pass of two others, that returns another module."""

    def call(self, graph_module):
        done = SaysModified()(RelusToClamps()(graph_module).graph_module)
        return PassResult(fx.GraphModule(done.graph_module, done.graph_module.graph), True)


class DoublesWeights(PassBase):
    def call(self, graph_module):
        for node in graph_module.graph.find_nodes(op="get_attr"):
            getattr(graph_module, node.target).data.mul_(2)
        return PassResult(graph_module, True)


class Raises(PassBase):
    def call(self, graph_module):
        raise KeyError("no")


def relus_to_sigmoids(graph_module):
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.sigmoid


def patched():
    return PassBase.__call__, PassManager.__call__, ExportedProgram.run_decompositions


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    model = Net().eval()
    model.norm.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        return torch.export.export(model, (X,))


@pytest.fixture(scope="module")
def record(program):
    """A pipeline as others write it: a decomposition, and passes over what comes out."""
    before = patched()
    with fxlab.compiler.record_passes() as record:
        core = program.run_decompositions({})
        core._transform_do_not_use(RelusToClamps(), SaysModified(), RelusToClamps(), RelusToClamps(0.5))
    assert patched() == before
    return record


def test_each_pass_that_changes_a_graph_is_a_stage_of_one_pipeline(record):
    (session,) = record.sessions.values()
    assert [pass_.name for pass_ in session.passes] == ["run_decompositions", "RelusToClamps"]
    assert session.unchanged == ("SaysModified", "RelusToClamps (2)", "RelusToClamps (3)")
    assert record.remarks == ()
    assert record.table.drop(columns="seconds").to_numpy().tolist() == [["pipeline 1", 5, 2, 12, 13]]
    assert int(record.times()["changed"].sum()) == 2
    assert float(record.times()["seconds"].min()) > 0
    assert session.applied == session.passes


def test_a_program_tells_its_inputs_and_parameters(record, program):
    session = record.sessions["pipeline 1"]
    assert list(session.inputs) == ["input_1"]
    assert torch.equal(session.inputs["input_1"], X)
    assert dict(session.original.state_dict()).keys() == program.state_dict.keys()
    assert torch.equal(session.original(X)[0], program.module()(X))
    assert session.verdict().agrees


def test_the_pass_that_breaks_the_numbers_is_found(program):
    with fxlab.compiler.record_passes(program) as record:
        RelusToClamps(0.5)(copied(program))
    session = record.sessions["pipeline 1"]
    assert fxlab.bisect(session).pass_.name == "RelusToClamps"
    assert session.verdict("RelusToClamps").status is Status.DIFFERENT


def copied(program):
    """Return a copy of the graph of a program, which a pass may change."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    return fx.GraphModule(program.graph_module, graph)


def test_functions_of_a_manager_are_passes_in_the_order_of_its_constraints():
    first, last = pass_result_wrapper(relus_to_sigmoids), SaysModified()
    manager = PassManager([last, first], [this_before_that_pass_constraint(first, last)])
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    with fxlab.compiler.record_passes(X) as record:
        assert manager(module).graph_module is module
    (session,) = record.sessions.values()
    assert [pass_.name for pass_ in session.passes] == ["relus_to_sigmoids"]
    assert session.unchanged == ("SaysModified",)
    assert manager.passes == [first, last]
    assert not session.verdict().agrees


def test_of_nested_passes_the_outermost_is_told_and_what_happens_between_is_a_stage():
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    with fxlab.compiler.record_passes(X) as record:
        after = Both()(module).graph_module
        relus_to_sigmoids(after)
        SaysModified()(after)
    (session,) = record.sessions.values()
    assert [pass_.name for pass_ in session.passes] == ["between passes, after Both"]
    assert session.unchanged == ("Both", "SaysModified")


def test_a_stage_holds_the_weights_that_it_had():
    module = fx.symbolic_trace(Scaled())
    with fxlab.compiler.record_passes(X) as record:
        DoublesWeights()(module)
    (session,) = record.sessions.values()
    assert [stage.scale.item() for stage in session.stages] == [3.0, 6.0]
    assert session.verdict().status is Status.DIFFERENT


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return x * self.scale


def test_inputs_are_made_up_of_shapes_or_there_are_none(program):
    with fxlab.compiler.record_passes() as record:
        RelusToClamps()(copied(program))
        SaysModified()(fx.symbolic_trace(lambda x: x + 1))
    known, unknown = record.sessions.values()
    assert len(known.inputs) == len(program.graph.find_nodes(op="placeholder"))
    assert known.inputs["b_norm_num_batches_tracked"].item() == 0
    assert unknown.inputs is None


def test_inputs_that_do_not_fit_are_said_and_made_up(program):
    with fxlab.compiler.record_passes({"y": X}) as record:
        RelusToClamps()(copied(program))
    (told,) = record.remarks
    assert told.startswith("pipeline 1: its inputs are made up: it does not take these inputs: ")
    with fxlab.compiler.record_passes(program) as record:
        SaysModified()(fx.symbolic_trace(lambda x: x + 1))
    assert record.remarks == (
        "pipeline 1: its inputs are made up: the program has 8 inputs and parameters, and it has 1.",
    )
    assert record.sessions["pipeline 1"].inputs is None
    with pytest.raises(TypeError, match="inputs: expected a mapping"), fxlab.compiler.record_passes("x"):
        pass


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_torch_is_as_it_was_however_the_block_ends(error):
    before, module = patched(), fx.symbolic_trace(lambda x: torch.relu(x))

    def run(record):
        with record:
            SaysModified()(module)
            if error is KeyError:
                Raises()(module)
            raise error

    manager = fxlab.compiler.record_passes(X)
    with pytest.raises(error):
        run(manager)
    assert patched() == before
    with fxlab.compiler.record_passes() as record:
        pass
    assert record.sessions == {}
    assert record.table.empty


def test_a_pass_that_raises_is_no_stage_and_those_before_it_are():
    module = fx.symbolic_trace(lambda x: torch.relu(x))
    with fxlab.compiler.record_passes(X) as record:
        PassManager([pass_result_wrapper(relus_to_sigmoids)])(module)
        with pytest.raises(KeyError):
            Raises()(module)
    assert [pass_.name for pass_ in record.sessions["pipeline 1"].passes] == ["relus_to_sigmoids"]
    assert record.sessions["pipeline 1"].unchanged == ()


def test_a_recording_that_fails_does_not_break_the_pipeline(monkeypatch):
    def fails(*args):
        raise AttributeError("weight")

    monkeypatch.setattr("fxlab.compiler.pipelines.pipeline.Snapshot", fails)
    with fxlab.compiler.record_passes() as record:
        module = PassManager([pass_result_wrapper(relus_to_sigmoids)])(
            fx.symbolic_trace(Scaled())
        ).graph_module
    assert torch.equal(module(X), X * 3)
    assert record.remarks == ("Nothing was recorded any more when this was raised: AttributeError: weight",)


def test_switches_say_why_they_are_fixed(record):
    session = record.sessions["pipeline 1"]
    with pytest.raises(ValueError, match="recorded while its pipeline ran"):
        session.revert("RelusToClamps")
    assert "record_passes" in session.to_python()
    assert "A pass of a pipeline" in session.passes["RelusToClamps"].description


def prepare(graph_module, note):
    """Stand for a function such as PT2E's, which is imported before the block."""
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.sigmoid
    graph_module.recompile()
    note.append(graph_module)
    return graph_module


def test_functions_that_are_named_are_passes_whatever_name_they_are_called_by():
    code, known_by_another_name, called = prepare.__code__, prepare, []
    with fxlab.compiler.record_passes(torch.ones(2), functions=[prepare]) as record:
        returned = known_by_another_name(
            graph_module=torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1), note=called
        )
    assert called == [returned]
    assert prepare.__code__ is code
    (session,) = record.sessions.values()
    assert [pass_.name for pass_ in session.passes] == ["prepare"]
    assert session.verdict("prepare").status == "different"
    refused = pytest.raises(TypeError, match="functions: expected functions that are written in Python, got")
    with refused, fxlab.compiler.record_passes(functions=[torch.relu]):
        pass
