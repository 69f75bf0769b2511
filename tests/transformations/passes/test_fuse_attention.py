"""FuseAttention: eager attention as one function, where that computes the same, and nothing else."""

import math

import pytest
import torch
from exactness import (
    Apply,
    assert_close,
    assert_is,
    before_and_after,
    captured,
    check,
    refused,
    snapshot,
    traced,
)
from expecttest import assert_expected_inline
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

import fxlab
from fxlab import FuseAttention

FUSE = FuseAttention()
LOWEST = torch.finfo(torch.float32).min


class Attends(Apply):
    """Whatever function of queries, keys, values and a boolean mask is given, and modules to use in it."""

    def __init__(self, function, **modules):
        causal, infinite = (torch.full((5, 5), value).triu(1) for value in (LOWEST, -math.inf))
        super().__init__(function, causal=causal, infinite=infinite, **modules)

    def forward(self, q, k, v, mask):
        return self.function(self, q, k, v, mask)


def inputs(dtype=torch.float32, keys=5):
    q = torch.randn(2, 3, 5, 8).to(dtype)
    k, v = torch.randn(2, 2, 3, keys, 8).to(dtype)
    return q, k, v, torch.rand(2, 1, 5, keys) > 0.3


def shaped(model, *given):
    gm = traced(model)
    ShapeProp(gm).propagate(*given)
    return gm


def checked(function, dtype=torch.float32, tolerance=None, keys=5, **modules):
    model, given = Attends(function, **modules), inputs(dtype, keys)
    gm = check(FUSE, model, *given, marked=1, gm=shaped(model, *given), tolerance=tolerance)
    assert not any("softmax" in node.name for node in gm.graph.nodes)
    assert len(gm.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)) == 1
    return gm


def why_not(function, given=None, gm=None, **modules):
    """Check that a model is left alone, and computes the same; return the code of the reason."""
    model = Attends(function, **modules)
    given = inputs() if given is None else given
    return refused(FUSE, shaped(model, *given) if gm is None else gm)


def masked(mask, lowest=LOWEST):
    return torch.where(mask, 0.0, lowest)


def test_the_graph_before_and_after():
    gm = shaped(
        Attends(lambda _, q, k, v, m: (q @ k.transpose(-1, -2) / 4 + masked(m)).softmax(-1) @ v), *inputs()
    )
    assert_expected_inline(
        before_and_after(FUSE, gm),
        """\
q = input
k = input
v = input
mask = input
transpose = k.transpose(-1, -2)
matmul = matmul(q, transpose)
truediv = truediv(matmul, 4)
where = where(mask, 0.0, -3.4028234663852886e+38)
add = add(truediv, where)
softmax = add.softmax(-1)
matmul_1 = matmul(softmax, v)
return matmul_1

becomes

q = input
k = input
v = input
mask = input
where = where(mask, 0.0, -3.4028234663852886e+38)
matmul_1_mask = clamp(where, -1.7014117331926443e+38)
matmul_1_autocast = require_no_autocast('matmul_1')
matmul_1_attention = scaled_dot_product_attention(q, k, v, attn_mask=matmul_1_mask, dropout_p=0.0, scale=0.25)
matmul_1 = matmul_1_attention.contiguous()
return matmul_1
""",
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda _, q, k, v, m: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
        lambda _, q, k, v, m: torch.matmul(F.softmax(torch.matmul(q, k.mT) / math.sqrt(8), dim=-1), v),
        lambda _, q, k, v, m: torch.matmul(torch.softmax(q.matmul(k.transpose(2, 3)) * 0.3, 3), v),
        lambda _, q, k, v, m: (0.3 * (q @ k.swapaxes(3, 2)) + masked(m)).softmax(-1) @ v,
        lambda _, q, k, v, m: (masked(m) + (q @ k.mT).div(3)).softmax(dim=-1).matmul(v),
        lambda _, q, k, v, m: (
            F.softmax((q * 0.3) @ k.mT + masked(m), -1, dtype=torch.float32).to(torch.float32) @ v
        ),
        lambda _, q, k, v, m: F.dropout((q @ k.mT * 2).softmax(-1), 0.1, training=False) @ v,
        lambda self, q, k, v, m: self.drop(self.softmax(q @ k.mT / 2)) @ v,
        lambda _, q, k, v, m: ((q @ k.permute(0, 1, 3, 2)) / 2).softmax(-1) @ v,
        lambda self, q, k, v, m: (q @ k.mT / 2 + self.causal).softmax(-1) @ v,
        lambda _, q, k, v, m: (q @ k.mT / 2 + (1.0 - m.float()) * -10000.0).softmax(-1) @ v,
        lambda _, q, k, v, m: (
            (q @ k.mT + m.new_zeros(2, 1, 5, 5, dtype=q.dtype).masked_fill(m, LOWEST)).softmax(-1) @ v
        ),
        lambda _, q, k, v, m: ((q @ k.mT).float().softmax(-1).type_as(q) @ v).sum(-1),
        lambda _, q, k, v, m: ((q @ k.mT).softmax(-1) @ v[..., :2]) + 1,
        lambda _, q, k, v, m: ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(2, 5, -1) + 1,
        lambda _, q, k, v, m: ((q @ k.mT).softmax(-1) @ v).view(2, -1),
        lambda _, q, k, v, m: ((q @ k.mT).softmax(-1) @ v).view(-1).add_(1),
    ],
)
def test_eager_attention_becomes_one_function(function):
    checked(function, drop=nn.Dropout(), softmax=nn.Softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    def function(_, q, k, v, m):
        mask = torch.where(m, torch.zeros((), dtype=dtype), -10000.0)
        probabilities = F.softmax(
            q @ k.mT / 3 + mask, dim=-1, dtype=torch.promote_types(dtype, torch.float32)
        )
        return probabilities.to(dtype) @ v

    checked(function, dtype, keys=7)


def test_three_dimensions_and_other_numbers_of_keys():
    model = Attends(lambda _, q, k, v, m: torch.bmm((torch.bmm(q, k.mT) / 3).softmax(-1), v))
    given = (torch.randn(4, 5, 8), torch.randn(4, 7, 8), torch.randn(4, 7, 6), torch.ones(1))
    check(FUSE, model, *given, marked=1, gm=shaped(model, *given))


def test_what_was_contiguous_still_is_where_it_matters():
    function = lambda _, q, k, v, m: (q @ k.mT).softmax(-1) @ v  # noqa: E731
    gm = checked(function)
    assert gm(*inputs()).is_contiguous()
    assert [node.target for node in FUSE.get_transformed_nodes(gm)] == ["contiguous"]


@pytest.mark.parametrize("rows", ["none", "all"])
def test_rows_without_a_key_are_computed_as_before(rows):
    model = Attends(lambda _, q, k, v, m: (q @ k.mT / 3 + masked(m)).softmax(-1) @ v)
    q, k, v, m = inputs()
    m[:, :, 2 if rows == "none" else slice(None)] = False
    check(FUSE, model, q, k, v, m, marked=1, gm=shaped(model, q, k, v, m))


MASKS = [
    lambda self, q, m: masked(m, -math.inf),
    lambda self, q, m: self.infinite.flip(-1),
    lambda self, q, m: self.infinite.mT,
    lambda self, q, m: self.infinite[:, 1:].contiguous().repeat(1, 2)[:, :5],
    lambda self, q, m: torch.log(m.float()),
    lambda self, q, m: q[:, :1, :, :5],
    lambda self, q, m: masked(m, LOWEST) * 2,
    lambda self, q, m: masked(m, LOWEST) + LOWEST,
    lambda self, q, m: masked(m, LOWEST).mul_(2),
]


@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_may_be_infinite_stay(mask):
    code = why_not(lambda self, q, k, v, m: (q @ k.mT + mask(self, q, m)).softmax(-1) @ v)
    assert code in ("infinite-mask", "written-in-between")


@pytest.mark.parametrize(("lowest", "is_bounded"), [(-10_000.0, False), (LOWEST / 2, False), (LOWEST, True)])
def test_only_a_mask_that_a_kernel_may_take_for_infinite_is_bounded(lowest, is_bounded):
    gm = checked(lambda _, q, k, v, m: (q @ k.mT + masked(m, lowest)).softmax(-1) @ v)
    assert len(gm.graph.find_nodes(op="call_function", target=torch.clamp)) == is_bounded


def test_a_mask_that_overflows_in_half_precision_stays():
    def function(_, q, k, v, m):
        mask = torch.where(m, torch.zeros((), dtype=torch.float16), torch.finfo(torch.float16).min)
        return (q @ k.mT + mask).softmax(-1) @ v

    assert why_not(function, inputs(torch.float16)) == "infinite-mask"


def test_boolean_masks_and_masks_of_other_dtypes_stay():
    add = lambda mask: lambda _, q, k, v, m: (q @ k.mT + mask(m)).softmax(-1) @ v  # noqa: E731
    assert why_not(add(lambda m: m)) == "mixed-dtypes"
    assert why_not(add(lambda m: m.long())) == "mixed-dtypes"
    assert why_not(add(lambda m: masked(m)), inputs(torch.float64)) == "mixed-dtypes"


def test_masks_of_other_shapes_stay():
    function = lambda _, q, k, v, m: ((q @ k.mT) + torch.where(m, 0.0, -1.0)).softmax(-1) @ v  # noqa: E731
    three = [tensor[:1] for tensor in inputs()[:3]]
    for shape, code in {
        (4, 3, 5, 5): "larger-mask",
        (4, 2, 3, 5, 5): "dimensions",
        (5,): "dimensions",
    }.items():
        assert why_not(function, (*three, torch.ones(shape).bool())) == code
    given = (*(tensor[:, :1] for tensor in three), torch.ones(1, 3, 5, 5).bool())
    assert why_not(function, given) == "larger-mask"


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda _, q, k, v, m: (lambda p: (p @ v, p))((q @ k.mT).softmax(-1)), "other-users"),
        (lambda _, q, k, v, m: (lambda s: (s.softmax(-1) @ v).sum() + s.sum())(q @ k.mT), "other-users"),
        (lambda _, q, k, v, m: (lambda p: p @ v + p @ (v * 2))((q @ k.mT).softmax(-1)), "other-users"),
        (lambda _, q, k, v, m: (q @ k.mT).softmax(2) @ v, "softmax-dimension"),
        (lambda _, q, k, v, m: (q @ k.mT).softmax(-2) @ v, "softmax-dimension"),
        (lambda _, q, k, v, m: ((q @ k.mT + masked(m)) / 3).softmax(-1) @ v, "not-scaled-product"),
        (lambda _, q, k, v, m: (q @ k.mT).relu().softmax(-1) @ v, "not-scaled-product"),
        (lambda _, q, k, v, m: (q @ k.mT + masked(m) + masked(m)).softmax(-1) @ v, "no-mask"),
        (lambda _, q, k, v, m: (q @ k.mT + 1.0).softmax(-1) @ v, "no-mask"),
        (lambda _, q, k, v, m: (q @ k.mT / 0).softmax(-1) @ v, "scale"),
        (lambda _, q, k, v, m: (q @ k.mT * -1.0).softmax(-1) @ v, "scale"),
        (lambda _, q, k, v, m: (q @ k.mT).softmax(-1) @ v[:1], "unequal-shapes"),
        (lambda _, q, k, v, m: (q @ k[:, :1].mT).softmax(-1) @ v, "unequal-shapes"),
        (lambda _, q, k, v, m: (q[0, 0] @ k[0, 0].mT).softmax(-1) @ v[0, 0], "dimensions"),
        (lambda _, q, k, v, m: (q @ k.mT).half().float().softmax(-1) @ v, "dtype"),
        (lambda _, q, k, v, m: (q @ k.mT).softmax(-1).double() @ v.double(), "mixed-dtypes"),
    ],
)
def test_what_is_no_such_attention_stays(function, code):
    assert why_not(function) == code


@pytest.mark.parametrize("name", ["q", "k", "scores"])
def test_what_is_written_in_between_stays(name):
    def function(_, q, k, v, m):
        mask = masked(m)
        scores = q @ k.mT
        biased = scores + mask
        {"q": q, "k": k, "scores": scores}[name].mul_(2)
        return biased.softmax(-1) @ v

    # The query is looked at first, and may share memory with the key: both are inputs.
    codes = {"q": "written-in-between", "k": "may-be-written-in-between", "scores": "other-users"}
    assert why_not(function) == codes[name]


def test_a_change_of_grad_mode_in_between_keeps_it():
    graph = fx.Graph()
    q, k, v = (graph.placeholder(name) for name in "qkv")
    scores = graph.call_function(torch.matmul, (q, k))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    probabilities = graph.call_method("softmax", (scores, -1))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output(graph.call_function(torch.matmul, (probabilities, v)))
    gm = fx.GraphModule(nn.Module(), graph)
    q, k, v, _ = inputs()
    ShapeProp(gm).propagate(q, k.mT, v)
    assert why_not(None, gm=gm) == "mode-changes-in-between"


def test_unknown_shapes_stay():
    model = Attends(lambda _, q, k, v, m: (q @ k.mT).softmax(-1) @ v)
    assert why_not(None, gm=traced(model)) == "unknown-shape"


@pytest.mark.parametrize("dtype", [torch.complex64])
def test_other_dtypes_are_left_alone(dtype):
    graph = fx.Graph()
    q, k, v = (graph.placeholder(name) for name in "qkv")
    probabilities = graph.call_method("softmax", (graph.call_function(torch.matmul, (q, k)), -1))
    graph.output(graph.call_function(torch.matmul, (probabilities, v)))
    gm = fx.GraphModule(nn.Module(), graph)
    for node in gm.graph.nodes:
        node.meta["val"] = torch.empty(2, 3, 5, 5, dtype=dtype, device="meta")
    assert why_not(None, gm=gm) == "dtype"


def test_keys_that_are_not_transposed_in_the_graph_are():
    graph = fx.Graph()
    q, k, v = (graph.placeholder(name) for name in "qkv")
    probabilities = graph.call_method("softmax", (graph.call_function(torch.matmul, (q, k)), -1))
    graph.output(graph.call_function(torch.matmul, (probabilities, v)))
    gm = fx.GraphModule(nn.Module(), graph)
    q, k, v, _ = inputs()
    given = (q, k.mT.contiguous(), v)
    ShapeProp(gm).propagate(*given)
    before, expected = snapshot(gm), gm(*given)
    assert_close(FUSE(gm)(*given), expected)
    assert_is(FUSE(gm, reverse=True), before)


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_models_of_transformers(name):
    import transformers as t

    small = {"attn_implementation": "eager", "vocab_size": 50, "bos_token_id": None, "eos_token_id": None}
    layers = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32}
    model = {
        "bert": lambda: t.BertModel(t.BertConfig(**layers, **small)),
        "llama": lambda: t.LlamaModel(t.LlamaConfig(num_key_value_heads=2, **layers, **small)),
        "vit": lambda: t.ViTModel(t.ViTConfig(**layers, attn_implementation="eager")),
        "gpt2": lambda: t.GPT2Model(t.GPT2Config(n_layer=2, n_embd=32, n_head=2, **small)),
    }[name]().eval()
    given = fxlab.example_inputs(model)
    gm = fxlab.symbolic_trace(model, given)
    before = snapshot(gm)
    FUSE(gm)
    assert len(FUSE.get_transformed_nodes(gm)) == 2
    assert fxlab.verdict(fxlab.symbolic_trace(model, given), gm, given).status != "different"
    if name in ("bert", "llama"):  # rows without a key
        given = {**given, "attention_mask": torch.zeros_like(given["attention_mask"])}
        assert_close(gm(**given)["last_hidden_state"], model(**given).last_hidden_state, 1e-5)
    assert_is(FUSE(gm, reverse=True), before)


def test_a_mask_made_of_other_bits_is_not_known_to_be_finite():
    def attend(_, q, k, v, mask):
        bits = torch.full((5, 5), -8388608, dtype=torch.int32)  # those of -inf
        return (q @ k.mT / 8 + bits.view(torch.float32)).softmax(-1) @ v + 1

    assert why_not(attend) == "infinite-mask"


def test_keys_that_are_transposed_back_stand_in_the_module_of_the_attention():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attends(lambda _, q, transposed, v, mask: (q @ transposed).softmax(-1) @ v)

        def forward(self, q, transposed, v, mask):
            return self.attention(q, transposed, v, mask) + 1

    q, k, v, mask = inputs()
    gm = FUSE(fxlab.symbolic_trace(Model(), (q, k.mT.contiguous(), v, mask)))
    keys = next(node for node in gm.graph.nodes if node.name.endswith("_keys"))
    (made,) = FUSE.get_transformed_nodes(gm)
    assert "attention" in keys.meta["nn_module_stack"]
    assert keys.meta["nn_module_stack"] == made.meta["nn_module_stack"]


# Scores that are filled

INFINITE = -math.inf
KEYS = torch.tril(torch.ones(7, 7))
CAUSAL = {
    "buffer": lambda self, q: self.tril[None, None][:, :, : q.size(2), : q.size(2)] == 0,
    "buffer of booleans": lambda self, q: ~self.tril.bool()[..., 7 - q.size(2) :, : q.size(2)],
    "last rows": lambda self, q: (self.tril[7 - q.size(2) : 7, : q.size(2)] < 0.5)[None],
    "made": lambda self, q: torch.tril(torch.ones(q.size(2), q.size(2))) <= 0,
    "made above": lambda self, q: torch.triu(torch.ones(q.size(2), q.size(2)), diagonal=1).bool(),
    "made of truth, inverted": lambda self, q: ~torch.ones(q.size(2), q.size(2), dtype=torch.bool).tril(),
    "made of truth": lambda self, q: torch.ones(q.size(2), q.size(2), dtype=torch.bool).tril().logical_not(),
    "subtracted": lambda self, q: (1 - self.tril[: q.size(2), : q.size(2)]).to(torch.bool),
}
FILLS = {
    "masked_fill": lambda scores, mask, number: scores.masked_fill(mask, number),
    "function": lambda scores, mask, number: torch.masked_fill(scores, mask, number),
    "where": lambda scores, mask, number: torch.where(mask, number, scores),
    "where it stays": lambda scores, mask, number: torch.where(~mask, scores, number),
    "where of a tensor": lambda scores, mask, number: torch.where(
        ~mask, scores, torch.full([], number, dtype=scores.dtype)
    ),
}


class Causal(Apply):
    """Attention with a buffer that is larger than the scores."""

    def __init__(self, function):
        super().__init__(function, tril=KEYS)

    def forward(self, q, k, v, mask):
        return self.function(self, q, k, v, mask)


def filled(function, source="trace", dtype=torch.float32):
    """Return a model whose scores are filled, with its graph and inputs."""
    model, given = Causal(function), inputs(dtype)
    return model, captured(source, model, *given), given


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("causal", "number"), [*((each, INFINITE) for each in CAUSAL), ("last rows", LOWEST), ("made", LOWEST)]
)
def test_a_causal_fill_becomes_a_mask_of_truth_values(causal, number):
    model, gm, given = filled(
        lambda self, q, k, v, m: (q @ k.mT / 3).masked_fill(CAUSAL[causal](self, q), number).softmax(-1) @ v
    )
    check(FUSE, model, *given, marked=1, gm=gm)
    (node,) = FUSE.get_transformed_nodes(gm)
    attention = node if node.target is F.scaled_dot_product_attention else node.args[0]
    assert attention.kwargs["attn_mask"].meta.get("val", torch.ones(1, dtype=torch.bool)).dtype == torch.bool
    longer = (*(torch.cat([each, each], 2)[:, :, :7] for each in given[:3]), given[3])
    assert_close(gm(*longer), model(*longer), 1e-5)


@pytest.mark.often(2)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    ("fill", "source", "number"),
    [
        *((fill, "trace", LOWEST) for fill in FILLS),
        *(("where of a tensor", source, INFINITE) for source in ("export", "decomposed")),
    ],
)
def test_every_spelling_of_a_causal_fill_is_fused(fill, source, number):
    def attend(self, q, k, v, m):
        return FILLS[fill](q @ k.mT, CAUSAL["buffer"](self, q), number).softmax(-1) @ v

    model, gm, given = filled(attend, source=source)
    check(FUSE, model, *given, marked=1, gm=gm)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("fill", "source", "dtype"),
    [
        *((fill, "trace", torch.bfloat16) for fill in FILLS),
        *(("where", "export", dtype) for dtype in (torch.float32, torch.float64)),
    ],
)
def test_the_smallest_number_of_a_dtype_may_exclude_every_key(fill, source, dtype):
    lowest = torch.finfo(dtype).min
    attend = lambda _, q, k, v, m: FILLS[fill](q @ k.mT, ~m, lowest).softmax(-1) @ v  # noqa: E731
    model, gm, given = filled(attend, source=source, dtype=dtype)
    check(FUSE, model, *given, marked=1, gm=gm)
    nothing = (*(each * 10 for each in given[:3]), torch.zeros_like(given[3]))
    assert_close(gm(*nothing), model(*nothing))


@pytest.mark.weekly
def test_a_graph_that_adds_the_smallest_number_refuses_autocast():
    _, gm, given = filled(lambda _, q, k, v, m: (q @ k.mT).masked_fill(m, LOWEST).softmax(-1) @ v)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(AssertionError, match="autocast"):
        FUSE(gm)(*given)


@pytest.mark.parametrize(
    ("fill", "code"),
    [
        (lambda self, s, m: s.masked_fill(m, INFINITE), "infinite-mask"),
        (lambda self, s, m: s.masked_fill(self.tril[:5, 1:6] == 0, INFINITE), "infinite-mask"),
        (lambda self, s, m: s.masked_fill(self.tril[:5, :5] == 1, INFINITE), "infinite-mask"),
        (lambda self, s, m: s.masked_fill(torch.ones(5, 5).triu().bool(), INFINITE), "infinite-mask"),
        (lambda self, s, m: s.masked_fill(torch.ones(5, 5).tril(-1) == 0, INFINITE), "infinite-mask"),
        (lambda self, s, m: s.masked_fill(self.tril[:5, :5] == 0, -1e9), "fill"),
        (lambda self, s, m: s.masked_fill(m, -1e4), "fill"),
        (lambda self, s, m: s.masked_fill(m, LOWEST) + s.new_zeros(5), "no-mask"),
        (lambda self, s, m: (s + s.new_zeros(5)).masked_fill(m, LOWEST), "not-scaled-product"),
        (lambda self, s, m: s.masked_fill(m, LOWEST).masked_fill(m, LOWEST), "not-scaled-product"),
        (lambda self, s, m: s.masked_fill(m, m.float().sum()), "fill"),
        (lambda self, s, m: torch.where(m, s, s.new_ones(5) * 2), "not-scaled-product"),
        (lambda self, s, m: s.masked_fill_(m, LOWEST), "not-scaled-product"),
        (lambda self, s, m: torch.where(m, s, torch.full([], LOWEST).mul_(0)), "not-scaled-product"),
    ],
)
def test_fills_that_are_no_masks_stay(fill, code):
    check_stays(fill, code, "fx")


def check_stays(fill, code, source):
    _, gm, _ = filled(lambda self, q, k, v, m: fill(self, q @ k.mT, m).softmax(-1) @ v, source=source)
    assert refused(FUSE, gm) == code


def test_fills_that_only_a_trace_tells_stay():
    written = lambda self, s, m: s.masked_fill(self.tril.add_(0)[:5, :5] == 0, INFINITE)  # noqa: E731
    check_stays(written, "may-be-written-in-between", "trace")
    rounded = lambda self, s, m: s.masked_fill(m, torch.full([], LOWEST).half().float())  # noqa: E731
    check_stays(rounded, "infinite-mask", "trace")


@pytest.mark.weekly
def test_half_precision_reaches_its_smallest_number():
    lowest = torch.finfo(torch.float16).min
    attend = lambda _, q, k, v, m: (q @ k.mT).masked_fill(m, lowest).softmax(-1) @ v  # noqa: E731
    assert refused(FUSE, filled(attend, dtype=torch.float16)[1]) == "fill"


def test_an_infinite_mask_that_keeps_each_first_key_is_added():
    checked(lambda self, q, k, v, m: (q @ k.mT + self.infinite).softmax(-1) @ v)
    checked(lambda self, q, k, v, m: (q @ k.mT + torch.full((5, 5), INFINITE).triu(1)).softmax(-1) @ v)


def test_the_attention_is_counted_though_a_layout_is_what_others_read():
    x = tuple(torch.randn(3, 4, 4, 4, 8))
    model = Apply(lambda _, qkv: (qkv[0] @ qkv[1].mT).softmax(-1) @ qkv[2])
    session = fxlab.Session(model, (x,))
    session.apply("fuse-attention")
    assert "1 scaled dot product attention and 1 contiguous" in str(session.changes("fuse-attention"))


SCALES = {
    "one over a root": lambda scores, k: scores * (1.0 / k.size(-1) ** 0.5),
    "a negative power": lambda scores, k: k.shape[-1] ** -0.5 * scores,
    "divided by a root": lambda scores, k: scores / k.size(-1) ** 0.5,
    "products": lambda scores, k: scores * (k.size(-1) * 2 / (k.size(-1) * k.size(1))),
}


@pytest.mark.often(2)
@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_that_is_computed_from_sizes_stays_computed(scale):
    model, gm, given = filled(lambda _, q, k, v, m: SCALES[scale](q @ k.mT, k).softmax(-1) @ v)
    check(FUSE, model, *given, marked=1, gm=gm)
    wider = (*(torch.cat([each, each / 2], -1) for each in given[:3]), given[3])
    assert_close(gm(*wider), model(*wider), 1e-5)


@pytest.mark.parametrize(
    "scale",
    [
        lambda scores, k: scores * (k.size(-1) - 9),
        lambda scores, k: scores / -(k.size(-1) ** 0.5),
        lambda scores, k: scores * k.sum(),
    ],
)
def test_a_scale_that_is_not_known_to_be_positive_stays(scale):
    _, gm, _ = filled(lambda _, q, k, v, m: scale(q @ k.mT, k).softmax(-1) @ v)
    assert refused(FUSE, gm) == "not-scaled-product"


def test_a_fill_by_truth_values_of_unknown_dtype_stays():
    gm = shaped(Attends(lambda _, q, k, v, m: (q @ k.mT).masked_fill(m, LOWEST).softmax(-1) @ v), *inputs())
    (mask,) = (node for node in gm.graph.find_nodes(op="placeholder") if node.name == "mask")
    mask.meta.clear()
    assert refused(FUSE, gm) in ("unknown-dtype", "unknown-shape")
