"""Telling rounding from mistakes, without a tolerance."""

import copy
import math
import operator
import re
import warnings

import pytest
import torch
from planted import Of, scaled, traced, transformed
from torch import fx, nn
from torch.nn import functional as F
from wrapper_tensor import quantize

import fxlab
from fxlab import FuseBatchNorm2dInConv2d, MergeLinears, verdict
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.validation import Status
from fxlab.validation.verdicts.runs import Runs

SAME, WITHIN, DIFFERENT = "same bits", "within the model's own rounding", "different"


def graph_of(function):
    return fx.symbolic_trace(Of(function))


def judged(a, b, x=None):
    return verdict(graph_of(a), graph_of(b), torch.randn(64) if x is None else x)


@pytest.mark.often(1)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("llama", torch.float16), ("bert", torch.bfloat16)])
def test_merged_linears_are_within_rounding_and_one_percent_of_a_weight_is_not(name, dtype):
    graph, inputs = traced(name, dtype)
    merge = MergeLinears()
    merged = transformed(graph, merge)
    correct = verdict(graph, merged, inputs)
    assert correct.status in (SAME, WITHIN), correct.reason
    assert correct.agrees
    for node in merge.get_transformed_nodes(merged):
        wrong = scaled(merged, node.target, 1.01, slice(-16, None))  # the rows of one of the layers
        found = verdict(graph, wrong, inputs)
        assert found.status == DIFFERENT, (node, found)
        assert "a different function" in found.reason


@pytest.mark.often(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_roundings_of_every_result_are_within_rounding(dtype):
    """Merged on this machine, linears may give the very same bits; here they cannot."""
    graph, inputs = traced("llama", dtype)
    merged = transformed(graph, MergeLinears())
    for node in merged.graph.nodes:
        if node.op == "call_function" and node.target is torch.nn.functional.silu:
            with merged.graph.inserting_before(node):
                half = merged.graph.call_method("sigmoid", (node.args[0],))
                silu = merged.graph.call_function(torch.mul, (half, node.args[0]))
            node.replace_all_uses_with(silu)
    merged.recompile()
    found = verdict(graph, merged, inputs)
    assert found.status == WITHIN
    assert 0.5 < found.ratio < 2
    last = scaled(merged, merged.graph.find_nodes(op="call_module")[-1].target, 1.01)
    assert verdict(graph, last, inputs).status == DIFFERENT


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_folded_batch_norms_are_within_rounding(dtype):
    graph, inputs = traced("resnet", dtype)
    fused = transformed(graph, FuseBatchNorm2dInConv2d())
    found = verdict(graph, fused, inputs)
    assert found.status == WITHIN, found.reason
    table = found.table
    assert (table["new_values_error"] > 0).all() or dtype == torch.float64
    assert (table["function_error"] < 3 * table["new_values_error"]).all() or dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_norms_folded_without_their_epsilon_are_different(dtype):
    graph, inputs = traced("resnet", dtype)
    wrong = share_tensors_copy(graph)
    for module in wrong.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 0.0 if dtype == torch.float32 else 1e-2
    fused = transformed(wrong, FuseBatchNorm2dInConv2d())
    assert verdict(graph, fused, inputs).status == DIFFERENT


def test_a_part_in_lower_precision_is_different_though_the_function_is_the_same():
    found = judged(lambda x: (x * 3).sin(), lambda x: (x * 3).bfloat16().sin().float())
    assert found.status == DIFFERENT
    assert "rounds worse" in found.reason
    assert found.ratio > 1000


DOUBLES = {
    "division": (lambda x: (x / 3).exp() / 7, lambda x: (x * (1 / 3)).exp() * (1 / 7)),
    "order of a sum": (lambda x: (x + 1) + x.sin(), lambda x: x + (1 + x.sin())),
    "in place": (lambda x: (x * 1).div_(3).add_(1), lambda x: (x * 1).mul_(1 / 3).add_(1)),
    "mean": (lambda x: x.exp().mean(), lambda x: x.flip(0).exp().sum() / x.numel()),
    "complex": (lambda x: torch.fft.fft(x) / 3, lambda x: torch.fft.fft(x / 3)),
}


@pytest.mark.often(5)
@pytest.mark.parametrize("size", [1, 6, 500])
@pytest.mark.parametrize("name", DOUBLES)
def test_what_float64_rounds_is_no_other_function_though_no_wider_dtype_tells(name, size):
    ours, theirs = DOUBLES[name]
    for seed in range(3):
        x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        assert judged(ours, theirs, x).agrees
        assert judged(ours, lambda x: theirs(x) * (1 + 1e-12), x).status == DIFFERENT
        assert (
            x == torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        ).all()


def test_models_in_float64_are_judged_by_what_moving_all_their_numbers_does():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
    model = nn.Sequential(*layers).double()
    model(torch.randn(8, 3, 9, 9).double())
    graph = fx.symbolic_trace(model.eval())
    x = torch.randn(2, 3, 9, 9).double()
    folded = transformed(graph, FuseBatchNorm2dInConv2d())
    assert verdict(graph, folded, x).status == WITHIN
    assert verdict(graph, folded, x, gradients=True).agrees
    with torch.no_grad():
        folded.get_submodule("3").weight.mul_(1 + 1e-13)
    assert verdict(graph, folded, x).status == DIFFERENT


def test_huge_elements_do_not_hide_mistakes_in_the_others():
    lowest = torch.finfo(torch.float32).min

    def masked(factor):
        return lambda x: torch.where(x > 0, torch.exp(x) * factor, lowest)

    x = torch.randn(1000)
    assert judged(masked(1.0), masked(1 + 1e-5), x).status == DIFFERENT
    massive = x.clone()
    massive[0] = 1e6
    assert (
        judged(lambda x: x * 1.1, lambda x: torch.where(x < 10, x * 1.10001, x * 1.1), massive).status
        == DIFFERENT
    )


def test_integers_and_booleans_have_to_be_equal():
    x = torch.tensor([1.0, 2.0, 3.0])
    found = judged(lambda x: x.long(), lambda x: x.long() + (x > 2), x)
    assert (found.reason, found.compared) == ("output: 1 of 3 int64 elements differ", 3)
    assert judged(lambda x: x > 1, lambda x: x > 2, x).status == DIFFERENT
    assert judged(lambda x: (x > 1, x.int()), lambda x: (x >= 2, x.int()), x).status == SAME


def test_numbers_that_are_rounding_alone_are_not_compared():
    def large(x):  # infinite, but for rounding
        return 1 / (x * 7 - (x + x + x + x + x + x + x))

    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    x = x[large(x).isfinite()]
    found = judged(lambda x: large(x) * (x / 3), lambda x: large(x) * (x * (1 / 3)), x)
    assert found.status == "nothing compared"
    assert "no finite element to compare with" in found.reason


def test_nan_and_infinity_have_to_be_in_the_same_places():
    x = torch.tensor([1.0, -1.0, 0.0, 2.0])
    found = judged(lambda x: x.log(), lambda x: x.abs().log(), x)
    assert found.reason == "output: 1 of 4 numbers are NaN or infinite in one of the two only"
    assert found.compared == 2
    minus = judged(lambda x: 1 / x, lambda x: torch.where(x == 0, -1 / x, 1 / x), x)
    assert minus.reason.startswith("output: 1 of 4")
    x = torch.arange(-2.0, 30.0)
    both = judged(lambda x: x.log() / 3, lambda x: x.log() * (1 / 3), x)
    assert both.agrees
    assert both.status == WITHIN
    assert math.isfinite(both.ratio)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x: x * math.nan, "all 4 elements are NaN or infinite in both"),
        (lambda x: x * 0 - math.inf, "all 4 elements are NaN or infinite in both"),
        (lambda x: x[:0], "it has no elements"),
    ],
)
def test_where_nothing_can_be_compared_models_do_not_agree(spoil, words):
    x = torch.randn(4)
    first, second = (graph_with(lambda x, k: spoil(x * k), k) for k in (2, 3))
    for other in (first, second):
        found = verdict(first, other, x)
        assert found.status is Status.NOTHING_COMPARED
        assert (found.agrees, found.compared) == (False, 0)
        assert words in found.reason
    table = fxlab.compare_outputs(first, second, x)
    assert not table[["allclose", "same_bits"]].any(axis=None)
    assert table["note"].str.startswith("nothing compared").all()


def test_an_output_without_numbers_beside_others_is_named():
    def masked(x):
        return {"y": x + 1, "mask": x * 0 - math.inf, "none": x[:0], "ids": x.argsort()}

    graph = fx.symbolic_trace(masked)
    found = verdict(graph, fx.symbolic_trace(masked), torch.randn(4))
    assert (found.agrees, found.compared) == (True, 8)
    assert "nothing to compare in mask: all 4 elements are NaN or infinite in both; none: it" in found.reason


def test_numbers_that_are_partly_nan_are_counted():
    graph = fx.symbolic_trace(lambda x: x.log())
    found = verdict(graph, fx.symbolic_trace(lambda x: x.log()), torch.tensor([1.0, -1.0, 3.0, 2.0]))
    assert (found.agrees, found.compared) == (True, 3)
    assert "1 of 4 elements are NaN or infinite in both" in found.reason


def test_a_written_counter_does_not_make_up_for_outputs_without_numbers():
    def spoils(x, seen):
        seen.add_(1)
        return x * math.nan

    graph = fx.symbolic_trace(spoils)
    found = verdict(graph, fx.symbolic_trace(spoils), (torch.ones(2), torch.zeros(1)))
    assert found.status is Status.NOTHING_COMPARED


def test_token_ids_are_compared_exactly():
    first, second = (graph_with(lambda x, k: (x + k, x > k), k) for k in (128_000, 128_001))
    ids = torch.tensor([0, 5, 128_001])
    assert verdict(first, second, ids).status is Status.DIFFERENT
    table = fxlab.compare_outputs(first, second, ids, atol=10, rtol=1)
    assert table["mismatched"].tolist() == [3, 1]
    assert not table["allclose"].any()
    large = torch.tensor([2**53])
    first, second = (graph_with(lambda x, k: x + k, k) for k in (0, 1))
    assert not fxlab.compare_outputs(first, second, large)["allclose"].any()


def graph_with(function, constant):
    return fx.symbolic_trace(lambda x: function(x, constant))


def test_shapes_dtypes_and_missing_outputs_are_named():
    assert judged(lambda x: x, lambda x: x[:1]).reason == "output: the shapes differ: (64,) and (1,)"
    assert (
        judged(lambda x: x, lambda x: x.double()).reason == "output: the dtypes differ: float32 and float64"
    )
    found = judged(lambda x: {"a": x, "b": x}, lambda x: {"a": x})
    assert found.reason == "b: only the original has it"
    assert judged(lambda x: [x], lambda x: [x, x]).reason.endswith(": only the transformed has it")
    assert list(found.table["status"]) == [SAME, DIFFERENT]


def test_complex_outputs_are_judged():
    def spectrum(factor):
        return lambda x: torch.fft.fft(x * factor)

    assert judged(spectrum(1 / 3), lambda x: torch.fft.fft(x / 3)).agrees
    assert judged(spectrum(1 / 3), spectrum(0.3334)).status == DIFFERENT


def test_inputs_are_made_from_the_configuration_if_left_out():
    graph, _ = traced("bert")
    assert verdict(graph, transformed(graph, MergeLinears())).agrees


def test_what_cannot_be_judged_is_said_in_words():
    graph, inputs = traced("bert")
    with pytest.raises(TypeError, match=r"reference: expected a torch.nn.Module, .* got 'linear'"):
        verdict("linear", graph, inputs)
    with pytest.raises(TypeError, match="inputs: expected a tensor, a tuple, or a mapping"):
        verdict(graph, graph, "text")
    with pytest.raises(ValueError, match=r"original: the BertModel does not run on these inputs"):
        verdict(graph, graph, {"pixel_values": torch.ones(1)})
    with pytest.raises(ValueError, match=r"original: it is on the meta device"):
        verdict(copy.deepcopy(graph).to("meta"), graph, inputs)
    with pytest.raises(ValueError, match=r"original: it returns no tensors"):
        verdict(graph_of(lambda x: None), graph_of(lambda x: None), torch.ones(1))


class Quantized(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.linear, self.scale = nn.Linear(8, 8), scale

    def forward(self, x):
        y = torch.quantize_per_tensor(self.linear(x) * self.scale, 0.05, 10, torch.quint8)
        return torch.dequantize(y) / 3


class GroupedExperts(nn.Module):
    """Tokens in groups, each of which has an expert."""

    def __init__(self, product):
        super().__init__()
        self.product, self.before = product, nn.Linear(16, 16)
        self.experts = nn.Parameter(torch.randn(4, 16, 16) / 4)

    def forward(self, x):
        x = self.before(x)
        return x + self.product(x, self.experts, torch.tensor([4, 10, 16, 32], dtype=torch.int32))


def grouped(x, experts, ends):
    return torch._grouped_mm(x, experts, offs=ends)


def one_by_one(x, experts, ends):
    return torch.cat([x[:4] @ experts[0], x[4:10] @ experts[1], x[10:16] @ experts[2], x[16:] @ experts[3]])


def with_weights_of(model, other):
    model.load_state_dict(other.state_dict())
    return fx.symbolic_trace(model.to(next(other.parameters()).dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nodes_that_have_no_float64_are_judged_in_their_own_dtype_and_named(dtype):
    torch.manual_seed(0)
    model, x = GroupedExperts(grouped).to(dtype), torch.randn(32, 16).to(dtype)
    graph, other = fx.symbolic_trace(model), with_weights_of(GroupedExperts(one_by_one), model)
    assert verdict(graph, other, x).agrees
    assert verdict(other, graph, x).agrees
    for name in ("experts", "before.weight"):
        wrong = copy.deepcopy(graph)
        with torch.no_grad():
            wrong.get_parameter(name)[1] *= 1.05
        found = verdict(graph, wrong, x)
        assert found.status == DIFFERENT, name
        assert found.in_own_dtype == ("_grouped_mm",)
        assert found.reason.endswith("; 1 node has no float64 and ran in its own dtype (_grouped_mm)")


@torch.library.custom_op("verdicts::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention as a kernel computes it that has no float64: block by block, with many roundings."""
    if q.dtype == torch.float64:
        raise RuntimeError("this kernel takes float32")
    total, most, out = torch.zeros(q.shape[:-1]), torch.full(q.shape[:-1], -math.inf), torch.zeros_like(q)
    for keys, values in zip(k.split(2, 1), v.split(2, 1), strict=True):
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        above = torch.maximum(most, scores.amax(-1))
        weights, kept = (scores - above[..., None]).exp(), (most - above).exp()
        total, out, most = total * kept + weights.sum(-1), out * kept[..., None] + weights @ values, above
    return out / total[..., None]


class Attends(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.before, self.after, self.attend = nn.Linear(8, 24), nn.Linear(8, 8), attend

    def forward(self, x):
        q, k, v = (self.before(x)[..., start : start + 8] for start in (0, 8, 16))
        return self.after(self.attend(q, k, v))


def test_a_gradient_that_is_zero_in_theory_decides_nothing():
    torch.manual_seed(0)
    model, x = Attends(F.scaled_dot_product_attention), torch.randn(3, 64, 8)
    graph = fx.symbolic_trace(model)
    other = with_weights_of(Attends(lambda q, k, v: (q @ k.mT / math.sqrt(8)).softmax(-1) @ v), model)
    found = verdict(graph, other, x, gradients=True)
    assert found.agrees
    assert found.ratio < 3
    bias = copy.deepcopy(graph)
    with torch.no_grad():
        bias.before.bias[8:16] += 1  # that of the keys, which softmax takes away
    assert "no digit" not in str(found)
    assert verdict(graph, bias, x).agrees


def test_a_kernel_without_float64_rounds_in_its_own_way():
    torch.manual_seed(0)
    model, x = Attends(attention), torch.randn(3, 64, 8)
    graph, other = fx.symbolic_trace(model), with_weights_of(Attends(F.scaled_dot_product_attention), model)
    for pair in ((graph, other), (other, graph)):
        assert verdict(*pair, x).agrees
        assert fxlab.first_divergence(*pair, x) is None
        wrong = copy.deepcopy(pair[1])
        with torch.no_grad():
            wrong.before.weight[:8] *= 1.01
        assert verdict(pair[0], wrong, x).status == DIFFERENT


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantized_graphs_are_judged():
    model, x = Quantized(), torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    graph = fx.symbolic_trace(model)
    thirds = copy.deepcopy(graph)
    for node in thirds.graph.find_nodes(op="call_function", target=operator.truediv):
        node.target, node.args = operator.mul, (node.args[0], 1 / 3)
    thirds.recompile()
    assert verdict(graph, thirds, x).status == WITHIN
    found = verdict(graph, with_weights_of(Quantized(1.02), model), x)
    assert found.status == DIFFERENT
    assert found.in_own_dtype == ("quantize_per_tensor",)


def test_dropout_that_only_the_transformed_model_has_is_a_difference():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    graph, left_on = fx.symbolic_trace(model), fx.symbolic_trace(copy.deepcopy(model).train())
    found = verdict(graph, left_on, torch.ones(3, 4))
    assert found.status == DIFFERENT
    assert found.reason == (
        "random numbers: the transformed model draws random numbers, the original draws none (node '_1') "
        "(1 of 1 outputs differ too)"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_fold_that_rounds_each_step_is_within_rounding_where_no_output_shows_it(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(part for _ in range(2) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Tanh()))
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean, 5)
            # The fold takes the difference of two numbers that are much larger than it.
            module.bias.data = module.running_mean / module.running_var.sqrt() + torch.randn(8) / 10
    model = model.eval().to(dtype)
    graph, x = fx.symbolic_trace(model), torch.randn(2, 8, 8, 8).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what the module imports
        from torch.fx.experimental.optimization import fuse
    found = verdict(graph, fuse(model), x)
    if dtype == torch.float32:
        assert found.status == WITHIN
        assert re.search(
            r"its new values are rounded worse \(.* times .*\); the output does not show it", found.reason
        )
        wrong = verdict(graph, scaled(fuse(model), "3", 1.001), x)
        assert wrong.reason.startswith("output: a different function")
    else:  # whose batch norm computes in float32
        assert found.status == DIFFERENT
        assert "it computes the same, but rounds worse" in found.reason


def test_weights_that_were_quantized_have_a_verdict_and_node_differences():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), torch.randn(3, 8)
    session = fxlab.Session(model, (x,), passes=[fxlab.from_callable(quantize)])
    session.apply("quantize")
    assert session.verdict().status is Status.DIFFERENT
    introduced = fxlab.compare_nodes(session.original, session.graph_module, session.inputs).introduced
    assert (introduced[["_0", "_2"]] > 0).all()
    assert introduced["_1"] == 0
    assert str(fxlab.bisect(session)).startswith("quantize makes it different")


def test_outputs_that_differ_in_bits_decide_although_others_need_a_float64_run():
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    ours = fxlab.Session(
        graph_of(lambda x: (x.exp() * 3, x.argsort())),
        x,
        passes=[fxlab.from_callable(sorted_the_other_way, name="other order")],
    )
    ours.apply("other order")
    known = ours._internals.known_verdict()
    assert known is not None
    assert known.status is Status.DIFFERENT


def sorted_the_other_way(graph_module):
    for node in graph_module.graph.nodes:
        if node.target == "argsort":
            node.kwargs = {"descending": True}
        if node.target == operator.mul:
            node.args = (node.args[0], 3 + 2**-22)
    graph_module.recompile()


@pytest.mark.parametrize("writes", [False, True])
def test_others_that_differ_as_well_are_counted_among_outputs_and_written_tensors(writes):
    def both(scale):
        def function(x):
            y = (x * scale, x - scale)
            return (*y, x.mul_(scale)) if writes else y

        return function

    found = judged(both(2), both(3))
    assert found.status is Status.DIFFERENT
    assert ("tensors likewise" in found.reason) == writes
    assert ("outputs likewise" in found.reason) == (not writes)


def test_numbers_that_float64_holds_are_moved_where_they_are_held():
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    runs = Runs(fx.symbolic_trace(nn.Linear(4, 2, bias=False, dtype=torch.float64)), "original", x)
    moved = runs.exact_moved(lambda tensor: 2 * tensor, everywhere=False)
    assert {path: torch.equal(moved[path], value) for path, value in runs.exact.items()} == {"output": True}
