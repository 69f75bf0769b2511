"""A pattern asks for dtypes, and gets those that a graph has fixed."""

import pytest
import torch
from torch import nn

import fxlab


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def llama_norm(hidden, weight: nn.Parameter):
    dtype = hidden.dtype
    hidden = hidden.to(torch.float32)
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * hidden.to(dtype)


PATTERNS = {
    "a cast back": lambda x, y: (x + y).double().sin().to(y.dtype),
    "a cast like a tensor": lambda x, y: (x + y).double().sin().type_as(y),
    "type": lambda x, y: (x + y).double().sin().type(x.dtype),
    "the dtype of a tensor": lambda x, y: (x * y).double().exp().to(y),
    "a sum in another dtype": lambda x, y: x.sum(-1, keepdim=True, dtype=x.dtype) * y,
    "limits": lambda x, y: torch.where(y > 0, x, torch.finfo(x.dtype).max).tanh(),
    "a root of a size": lambda x, y: x * x.size(-1) ** -0.5 + y,
    "zeros": lambda x, y: torch.maximum(x, x.new_zeros(3, 4)) * y,
    "full": lambda x, y: x * torch.full((4,), 3.0, dtype=y.dtype, device=y.device) + y,
}
TRACES = {
    "symbolic_trace": lambda model, inputs: fxlab.symbolic_trace(model, inputs),
    "decomposed": lambda model, inputs: torch.export.export(model, inputs).run_decompositions().module(),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize(
    ("trace", "dtype"),
    [("symbolic_trace", torch.float32), ("symbolic_trace", torch.bfloat16), ("decomposed", torch.float32)],
)
@pytest.mark.parametrize("name", PATTERNS)
def test_a_function_matches_itself_in_every_dialect(name, trace, dtype):
    inputs = torch.randn(3, 4).to(dtype), torch.randn(3, 4).to(dtype)
    graph_module = TRACES[trace](Of(PATTERNS[name]), inputs)
    assert len(fxlab.rewriting.find_matches(graph_module, PATTERNS[name])) == 1


def test_without_known_results_a_dtype_is_that_of_the_same_value():
    def cast(x, y):
        return (x - y).double().type_as(y)

    traced = torch.fx.symbolic_trace(lambda a, b: ((a - b).double().type_as(b), (a - b).double().type_as(a)))
    (match,) = fxlab.rewriting.find_matches(traced, cast)
    assert match.roots[0].name == "type_as"


def test_another_dtype_is_the_reason_for_a_miss():
    inputs = torch.randn(3, 4).bfloat16(), torch.randn(3, 4).bfloat16()
    traced = fxlab.symbolic_trace(Of(lambda x, y: (x + y).double().sin().to(torch.float16)), inputs)
    pattern = fxlab.from_pattern(PATTERNS["a cast back"], lambda x, y: x, name="back")
    assert fxlab.rewriting.find_matches(traced, PATTERNS["a cast back"]) == []
    (reason,) = fxlab.Session(traced, inputs, passes=[pattern]).why_not("back")["reason"]
    assert "the dtype is torch.float16, and the pattern has torch.bfloat16" in reason


def test_the_norm_of_a_model_in_its_own_words_is_replaced_everywhere():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, vocab_size=32
    )
    model = transformers.LlamaModel(config).eval().bfloat16()
    fuse = fxlab.from_pattern(
        llama_norm, lambda hidden, weight: nn.functional.rms_norm(hidden, (16,), weight, 1e-6), name="fuse"
    )
    session = fxlab.Session(model, passes=[fuse])
    session.apply("fuse")
    assert len(session.changes("fuse").table) == 3


def test_dimensions_of_a_pattern_may_be_counted_from_the_end():
    traced = fxlab.symbolic_trace(Of(lambda x: x.permute(0, 2, 1).relu()), (torch.randn(2, 3, 4),))
    assert len(fxlab.rewriting.find_matches(traced, lambda x: x.permute(0, -1, 1).relu())) == 1
