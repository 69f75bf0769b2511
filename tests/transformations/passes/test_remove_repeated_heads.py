"""RemoveRepeatedHeads: keys and values that are repeated for queries are read as they are, bit for bit."""

import pytest
import torch
from exactness import Apply, captured, check, refused, shapes_known
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import FuseAttention, RemoveRepeatedHeads
from fxlab.transformations.passes.remove_repeated_heads import repeated

REMOVE = RemoveRepeatedHeads()

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def repeat_kv(x, count=2):
    batch, heads, length, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, count, length, size)
    return x.reshape(batch, heads * count, length, size)


def interleaved(x):
    return x.repeat_interleave(2, dim=1)


def unsqueezed(x):
    return x.unsqueeze(2).expand(-1, -1, 2, -1, -1).contiguous().view(x.size(0), 4, -1, 8)


def flattened(x):
    return x.unsqueeze(-3).expand(-1, -1, 2, -1, -1).flatten(1, 2)


class Attention(nn.Module):
    """Attention to two heads, which four queries read."""

    def __init__(self, repeat=repeat_kv, attend=F.scaled_dot_product_attention, mask=None):
        super().__init__()
        self.repeat, self.attend, self.mask = repeat, attend, mask
        self.query, self.key, self.value = nn.Linear(8, 32), nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, x):
        heads = (
            layer(x).view(x.size(0), -1, layer.out_features // 8, 8).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key, value = heads
        return self.attend(query, self.repeat(key), self.repeat(value), self.mask) * 1


def eager(query, key, value, mask):
    scores = query @ key.transpose(-1, -2) * 8**-0.5
    return (scores if mask is None else scores + mask).softmax(-1) @ value


@pytest.mark.often(3)
@pytest.mark.parametrize(
    ("source", "repeat"),
    [
        *(("trace", repeat) for repeat in (repeat_kv, interleaved, unsqueezed, flattened)),
        ("fx", interleaved),
        *(("export", repeat) for repeat in (repeat_kv, unsqueezed)),
    ],
)
def test_repeated_heads_are_read_as_they_are_and_repeated_again(source, repeat):
    model, x = Attention(repeat).eval(), torch.randn(2, 3, 8)
    gm = check(REMOVE, model, x, marked=1, gm=captured(source, model, x), tolerance=0.0)
    assert "repeat_interleave" not in gm.code
    assert "expand" not in gm.code


def test_keys_and_values_of_a_cache_may_be_of_any_length():
    class Step(nn.Module):
        def forward(self, query, key, value):
            return F.scaled_dot_product_attention(query, repeat_kv(key), repeat_kv(value))

    inputs = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    gm = check(REMOVE, Step(), *inputs, marked=1, gm=fxlab.symbolic_trace(Step(), inputs), tolerance=0.0)
    longer = torch.randn(3, 4, 5, 8), torch.randn(3, 2, 9, 8), torch.randn(3, 2, 9, 8)
    assert torch.equal(gm(*longer), Step()(*longer))


@pytest.mark.often(1)
@pytest.mark.parametrize("mask", [torch.randn(3, 3), torch.ones(3, 3).tril().bool()])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_masks_and_dtypes_make_no_difference(mask, dtype):
    mask = mask if mask.dtype == torch.bool else mask.to(dtype)
    model, x = Attention(mask=mask).to(dtype).eval(), torch.randn(2, 3, 8, dtype=dtype)
    check(REMOVE, model, x, marked=1, gm=fxlab.symbolic_trace(model, (x,)), tolerance=0.0)


@pytest.mark.often(1)
@pytest.mark.parametrize("source", ["trace", "export", "decomposed"])
def test_attention_that_is_written_out_is_fused_first(source):
    model, x = Attention(attend=eager, mask=torch.randn(3, 3)).eval(), torch.randn(2, 3, 8)
    if source == "trace":
        gm = fxlab.symbolic_trace(model, (x,))
    else:
        program = torch.export.export(model, (x,))
        gm = fxlab.from_exported(program.run_decompositions() if source == "decomposed" else program)
    assert REMOVE.candidates(gm) == []
    check(fxlab.compose(FuseAttention(), REMOVE), model, x, marked=1, gm=gm)


def reversed_heads(x):
    return x.unsqueeze(1).expand(-1, 2, -1, -1, -1).reshape(x.size(0), 4, -1, 8)  # 0 1 0 1, not 0 0 1 1


def as_other_bits(x):
    """Heads that are repeated, and read as another dtype of the same size."""
    batch, heads, length, size = x.shape
    x = x[:, :, None].expand(batch, heads, 2, length, size).view(torch.bfloat16)
    return x.reshape(batch, 2 * heads, length, size).float()


def test_heads_that_are_read_as_another_dtype_are_none():
    gm = shapes_known(Apply(lambda _, x: as_other_bits(x)), torch.randn(1, 2, 3, 8).half())
    assert fxlab.rewriting.find_matches(gm, repeated) == []


def detached(x):
    return x.unsqueeze(2).expand(-1, -1, 2, -1, -1).detach().reshape(x.size(0), 4, -1, 8)


@pytest.mark.parametrize("repeat", [reversed_heads, detached, lambda x: x.repeat(1, 2, 1, 1)])
def test_other_repetitions_are_none(repeat):
    assert REMOVE.candidates(shapes_known(Attention(repeat), torch.randn(2, 3, 8))) == []


def read_twice(q, k, v, *rest):
    return F.scaled_dot_product_attention(q, k, v) + k


@pytest.mark.parametrize(
    ("attend", "code"),
    [
        (lambda q, k, v, *rest: F.scaled_dot_product_attention(q, k, v.abs()), "not-both-repeated"),
        (lambda q, k, v, *rest: F.scaled_dot_product_attention(q[:, :1], k, v), "not-both-repeated"),
        (read_twice, "other-users"),
    ],
)
def test_what_is_no_repetition_for_each_query_is_refused(attend, code):
    model = Attention(interleaved, attend)
    assert refused(REMOVE, shapes_known(model, torch.randn(2, 3, 8))) == code


def test_a_source_that_is_written_in_between_is_refused():
    def attention(q, k, v):
        k, v = k + 0, v + 0
        keys, values = interleaved(k), interleaved(v)
        k.add_(1)
        return F.scaled_dot_product_attention(q, keys, values)

    inputs = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    assert refused(REMOVE, shapes_known(attention, *inputs)) == "written-in-between"
