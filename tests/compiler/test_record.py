"""What an unchanged script compiles is recorded, and computes what it does without."""

import copy
import shutil

import pytest
import torch
from test_hooks import Recorded, left_behind, patched
from tiny_models import Blocks, plant_mistake
from torch import nn
from torch._inductor.compile_fx import compile_fx

import fxlab
from fxlab.compiler.hooks import _without_code

X = torch.randn(3, 8)


def breaks(x):
    y = torch.relu(x) + 1
    print("here")
    return torch.sigmoid(y)


def with_a_pass(graph_module, inputs):
    """Compile with a mistaken pass of one's own, and without code."""
    eager = copy.deepcopy(graph_module)
    patches = {"post_grad_custom_post_pass": plant_mistake}
    compile_fx(graph_module, inputs, inner_compile=_without_code, config_patches=patches)
    return eager


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(0)
    model = Blocks().eval()
    with torch.no_grad(), fxlab.record_compile() as record:
        torch.compile(model, backend=with_a_pass)(X)
        torch.compile(breaks, backend="eager")(X)
    record.model = model
    return record


def test_each_graph_that_ran_is_a_session(record):
    assert list(record.sessions) == [f"graph {number}, inference" for number in (1, 2, 3)]
    assert record.remarks == ()
    first = record.sessions["graph 1, inference"]
    assert first.graphs is record.sessions
    assert [pass_.name for pass_ in first.passes] == [
        "aot",
        "joint/remove_noop_ops",
        "post_grad/plant_mistake",
    ]
    assert list(first.inputs) == ["x"]
    with torch.no_grad():
        assert torch.equal(first.original(**first.inputs)[0], record.model(X)["y"])
    assert dict(first.original.named_parameters()).keys() == dict(record.model.named_parameters()).keys()


def test_the_pass_that_breaks_the_numbers_is_found(record):
    first = record.sessions["graph 1, inference"]
    assert fxlab.bisect(first).pass_.name == "post_grad/plant_mistake"
    assert first.verdict("aot").agrees


def test_the_table_has_a_row_for_each_stack_with_the_reason_of_a_break(record):
    table = record.table()
    assert list(table["graph"]) == [1, 2, 3]
    assert list(table["changed"]) == [3, 0, 0]
    assert table["passes"][0] > 20
    assert table["nodes_after"][0] > table["nodes_before"][0]
    assert "test_record.py" in table["break_line"][1]
    assert list(table["break_reason"] != "") == [False, True, False]


def test_switches_say_why_they_are_fixed(record):
    first = record.sessions["graph 1, inference"]
    with pytest.raises(ValueError, match="recorded while a script ran"):
        first.revert("joint/remove_noop_ops")
    assert first.applied == first.passes
    assert "record.sessions['graph 1, inference']" in first.to_python()


def test_a_report_is_written_of_a_recorded_graph(record, tmp_path):
    page = fxlab.report(record.sessions["graph 2, inference"], path=tmp_path / "a.html", measure=False)
    assert "record_compile" in page.read_text()


def test_gradients_are_stacks_of_their_own():
    def backend(graph_module, inputs):
        eager = copy.deepcopy(graph_module)
        compile_fx(graph_module, inputs, inner_compile=_without_code)
        return eager

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with fxlab.record_compile() as record:
        torch.compile(model, backend=backend)(torch.randn(2, 4)).sum().backward()
    assert [name.partition(", ")[2] for name in record.sessions] == ["joint", "forward", "backward"]
    assert all(session.verdict().agrees for session in record.sessions.values())


@pytest.mark.parametrize("error", [Recorded, KeyboardInterrupt])
def test_torch_is_as_it_was_when_the_block_raises(error):
    model = Blocks().eval()
    before = left_behind(model)

    def run():
        with fxlab.record_compile():
            assert list(map(id, patched())) != before[0]
            raise error("halfway")

    with pytest.raises(error):
        run()
    assert left_behind(model) == before
    with fxlab.record_compile() as record:
        pass
    assert not record.sessions
    assert record.table().empty


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("g++") is None, reason="generates code"),
            ],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_runs_computes_the_same_bits(backend):
    def run():
        torch._dynamo.reset()
        with torch.no_grad():
            return torch.compile(breaks, backend=backend)(X)

    plain = run()
    with fxlab.record_compile() as record:
        recorded = run()
    assert torch.equal(plain, recorded)
    assert len(record.sessions) == 2


def test_a_record_inside_of_another_is_refused():
    with fxlab.record_compile():
        with pytest.raises(RuntimeError, match="another one records"), fxlab.record_compile():
            pass
        with pytest.raises(RuntimeError, match="while record_compile records"):
            fxlab.compile_session(Blocks().eval(), X)
    with fxlab.record_compile() as record:
        pass
    assert record.sessions == {}


def test_a_part_that_a_backend_compiles_alone_is_not_taken_for_the_graph():
    def backend(graph_module, inputs):
        part = copy.deepcopy(graph_module)
        output = part.graph.output_node()
        (last,) = output.args[0]
        output.args = ((last.args[0],),)
        part.graph.erase_node(last)
        part.recompile()
        compile_fx(part, inputs, inner_compile=_without_code)
        return graph_module.forward

    with torch.no_grad(), fxlab.record_compile() as record:
        torch.compile(lambda x: torch.relu(torch.sin(x)), backend=backend)(X)
    (session,) = record.sessions.values()
    assert len(session.passes) == 0
    assert record.remarks == (
        "graph 2: its inputs are not known: it has not run, or a backend made it of another.",
    )
