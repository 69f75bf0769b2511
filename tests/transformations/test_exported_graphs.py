"""Passes on graphs of ``torch.export``, also decomposed: the same places as in a trace, the same refusals."""

import copy

import pytest
import torch
from exactness import COPIES, captured, check, check_copies, reasons
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from fxlab import (
    FuseAttention,
    FuseBatchNorm1dInConv1d,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBatchNormInConvTranspose,
    FuseBiasInLinear,
    MergeLinears,
    RemoveIdentities,
    compose,
)

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

EXPORTED = ("export", "decomposed")
SOURCES = ("trace", *EXPORTED)


class Heads(nn.Module):
    """Three linears of one input, of which one has no bias."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.query, self.key = nn.Linear(width, 6), nn.Linear(width, 6)
        self.value, self.last = nn.Linear(width, 6, bias=False), nn.Linear(6, 6)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return self.last(scores.relu() @ self.value(x))


class Convs(nn.Module):
    """Convolutions of all kinds, with batch norms behind them."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 4, 2, stride=2, groups=2)
        self.up, self.up_norm = nn.ConvTranspose2d(4, 6, 3, output_padding=1, stride=2), nn.BatchNorm2d(6)
        for norm in (self.norm, self.up_norm):
            for tensor in (norm.weight, norm.bias, norm.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu()
        return self.up_norm(self.up(self.grouped(y)))


class Products(nn.Module):
    """Linear layers whose weights are not transposed, as those of GPT-2 are, between batch norms."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.BatchNorm1d(4), nn.BatchNorm1d(6)
        for name, bias in (("query", True), ("key", True), ("value", False)):
            part = nn.Module()
            part.weight = nn.Parameter(torch.randn(4, 6))
            part.bias = nn.Parameter(torch.randn(6)) if bias else None
            self.add_module(name, part)

    def forward(self, x):
        y = torch.addmm(self.query.bias, x, self.query.weight)
        y = y * torch.addmm(self.key.bias, x, self.key.weight)
        return self.last(y + torch.mm(self.first(x), self.value.weight))


def linear_and_norm(*, norm_first: bool) -> nn.Module:
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)]
    nn.init.uniform_(layers[1].running_var, 0.5, 2)
    return nn.Sequential(*(layers[::-1] if norm_first else layers))


MERGED = {"query_key_merged.weight": (12, 4), "query_key_merged.bias": (12,), "value.weight": (6, 4)}
FUSED = {"query.weight": (6, 5), "key.weight": (6, 5), "value.weight": (6, 4), "last.weight": (6, 7)}


@pytest.mark.often(6)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("make", "shape", "pass_", "marked", "shapes", "count"),
    [
        (Heads, (3, 4), MergeLinears(), 1, MERGED, 5),
        (Heads, (2, 3, 4), MergeLinears(), 1, MERGED, 5),
        (Heads, (3, 4), FuseBiasInLinear(), 3, FUSED, 4),
        (Heads, (2, 3, 4), FuseBiasInLinear(), 3, FUSED, 4),
        (Products, (3, 4), MergeLinears(), 1, {"query_key_merged.weight": (4, 12)}, 7),
        (Products, (3, 4), FuseBiasInLinear(), 2, {"query.weight": (5, 6), "key.weight": (5, 6)}, 7),
        (Products, (3, 4), FuseBatchNorm1dInLinear(), 1, {"value.weight": (4, 6), "value.bias": (6,)}, 8),
        (Convs, (2, 3, 8, 8), FuseBatchNorm2dInConv2d(), 1, {"conv.bias": (8,)}, 8),
        (Convs, (2, 3, 8, 8), FuseBatchNormInConvTranspose(), 1, {"up.bias": (6,)}, 7),
        (lambda: linear_and_norm(norm_first=False), (3, 4), FuseBatchNorm1dInLinear(), 1, {}, 2),
        (lambda: linear_and_norm(norm_first=True), (3, 4), FuseBatchNorm1dInLinear(), 1, {}, 2),
    ],
)
def test_layers_are_rewritten_and_come_back(source, make, shape, pass_, marked, shapes, count):
    model, x = make().eval(), torch.randn(shape)
    gm = check(pass_, model, x, marked=marked, gm=captured(source, model, x), tolerance=1e-4)
    found = {name: tuple(parameter.shape) for name, parameter in gm.named_parameters()}
    assert found.items() >= shapes.items()
    assert len(found) == count


@pytest.mark.often(1)
@pytest.mark.parametrize("source", SOURCES)
def test_passes_together_leave_no_batch_norm_and_come_back_in_one(source):
    model, x = Convs().eval(), torch.randn(2, 3, 8, 8)
    gm = captured(source, model, x)
    all_ = compose(FuseBatchNorm2dInConv2d(), FuseBatchNormInConvTranspose())
    gm = check(all_, model, x, marked=2, gm=gm, tolerance=1e-4)
    assert not [name for name, _ in gm.named_buffers()]


@pytest.mark.often(1)
@pytest.mark.parametrize("source", EXPORTED)
def test_sizes_stay_open(source):
    model, x = Heads().eval(), torch.randn(2, 3, 4)
    gm = captured(source, model, x, sizes=({0: Dim("batch", max=64), 1: Dim("length", max=64)},))
    for pass_ in (MergeLinears(), FuseBiasInLinear()):
        gm = pass_(gm)
        y = torch.randn(5, 7, 4)
        torch.testing.assert_close(gm(y), model(y))


@pytest.mark.parametrize(
    ("kind", "source"), [*((kind, "export") for kind in COPIES), ("deepcopy", "decomposed")]
)
def test_copies_can_be_reversed(source, kind):
    model, x = Convs().eval(), torch.randn(2, 3, 8, 8)
    gm = captured(source, model, x)
    pass_ = FuseBatchNorm2dInConv2d()
    marked = [node.name for node in pass_.get_transformed_nodes(pass_(copy.deepcopy(gm)))]
    check_copies(pass_, gm, COPIES[kind], marked)


# What the form of a module refuses, the others refuse too


class Tied(Heads):
    def __init__(self):
        super().__init__()
        self.key.weight = self.query.weight


class TiedMemory(Heads):
    def __init__(self):
        super().__init__()
        self.key.weight = nn.Parameter(self.query.weight.detach())


class Twice(Heads):
    def forward(self, x):
        return self.query(x) + self.query(x + 1) + self.key(x)


class ReadElsewhere(Heads):
    def forward(self, x):
        return super().forward(x) * self.query.weight.sum()


class FrozenInPart(Heads):
    def __init__(self):
        super().__init__()
        self.query.weight.requires_grad_(False)


class Mixed(Heads):
    def forward(self, x):
        x = x + 0
        y = self.query(x)
        x.add_(1)
        return y + self.key(x)


@pytest.mark.often(3)
@pytest.mark.parametrize("source", EXPORTED)
@pytest.mark.parametrize("cls", [Tied, TiedMemory, Twice, ReadElsewhere, FrozenInPart])
@pytest.mark.parametrize("pass_", [MergeLinears(), FuseBiasInLinear()])
def test_what_is_refused_of_modules_is_refused_of_operators(cls, pass_, source):
    model, x = cls().eval(), torch.randn(2, 3, 4)
    gms = {each: captured(each, model, x) for each in ("trace", source)}
    counts = {each: int(pass_.explain(gm).matched.sum()) for each, gm in gms.items()}
    assert counts["trace"] == counts[source]
    gm = gms[source]
    torch.testing.assert_close(pass_(gm)(x), model(x))


class Crossed(Heads):
    """Reads the tensors of two modules in one call."""

    def forward(self, x):
        return F.linear(x, self.query.weight, self.key.bias)


class More(nn.Module):
    """Has a module with another tensor than those of a linear layer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.inner.scale = nn.Parameter(torch.randn(6))

    def forward(self, x):
        return F.linear(x, self.inner.weight, self.inner.bias) * self.inner.scale


class Wrapper(torch.Tensor):
    """A tensor of another class."""


def hook_weight(gm):
    gm.get_parameter("query.weight").register_hook(lambda gradient: gradient)


def wrap_weight(gm):
    gm.query.weight = nn.Parameter(gm.query.weight.detach().as_subclass(Wrapper))


def unbatched():
    """Return layers of which a convolution takes a matrix for one sample, and an operator for a batch."""
    layers = nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3)
    nn.init.uniform_(layers[1].running_var, 0.5, 2)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("source", "make", "shape", "change", "pass_", "code"),
    [
        ("export", Heads, (2, 3, 4), hook_weight, FuseBiasInLinear(), "hooked"),
        ("decomposed", Heads, (2, 3, 4), hook_weight, FuseBiasInLinear(), "hooked"),
        ("export", Heads, (2, 3, 4), wrap_weight, FuseBiasInLinear(), "unusual-parameter"),
        ("export", Crossed, (2, 3, 4), None, FuseBiasInLinear(), "unexpected-holder"),
        ("export", More, (2, 3, 4), None, FuseBiasInLinear(), "holds-more"),
        ("export", unbatched, (3, 3), None, FuseBatchNorm1dInConv1d(), "dimensions"),
    ],
)
def test_what_stays_says_why(source, make, shape, change, pass_, code):
    model = make().eval()
    gm = captured(source, model, torch.randn(shape))
    if change is not None:
        change(gm)
    assert {*reasons(pass_, gm).values()} == {code}


def test_a_batch_norm_in_training_stays():
    gm = captured("export", Convs().train(), torch.randn(2, 3, 8, 8))
    explained = FuseBatchNorm2dInConv2d().explain(gm)
    assert len(explained)
    assert not explained.matched.any()


def test_tensors_of_the_root_stay():
    model, x = nn.Linear(4, 6).eval(), torch.randn(3, 4)
    graph = captured("export", model, x)
    tensors = dict(graph.named_parameters())
    assert len(tensors) == 2
    fuse = FuseBiasInLinear()
    assert len(fuse.candidates(graph)) == 1
    assert fuse(fuse(graph), reverse=True) is graph
    assert all(graph.get_parameter(name) is tensor for name, tensor in tensors.items())


class WrittenOut(nn.Module):
    """Attention as models write it, in single precision, with a mask and an inactive dropout."""

    def forward(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2) * 0.25 + torch.where(mask, 0.0, -1e4)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return F.dropout(weights, 0.1, training=False) @ v


def attention_inputs():
    return *torch.randn(3, 2, 4, 5, 16), torch.rand(2, 1, 5, 5) > 0.3


@pytest.mark.often(1)
@pytest.mark.parametrize("source", SOURCES)
def test_attention_is_fused_and_comes_apart_again(source):
    model, inputs = WrittenOut().eval(), attention_inputs()
    check(FuseAttention(), model, *inputs, marked=1, gm=captured(source, model, *inputs))


@pytest.mark.weekly
def test_attention_of_any_batch_is_fused():
    model, inputs = WrittenOut().eval(), attention_inputs()
    sizes = ({0: Dim("batch", max=64)},) * 4
    for source in EXPORTED:
        gm = FuseAttention()(captured(source, model, *inputs, sizes=sizes))
        assert len(FuseAttention().get_transformed_nodes(gm)) == 1
        more = [torch.cat([value, value]) for value in inputs]
        torch.testing.assert_close(gm(*more), model(*more))


def test_a_dtype_that_was_checked_is_still_checked_of_fused_attention():
    model, inputs = WrittenOut().eval(), attention_inputs()
    gm = captured("export", model, *inputs)
    checks = gm.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default)
    FuseAttention()(gm)
    left = gm.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default)
    assert len(left) == len(checks) > 0
    with pytest.raises(RuntimeError, match="dtype"):
        gm(*(value.double() if value.is_floating_point() else value for value in inputs))


def test_a_decomposed_product_in_another_view_is_no_attention():
    model, inputs = WrittenOut().eval(), attention_inputs()
    gm = captured("decomposed", model, *inputs)
    last = gm.graph.output_node().args[0]
    last.args = (last.args[0], [2, 4, 16, 5])
    last.meta["val"] = last.meta["val"].transpose(-1, -2)
    assert not FuseAttention().explain(gm).matched.any()


@pytest.mark.often(1)
@pytest.mark.parametrize("source", SOURCES)
def test_keys_that_several_heads_share_are_fused(source):
    class Grouped(WrittenOut):
        def forward(self, q, k, v, mask):
            k, v = (x[:, :2, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for x in (k, v))
            return super().forward(q, k, v, mask)

    model, inputs = Grouped().eval(), attention_inputs()
    check(FuseAttention(), model, *inputs, marked=1, gm=captured(source, model, *inputs))


@pytest.mark.weekly
@pytest.mark.parametrize(("source", "marked"), [("trace", 0), ("export", 0), ("decomposed", 1)])
def test_keys_that_are_broadcast_are_fused_where_the_graph_expands_them_itself(source, marked):
    class Broadcast(WrittenOut):
        def forward(self, q, k, v, mask):
            return super().forward(q, k[:, :1], v[:, :1], mask)

    model, inputs = Broadcast().eval(), attention_inputs()
    check(FuseAttention(), model, *inputs, marked=marked, gm=captured(source, model, *inputs))


class Dropped(nn.Module):
    """Dropouts of a new tensor, of an input, of a part of a tensor, of what is written, and of a result."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout()

    def forward(self, x, y):
        a = self.drop(self.linear(x)).relu()
        b = self.drop(x) + self.drop((y * 2)[:, :2]).sum()
        return a * b, self.drop(self.linear(y))


def test_copies_that_were_dropouts_go_bit_for_bit():
    model, inputs = Dropped().eval(), (torch.randn(2, 4), torch.randn(2, 4))
    gm = captured("decomposed", model, *inputs)
    assert set(reasons(RemoveIdentities(), gm).values()) == {"other-layout", "returned"}
    check(RemoveIdentities(), model, *inputs, marked=1, gm=gm, tolerance=0.0)
    clones = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    assert [str(node.args[0]) for node in clones] == ["x", "slice_1", "addmm_1"]


def test_a_copy_stays_where_it_or_its_input_is_written():
    model, inputs = Dropped().eval(), (torch.randn(2, 4), torch.randn(2, 4))
    for written in ("clone", "addmm"):
        gm = captured("decomposed", model, *inputs)
        clone = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)[0]
        value = {"clone": clone, "addmm": clone.args[0]}[written]
        with gm.graph.inserting_after(clone):
            gm.graph.call_function(torch.ops.aten.add_.Tensor, (value, 1))
        gm.recompile()
        assert reasons(RemoveIdentities(), gm)[clone.name] == "written-in-place"
