"""Backends that take Dynamo's graph apart and compile each part alone, as those of inference servers do."""

import pytest
import torch
import torch._inductor
from tiny_models import Blocks
from torch._dynamo.backends.common import aot_autograd
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx
from torch.fx import Interpreter
from torch.fx.passes.split_module import split_module

import fxlab


def part_by_part(compile_part):
    """Return a backend that runs each relu eagerly, and compiles what is between."""

    def parts_of(graph_module):
        parts, number = {}, 0
        for node in graph_module.graph.nodes:
            is_relu = node.op == "call_function" and node.target is torch.relu
            number += is_relu
            parts[node] = number
            number += is_relu
        return split_module(graph_module, None, parts.__getitem__, keep_original_order=True)

    class CompileParts(Interpreter):
        def call_module(self, target, args, kwargs):
            part = self.fetch_attr(target)
            result = super().call_module(target, args, kwargs)
            if not part.graph.find_nodes(op="call_function", target=torch.relu):
                del self.module._modules[target]
                vars(self.module)[target] = compile_part(part, list(args))
            return result

    def backend(graph_module, example_inputs):
        whole = parts_of(graph_module)
        mode = detect_fake_mode(example_inputs)
        with mode:
            CompileParts(whole).run(*(mode.from_tensor(value) for value in example_inputs))
        return whole

    return backend


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "compile_part",
    [
        pytest.param(compile_fx.compile_fx, id="compile_fx"),
        pytest.param(
            lambda part, values: torch._inductor.standalone_compile(
                part, values, dynamic_shapes="from_example_inputs"
            ),
            id="standalone_compile",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_part_that_a_backend_compiles_is_a_graph_with_the_models_parameters(compile_part):
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(3, 8)
    expected = model(x)["y"]
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        found = torch.compile(model, backend=part_by_part(compile_part))(x)["y"]
    assert torch.allclose(found, expected)
    assert record.table["passes"].gt(0).tolist() == [False, True, True, True, True]
    first, *parts = record.sessions.values()
    assert all(part.verdict().agrees for part in parts)
    assert len(first.inputs) == 1
    held = {name for part in parts for name, _ in part.original.named_parameters()}
    assert held == {name for name, _ in model.named_parameters()}
    parts[1].generate_code()
    assert parts[1].verdict("compiled code").agrees


def test_a_graph_that_is_compiled_without_dynamo_is_recorded_with_its_inputs():
    graph_module = torch.fx.symbolic_trace(lambda x: (torch.relu(x) + 1,))
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        compile_fx.compile_fx(graph_module, [torch.ones(4)])(torch.full((4,), 3.0))
    (session,) = record.sessions.values()
    (value,) = session.inputs.values()
    assert value.tolist() == [3.0] * 4
    assert session.verdict().agrees


@pytest.mark.weekly
def test_regions_that_are_compiled_by_inductor_are_recorded():
    regional = pytest.importorskip("torch.fx.passes.regional_inductor").regional_inductor

    def function(x, y):
        product = x.sin()
        with torch.fx.traceback.annotate({"compile_with_inductor": 0}):
            product = (product * y + 1).exp()
        return product.sin()

    backend = aot_autograd(fw_compiler=regional, bw_compiler=regional)
    x = torch.randn(4, 4, requires_grad=True)
    with fxlab.compiler.record_compile() as record:
        torch.compile(function, backend=backend, fullgraph=True)(x, x.detach()).sum().backward()
    whole, *regions = record.sessions.values()
    assert len(regions) == 2  # of the forward and of the backward pass
    assert all("exp" in str(region.original.graph) for region in regions[:1])
    assert all(session.verdict().same_bits for session in (whole, *regions))
    assert record.remarks == ()
