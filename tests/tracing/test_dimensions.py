import pytest
import torch
import torch.nn.functional as F
from agreement import assert_agree
from function_module import Function
from torch import nn

from fxlab import symbolic_trace
from fxlab.validation.verdicts.float64_run import run_in_float64

READS = {
    "dim": lambda self, x: x.sum(tuple(range(1, x.dim()))),
    "ndim": lambda self, x: x * x.ndim,
    "length of a shape": lambda self, x: x * len(x.shape),
    "shape of what was computed": lambda self, x: (x * 2).reshape((x * 2).shape[0], -1).sum(1),
    "a size from the end": lambda self, x: x / x.size(-1),
    "numel": lambda self, x: x / torch.numel(x),
    "a size of several": lambda self, x: x / x.flatten(1).shape[1],
    "shapes that are equal": lambda self, x: x * 2 if x.shape == (x + 1).shape else x,
    "rows": lambda self, x: sum(row.sum() for row in x),
    "dim_order": lambda self, x: x * len(x.dim_order()),
    "dense_dim": lambda self, x: x * x.dense_dim(),
    "a tensor for each dimension": lambda self, x: x * len(torch.nonzero(x, as_tuple=True)),
    "a gradient for each dimension": lambda self, x: x * len(torch.gradient(x)),
    "lists inside lists": lambda self, x: x * isinstance(x.tolist()[0][0], float),
}
OTHERS = {
    "nothing": lambda self, x: x * 2 + torch.zeros_like(x),
    "the shape of a parameter": lambda self, x: x * self.weight.shape[0] * self.weight.dim(),
    "a dtype": lambda self, x: (x.double() * 2).to(x.dtype),
    "a dimension from the end": lambda self, x: torch.softmax(x.transpose(0, -1), -1),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("shape", [(4,), (4, 3, 2)])
def test_where_python_reads_a_shape_another_number_of_dimensions_is_refused(name, shape):
    model, x = Function(READS[name]), torch.randn(4, 3)
    traced = symbolic_trace(model, (x,))
    assert_agree(traced, model, (x,))
    with pytest.raises(AssertionError, match="traced for x with ndim = 2 only"):
        traced(torch.randn(shape))


def test_too_few_dimensions_for_a_size_that_is_held_are_refused_in_words():
    model = nn.Conv1d(1, 4, 3)
    traced = symbolic_trace(nn.Sequential(model), torch.randn(3, 1, 8), check=False)
    inside = symbolic_trace(
        Function(lambda self, x: model(x["a"])), ({"a": torch.randn(3, 1, 8)},), check=False
    )
    with pytest.raises(AssertionError, match="traced for input with ndim > 1 only"):
        traced(torch.randn(3))
    with pytest.raises(AssertionError, match=r"traced for x\['a'\] with ndim > 1 only"):
        inside({"a": torch.randn(3)})


@pytest.mark.parametrize("given", [None, 2.0, [1.0], "a", {}])
@pytest.mark.parametrize("read", [READS["ndim"], OTHERS["nothing"], OTHERS["a dimension from the end"]])
def test_something_else_than_a_tensor_is_refused_in_words(read, given):
    traced = symbolic_trace(Function(read), (torch.randn(4, 3),))
    with pytest.raises(AssertionError, match="traced for x as a tensor only"):
        traced(given)


class Optional(nn.Module):
    def forward(self, q, mask=None):
        if mask is not None:
            return 2 * F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return F.scaled_dot_product_attention(q, q, q)


def test_none_for_an_optional_tensor_is_refused_where_no_call_would():
    q, mask = torch.randn(2, 3, 4), torch.ones(3, 3, dtype=torch.bool)
    traced = symbolic_trace(Optional(), (q, mask))
    assert_agree(traced, Optional(), (q, mask))
    with pytest.raises(AssertionError, match="traced for mask as a tensor only"):
        traced(q, None)


def test_a_tensor_that_is_missing_is_named():
    traced = symbolic_trace(Optional(), (torch.randn(2, 3, 4), torch.ones(3, 3, dtype=torch.bool)))
    with pytest.raises(AssertionError, match="traced for mask as a tensor only, and it is missing"):
        traced(torch.randn(2, 3, 4))


class AsksForItsClass(nn.Module):
    def forward(self, x, y):
        return x + y if isinstance(y, torch.Tensor) else x - y


class AsksTorch(nn.Module):
    def forward(self, x, y):
        return x + y if torch.is_tensor(y) else x - y


@pytest.mark.parametrize("model", [AsksForItsClass(), AsksTorch()])
def test_a_number_is_refused_where_the_model_asks_for_tensors(model):
    traced = symbolic_trace(model, (torch.randn(4, 3), torch.randn(3)))
    assert_agree(traced, model, (torch.randn(4, 3), torch.randn(4, 1)))
    with pytest.raises(AssertionError, match="traced for y as a tensor only"):
        traced(torch.randn(4, 3), 1.0)


class Masked(nn.Module):
    """A model that takes masks of tokens and masks of pairs of tokens, as many do."""

    def forward(self, scores, masks):
        mask = masks["mask"]
        return scores + (mask if mask.ndim == 4 else mask[:, None, None, :])


def test_the_number_of_dimensions_of_a_mask_inside_an_input_is_held():
    model, scores = Masked(), torch.randn(2, 3, 4, 4)
    pairs = {"mask": torch.randn(2, 1, 4, 4)}
    traced = symbolic_trace(model, (scores, {"mask": torch.randn(2, 4)}))
    assert_agree(traced, model, (scores, {"mask": torch.randn(2, 4)}))
    with pytest.raises(AssertionError, match=r"traced for masks\['mask'\] with ndim = 2 only"):
        traced(scores, pairs)
    assert_agree(symbolic_trace(model, (scores, pairs)), model, (scores, pairs))


def test_checks_of_what_is_inside_an_input_stay_where_unused_nodes_go():
    traced = symbolic_trace(Masked(), (torch.randn(2, 3, 4, 4), {"mask": torch.randn(2, 4)}))
    traced.graph.eliminate_dead_code()
    traced.recompile()
    for wrong in ({"mask": torch.randn(2, 1, 4, 4)}, {"mask": None}):
        with pytest.raises(AssertionError, match=r"traced for masks\['mask'\]"):
            traced(torch.randn(2, 3, 4, 4), wrong)


def test_what_checks_inputs_is_no_node_that_has_no_float64():
    """A mapping as input, whose dtype is read too."""
    model = Function(lambda self, x: (x["a"] * x["a"].ndim).to(x["a"].dtype))
    inputs = ({"a": torch.randn(4, 3)},)
    result = run_in_float64(symbolic_trace(model, inputs), inputs)
    assert (result.output.dtype, result.in_own_dtype) == (torch.float64, ())


def test_such_a_graph_can_be_exported_and_compiled():
    model, x = Function(READS["ndim"]), torch.randn(4, 3)
    traced = symbolic_trace(model, (x,), check=False)
    exported = torch.export.export(traced, (x,)).module()
    compiled = torch.compile(traced, backend="eager", fullgraph=True)
    for graph in (exported, compiled):
        assert torch.equal(graph(x), model(x))
