"""Every form of a model goes into a session, through a pass and into a report; others are refused in
words."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab
from fxlab import Session
from fxlab.front_desk.sources import Source, source_of
from fxlab.tracing.dynamo.capture import CapturedGraph

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
PASSES = ("merge-linears", "fuse-bias-in-linear", "eliminate-common-subexpressions", "remove-dead-code")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        return (self.query(x) * self.key(x) / self.scale,)


torch.manual_seed(0)
MODEL, X = Model().eval(), torch.randn(3, 4)


def of_aot() -> list[GraphModule]:
    """Return the graphs that AOTAutograd makes of a training step: forward and backward, with their
    inputs."""
    found: list[tuple[GraphModule, list[torch.Size]]] = []

    def keep(graph_module, inputs):
        found.append((graph_module, [value.shape for value in inputs]))
        return make_boxed_func(graph_module.forward)

    torch._dynamo.reset()
    compiled = torch.compile(Model(), backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))
    compiled(X.clone().requires_grad_())[0].sum().backward()
    return [(graph, tuple(map(torch.randn, shapes))) for graph, shapes in found]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    program = torch.export.export(MODEL, (X,))
    path = tmp_path_factory.mktemp("programs") / "model.pt2"
    torch.export.save(program, path)
    capture = fxlab.Capture()
    torch._dynamo.reset()
    torch.compile(MODEL, backend=capture)(X)
    forward, backward = of_aot()
    return {
        "module": (MODEL, X),
        "fxlab.symbolic_trace": (fxlab.symbolic_trace(MODEL, X), X),
        "torch.fx.symbolic_trace": (torch.fx.symbolic_trace(MODEL), X),
        "make_fx": (make_fx(MODEL)(X), X),
        "program": (program, None),
        "decomposed program": (program.run_decompositions(), None),
        "path": (path, None),
        "path as text": (str(path), None),
        "module of a program": (program.module(), X),
        "unflattened program": (torch.export.unflatten(program), X),
        "captured graph": (capture.graphs[0], None),
        "AOT forward": forward,
        "AOT backward": backward,
    }


NAMES = (
    "module", "fxlab.symbolic_trace", "torch.fx.symbolic_trace", "make_fx", "program", "decomposed program",
    "path", "path as text", "module of a program", "unflattened program", "captured graph", "AOT forward",
    "AOT backward",
)  # fmt: skip


@pytest.mark.often(4)
@pytest.mark.parametrize("name", NAMES)
def test_each_source_goes_through_a_session_with_passes(sources, name):
    model, inputs = sources[name]
    session = Session(model, inputs)
    code = session.original.code
    for pass_ in PASSES:
        session.apply(pass_)
    assert session.verdict().agrees
    merged = session.changes("merge-linears").rewrites
    # Weights that are inputs cannot be replaced.
    assert merged == (0 if name in ("AOT forward", "AOT backward") else 1)
    session.revert()
    assert session.graph_module is session.original
    assert session.original.code == code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["path", "captured graph", "AOT backward"])
def test_each_source_is_drawn_and_reported(sources, name, tmp_path):
    model, inputs = sources[name]
    session = Session(model, inputs)
    graph = session.original
    assert fxlab.draw(model, inputs).view.hierarchy.root.nodes == len(graph.graph.nodes)
    assert fxlab.report(session, tmp_path / "report.html", measure=False).stat().st_size > 10_000


def test_comparisons_and_tables_take_sources(sources):
    program = sources["program"][0]
    assert fxlab.verdict(MODEL, program).agrees
    assert fxlab.verdict(program, sources["path"][0]).agrees
    assert fxlab.graph_diff(program, sources["path"][0]).empty
    assert "linear" in fxlab.profile(sources["captured graph"][0]).index
    assert fxlab.nodes(program).index.str.contains("linear").sum() >= 2


def test_a_program_brings_the_inputs_it_was_exported_with(sources):
    assert all(torch.equal(a, b) for a, b in zip(Session(sources["path"][0]).inputs, (X,), strict=True))
    given = torch.ones(3, 4)
    assert Session(sources["program"][0], given).inputs is given


def test_named_inputs_of_a_program_keep_their_names():
    class Scaled(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    program = torch.export.export(Scaled(), (X,), {"scale": X})
    assert sorted(source_of(program).inputs) == ["scale", "x"]
    assert Session(program).verdict().agrees


def test_a_graph_module_is_taken_as_it_is():
    traced = torch.fx.symbolic_trace(MODEL)
    assert source_of(traced) == Source(traced, None)
    assert Session(traced).original is traced


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, X)])
@pytest.mark.parametrize("use", [Session, fxlab.draw, fxlab.symbolic_trace, fxlab.profile])
def test_what_torch_jit_made_is_refused_in_words(make, use):
    with pytest.raises(TypeError, match=r"which torch\.jit made .* Give the module"):
        use(make(MODEL))


def test_a_program_is_not_traced_once_more(sources):
    with pytest.raises(TypeError, match=r"traced already.*fxlab\.from_exported\(model\)"):
        fxlab.symbolic_trace(sources["program"][0])


@pytest.mark.parametrize("name", ["captured graph", "module of a program"])
def test_what_holds_a_graph_is_said_to_be_traced_already(sources, name):
    model = sources[name][0]
    held = model if isinstance(model, CapturedGraph) else Session(model)
    with pytest.raises(TypeError, match=r"which is traced already\. Its graph is model\.graph_module\."):
        fxlab.symbolic_trace(held)


@pytest.mark.parametrize(
    "use",
    [
        Session,
        fxlab.symbolic_trace,
        lambda model, inputs: fxlab.verdict(model, model, inputs),
        lambda model, inputs: fxlab.profile(model, inputs),
    ],
)
@pytest.mark.parametrize("model", [MODEL, torch.fx.symbolic_trace(MODEL)])
def test_fake_inputs_as_a_compiler_is_given_them_are_refused_in_words(model, use):
    fake = FakeTensorMode().from_tensor(X)
    with pytest.raises(ValueError, match=r"^inputs: .* a fake one of shape \(3, 4\), as AOTAutograd"):
        use(model, (fake,))


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (fxlab.Capture(), r"a Capture\. Give one of its graphs: model\.graphs\[0\]"),
        (torch.fx.Graph(), r"a Graph\. Give its module, or make one: torch\.fx\.GraphModule\(root, model\)"),
        (lambda x: x, r"inputs: expected what the function <lambda> is called with"),
        (MODEL.state_dict(), r"an OrderedDict\. Load or build the model first"),
    ],
    ids=["capture", "graph", "function", "weights"],
)
def test_what_may_be_meant_is_said(model, advice):
    with pytest.raises(TypeError, match=advice):
        Session(model)


@pytest.mark.parametrize("model", ["model.onnx", "bert", 3, None, nn.Linear])
def test_what_is_no_model_is_named(model):
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, .*\.pt2 file .* got"):
        source_of(model)


class Products(nn.Module):
    def forward(self, first, *factors, offset, **more):
        for factor in factors:
            first = first * factor
        return first + offset - sum(more.values())


def test_the_positional_rest_is_given_by_its_name_beside_keywords():
    a, b, c = torch.rand(3, 5).unbind()
    inputs = {"offset": c, "factors": (b, c), "first": a, "less": b}
    session = Session(Products(), inputs)
    expected = Products()(a, b, c, offset=c, less=b)
    assert torch.equal(session.graph_module(a, b, c, offset=c, less=b), expected)
    assert session.verdict().agrees
    with pytest.raises(TypeError, match="missing a required argument: 'first'"):
        fxlab.symbolic_trace(Products(), {"factors": (b,), "offset": c})
