"""What a graph computes if nothing is rounded."""

import copy

import pytest
import torch
from planted import traced
from torch import fx, nn

from fxlab.validation.verdicts.float64_run import run_in_float64
from fxlab.validation.verdicts.gradients import gradients_in_float64
from fxlab.values.tensors import tensors_by_path


class Calls(nn.Module):
    """A function of the module and the input, with a buffer to write to."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        return self.function(self, x)


def graph_of(function):
    return fx.symbolic_trace(Calls(function))


@pytest.mark.often(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_graph_runs_as_the_model_would_in_float64(dtype):
    graph, inputs = traced("resnet", dtype)
    expected = copy.deepcopy(graph).double()(inputs["pixel_values"].double())
    found = tensors_by_path(run_in_float64(graph, inputs).output)
    for path, tensor in tensors_by_path(expected).items():
        torch.testing.assert_close(found[path], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.weekly
def test_what_a_model_casts_is_not_rounded():
    graph, inputs = traced("t5", torch.bfloat16)
    outputs = tensors_by_path(run_in_float64(graph, inputs).output)
    assert {tensor.dtype for tensor in outputs.values()} <= {torch.float64, torch.bool}
    for tensor in outputs.values():
        assert tensor.dtype == torch.bool or not torch.equal(tensor, tensor.float().double())


def test_integers_booleans_and_complex_numbers_keep_their_kind():
    graph = graph_of(lambda _, x: (x.long(), x > 1, torch.complex(x, x), x.int() + 1))
    dtypes = [tensor.dtype for tensor in run_in_float64(graph, torch.ones(3)).output]
    assert dtypes == [torch.int64, torch.bool, torch.complex128, torch.int32]


def test_inputs_are_given_as_to_the_module():
    class TwoInputs(nn.Module):
        def forward(self, a, b=2.0):
            return a * b

    graph, x = fx.symbolic_trace(TwoInputs()), torch.ones(1)
    for inputs, expected in ((x, 2.0), ((x,), 2.0), ((x, 3.0), 3.0), ({"a": x, "b": 4.0}, 4.0)):
        assert run_in_float64(graph, inputs).output.item() == expected


def test_random_numbers_are_refused_by_the_name_of_their_node():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train())
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"Node '_1' draws random numbers.*model.eval\(\)"):
        run_in_float64(graph, torch.ones(1, 3))
    assert torch.equal(state, torch.get_rng_state())
    run_in_float64(fx.symbolic_trace(nn.Sequential(nn.Dropout(0.5)).eval()), torch.ones(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_node_that_has_no_float64_runs_in_its_own_dtype(dtype):
    graph = graph_of(lambda _, x: (x / 3).view(torch.int16).bitwise_and(-16).view(dtype) * 3)
    x = torch.randn(4, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = run_in_float64(graph, x)
    rounded = (x.double() / 3).to(dtype)
    assert torch.equal(found.output, rounded.view(torch.int16).bitwise_and(-16).view(dtype).double() * 3)
    assert found.in_own_dtype == ("view", "view_1")


def test_what_a_node_writes_in_its_own_dtype_is_read_by_later_ones():
    def halves(x):
        if x.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return x.mul_(0.5)

    graph = fx.Graph()
    x = graph.placeholder("x")
    wide = graph.call_function(torch.mul, (x, 1))
    written = graph.call_function(halves, (wide,))
    graph.output((graph.call_function(torch.add, (wide, 0)), written))
    found = run_in_float64(fx.GraphModule(nn.Module(), graph), torch.ones(2))
    assert [tensor.tolist() for tensor in found.output] == [[0.5, 0.5], [0.5, 0.5]]
    assert found.in_own_dtype == ("halves",)


def test_a_result_in_its_own_dtype_is_moved_where_it_has_a_gradient_too():
    def halved(x):
        if x.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return x * 0.5

    def gradients(*calls, **options):
        graph = fx.Graph()
        value = graph.placeholder("x")
        for target, *args in calls:
            value = graph.call_function(target, (value, *args))
        graph.output(graph.call_function(torch.square, (value,)))
        x = torch.ones(2, requires_grad=True)
        return gradients_in_float64(fx.GraphModule(nn.Module(), graph), x, {}, **options)

    moved = gradients((halved,), move=lambda tensor: tensor.double() + 1)
    expected = gradients((torch.mul, 0.5), (torch.add, 1))
    assert {path: values.tolist() for path, values in moved.items()} == {
        path: values.tolist() for path, values in expected.items()
    }


def test_what_runs_in_no_dtype_is_refused_by_the_name_of_its_node():
    graph = fx.Graph()
    graph.output(graph.call_function(torch.linalg.inv, (graph.placeholder("x"),)))
    with pytest.raises(ValueError, match=r"Node 'linalg_inv' cannot be run in float64: .*singular"):
        run_in_float64(fx.GraphModule(nn.Module(), graph), torch.zeros(2, 2))
