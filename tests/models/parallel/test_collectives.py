"""Collectives of a graph: which there are, what waits for them, what they hide behind."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxlab
from fxlab.drawing import build_hierarchy
from fxlab.models.parallel.collectives import collectives_of
from fxlab.overlays import Subject, source
from fxlab.transformations.analysis.aliasing_and_writes import Writes
from fxlab.validation.tensor_values.node_values import statistics_by_node
from fxlab.view_model.details import Describer
from fxlab.view_model.measured_overlays import MeasuredOverlays
from fxlab.view_model.measurements import COLLECTIVES

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is deprecated:FutureWarning", "ignore:The traced graph is specialised"
)


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    dist.destroy_process_group()


class Gathers(nn.Module):
    """Gathers its input over one group, and sums over another."""

    def __init__(self, mesh):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.groups = mesh["tp"].get_group(), mesh["dp"].get_group()

    def forward(self, x):
        whole = functional.all_gather_tensor(x, 0, self.groups[0])
        local = self.first(x).relu()
        return local + functional.all_reduce(self.second(whole + 1).sum(0), "sum", self.groups[1])


X = torch.ones(4, 16)
_KNOWN = ["kind", "reduction", "group", "ranks", "bytes"]
_EXPECTED = [["all_gather", "", "tp", 4, 1024], ["all_reduce", "sum", "dp", 2, 64]]


@pytest.mark.parametrize(
    "capture",
    [
        lambda model: make_fx(model)(X),
        lambda model: torch.export.export(model, (X,)).module(),
        lambda model: fxlab.symbolic_trace(model, X),
    ],
)
def test_collectives_are_read_in_every_dialect(mesh, capture):
    table = fxlab.steps.collectives(capture(Gathers(mesh)))
    assert table[_KNOWN].to_numpy().tolist() == _EXPECTED


def test_values_of_a_size_that_depends_on_data_count_no_bytes(mesh):
    class Model(nn.Module):
        def forward(self, x):
            return functional.all_reduce(x[x[:, 0] > 0], "sum", mesh["dp"].get_group())

    assert fxlab.steps.collectives(torch.export.export(Model(), (X,)).module())["bytes"].tolist() == [0]


def test_work_between_start_and_wait_is_counted(mesh):
    gm = make_fx(Gathers(mesh))(X)
    assert fxlab.steps.collectives(gm)["exposed"].tolist() == [True, True]
    wait = gm.graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)[0]
    relu = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    relu.append(wait)
    first = fxlab.steps.collectives(gm).iloc[0]
    assert first["between"] == 2  # a product and an activation; a transposition is a view
    assert first["flops_between"] == 2 * 4 * 16 * 16
    assert not first["exposed"]


def test_of_a_collective_without_a_wait_the_first_reader_waits(mesh):
    def function(x):
        total = x.clone()
        work = dist.all_reduce(total, async_op=True)
        other = x.relu()
        work.wait()
        return total + other

    gm = make_fx(function)(X)
    (found,) = collectives_of(gm.graph)
    assert (found.kind, str(found.group)) == ("all_reduce", "all ranks")
    assert [node.name for node in found.waits] == ["add"]
    assert [node.name for node in found.meanwhile] == ["relu"]


class Broadcasts(nn.Module):
    def __init__(self, async_op):
        super().__init__()
        self.async_op = async_op

    def forward(self, x):
        whole = x.clone()
        work = dist.broadcast(whole, 0, async_op=self.async_op)
        if self.async_op:
            work.wait()
        return whole * 2


def test_collectives_of_python_are_recorded_or_refused_and_never_left_out(mesh):
    gm = fxlab.symbolic_trace(Broadcasts(False), X)
    assert fxlab.steps.collectives(gm)[["kind", "group", "wait", "exposed"]].to_numpy().tolist() == [
        ["broadcast", "all ranks", "", True]
    ]
    with pytest.raises(fxlab.TraceError, match="returns before the collective is over"):
        fxlab.symbolic_trace(Broadcasts(True), X)


def test_a_graph_is_coloured_by_groups(mesh):
    session = fxlab.Session(make_fx(Gathers(mesh))(X), X)
    names = [each["name"] for each in MeasuredOverlays(session).offered()]
    assert "collectives" in names
    assert COLLECTIVES.is_made_of(session)
    overlay = source("collectives").overlay(Subject(session.graph_module))
    assert overlay.values["all_gather_into_tensor"] == overlay.values["wait_tensor"] == "tp"
    assert overlay.labels["all_reduce"] == "all_reduce 64 B"
    assert COLLECTIVES.make(session)[1] == (
        "2 collectives, 1.06 KiB. Exposed, because nothing is computed meanwhile: 2 (1.06 KiB)."
    )
    alone = fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2))
    assert "collectives" not in [each["name"] for each in MeasuredOverlays(alone).offered()]
    with pytest.raises(ValueError, match="exchanges nothing"):
        source("collectives").overlay(Subject(alone.graph_module))


def _wait_last(gm):
    wait = next(node for node in gm.graph.nodes if node.name == "wait_tensor")
    next(iter(wait.users)).prepend(wait)


def test_an_order_is_proved_where_values_of_nodes_are_not_known(mesh):
    session = fxlab.Session(make_fx(Gathers(mesh))(X), X, passes=[])
    told = "process group is fake and exchanges nothing, so that values are not those of 8"
    assert told in fxlab.node_values(session, "wait_tensor").notes[0]
    with pytest.raises(ValueError, match=told):
        statistics_by_node(session.graph_module, session.inputs)
    session.add(fxlab.from_callable(_wait_last))
    session.apply("wait-last")
    assert "only the order changed" in session.verdict().reason


def test_details_say_which_wait_belongs_to_a_start(mesh):
    gm = make_fx(Gathers(mesh))(X)
    describer = Describer(build_hierarchy(gm), {})
    fields = {
        node.name: field["value"]
        for node in gm.graph.nodes
        for field in describer.node(node)["fields"]
        if field["label"] in ("Collective", "Waits for")
    }
    assert fields["all_reduce"] == (
        "all_reduce (sum) over dp, 2 ranks, 64 B; until wait_tensor_1, nothing computed meanwhile"
    )
    assert fields["wait_tensor"].startswith("all_gather_into_tensor, all_gather over tp, 4 ranks, 1 KiB;")


def test_what_a_collective_in_place_writes_is_known(mesh):
    def function(x):
        parts = [torch.zeros_like(x) for _ in range(8)]
        dist.all_gather(parts, x)
        return parts[0] + parts[1]

    gm = make_fx(function)(X)
    zeros = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.zeros_like.default)
    assert all(map(Writes(gm).is_written, zeros))
