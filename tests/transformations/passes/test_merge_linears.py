"""MergeLinears: what it merges, what it leaves alone, and that it is taken back exactly."""

import operator

import pytest
import torch
from exactness import check, reasons, refused, traced, traced_whole
from torch import fx, nn
from torch.nn import functional as F

import fxlab
from fxlab import MergeLinears


class Attention(nn.Module):
    """Three linears that read one input."""

    def __init__(self, sizes=(4, 4, 4), bias=(True, True, True), features=6, dtype=None):
        super().__init__()
        for name, size, with_bias in zip(("query", "key", "value"), sizes, bias, strict=True):
            self.add_module(name, nn.Linear(features, size, with_bias, dtype=dtype))

    def forward(self, x):
        return self.query(x), self.key(x), self.value(x)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        query, key, value = self.attention(x)
        return self.out(query * key + value)


def merged_linear(gm):
    (node,) = MergeLinears().get_transformed_nodes(gm)
    return gm.get_submodule(node.target)


@pytest.mark.parametrize("model", [Attention(), Nested()], ids=["at the root", "below the root"])
def test_linears_with_one_input_become_one(model):
    gm = check(MergeLinears(), model, torch.randn(2, 6), marked=1)
    merged = merged_linear(gm)
    assert (merged.in_features, merged.out_features) == (6, 12) == tuple(reversed(merged.weight.shape))
    assert sum(node.target is operator.getitem for node in gm.graph.nodes) == 3
    assert not any(name.endswith("query") for name, _ in gm.named_modules())


class ByKeyword(Attention):
    def forward(self, x):
        return self.query(input=x), self.key(x), self.value(input=x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *((Attention(), shape) for shape in [(6,), (0, 6), (2, 0, 6), (2, 3, 6), (2, 3, 4, 6)]),
        *((Attention(dtype=dtype), (2, 6)) for dtype in (torch.float64, torch.bfloat16, torch.float16)),
        (Attention(sizes=(1, 5, 3)), (2, 6)),
        (Attention(bias=(False, False, False)).eval(), (2, 6)),
        (ByKeyword(), (2, 6)),
    ],
)
def test_linears_of_one_kind_become_one_of_this_kind(model, shape):
    like = model.query
    merged = merged_linear(
        check(MergeLinears(), model, torch.randn(shape, dtype=like.weight.dtype), marked=1)
    )
    assert (merged.weight.dtype, merged.training) == (like.weight.dtype, model.training)
    assert (merged.bias is None) == (like.bias is None)


def test_a_graph_with_the_same_module_under_two_targets_is_left_alone():
    linear = nn.Linear(6, 4)
    root = nn.Module()
    root.a, root.b = linear, linear
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_module("a", (x,)), graph.call_module("b", (x,))))
    gm = fx.GraphModule(root, graph)
    check(MergeLinears(), gm, torch.randn(2, 6), marked=0, gm=gm)
    assert reasons(MergeLinears(), gm)["a"] == "shared-module"


def test_an_empty_weight_that_a_get_attr_reads_is_left_alone():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(1, 4), nn.Linear(1, 4)
            self.first.weight = nn.Parameter(torch.empty(4, 0))
            self.second.weight = nn.Parameter(torch.empty(4, 0))

        def forward(self, x):
            return self.first(x), self.second(x), self.first.weight.sum()

    check(MergeLinears(), Reads(), torch.randn(2, 0), marked=0)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda model: setattr(model, "query", Doubled(6, 4)), "unexpected-class"),
        (lambda model: nn.utils.parametrizations.weight_norm(model.query), "parametrized"),
        (lambda model: nn.utils.parametrizations.spectral_norm(model.query), "parametrized"),
        (
            lambda model: nn.utils.parametrize.register_parametrization(model.query, "weight", nn.Tanh()),
            "parametrized",
        ),
        (lambda model: setattr(model.query, "forward", lambda x: x[..., :4] * 3), "forward-replaced"),
        (lambda model: model.query.register_forward_hook(lambda m, args, out: out * 2), "hooked"),
        (lambda model: model.query.register_forward_pre_hook(lambda m, args: (args[0] * 2,)), "hooked"),
        (lambda model: model.query.register_full_backward_hook(lambda m, gi, go: None), "hooked"),
        (lambda model: model.query.register_full_backward_pre_hook(lambda m, go: None), "hooked"),
        (lambda model: model.query.weight.register_hook(lambda grad: grad * 2), "hooked"),
        (lambda model: model.query.weight.register_post_accumulate_grad_hook(lambda p: None), "hooked"),
    ],
)
def test_linears_that_compute_more_are_left_alone(change, code):
    model = Attention().eval()
    change(model)
    gm = check(MergeLinears(), model, torch.randn(2, 6), marked=1, gm=traced_whole(model, nn.Linear))
    assert gm.query is model.query
    assert reasons(MergeLinears(), traced_whole(model, nn.Linear))["query"] == code


def test_hooks_on_all_modules_are_respected():
    gm, of_all = traced(Attention()), nn.modules.module
    for register in (
        *(of_all.register_module_forward_hook, of_all.register_module_forward_pre_hook),
        *(of_all.register_module_full_backward_hook, of_all.register_module_full_backward_pre_hook),
    ):
        handle = register(lambda *_: None)
        try:
            assert refused(MergeLinears(), gm) == "global-hooks"
        finally:
            handle.remove()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: F.relu(x, inplace=True),
        lambda x: torch.relu_(x),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.view(-1).add_(1),
        lambda x: x[0].zero_(),
        lambda x: x.transpose(0, 1).t().chunk(2)[0].fill_(3),
        lambda x: F.dropout(x, 0.5, False).add_(1),
        lambda x: x.data.zero_(),
        lambda x: x.detach().copy_(x * 2),
    ],
)
def test_an_input_written_between_two_linears_keeps_them_apart(write):
    class Writes(Attention):
        def forward(self, x):
            x = x * 1.5
            query = self.query(x)
            write(x)
            return query, self.key(x), self.value(x)

    gm = check(MergeLinears(), Writes().requires_grad_(False), torch.randn(2, 6), marked=1)
    assert merged_linear(gm).out_features == 8


def test_what_was_made_before_a_write_to_something_else_is_merged():
    class WritesElsewhere(Attention):
        def forward(self, x):
            query = self.query(x)
            query.add_(1)
            return query, self.key(x), self.value(x)

    check(MergeLinears(), WritesElsewhere().requires_grad_(False), torch.randn(2, 6), marked=1)


@pytest.mark.parametrize(
    "use",
    [
        lambda q: q.view(-1),
        lambda q: q.view(q.size(0), -1),
        lambda q: q.view(2, 3, 2, 2).transpose(1, 2),
        lambda q: q.view(q.size(0), q.size(1), 2, 2).permute(0, 2, 1, 3).reshape(2, -1),
        lambda q: q.view(torch.int16).view(torch.float32),
        lambda q: q.transpose(1, 2).contiguous().view(-1),
        lambda q: torch.as_strided(q, (2, 2), (1, 1)),
        lambda q: q.stride(),
        lambda q: q.is_contiguous(),
        lambda q: q[0].view(-1),
        lambda q: (q.reshape(-1).add_(1), q),
        lambda q: (q.flatten().zero_(), q),
        lambda q: (q.contiguous().mul_(2), q),
        lambda q: q.storage_offset(),
    ],
)
def test_results_may_be_used_in_any_way_that_depends_on_their_memory(use):
    class Views(Attention):
        def forward(self, x):
            return use(self.query(x)), use(self.key(x)), self.value(x)

    check(MergeLinears(), Views().requires_grad_(False), torch.randn(2, 3, 6), marked=1)


@pytest.mark.parametrize(
    "trace", [fx.symbolic_trace, lambda m: fxlab.symbolic_trace(m, (torch.ones(2, 3, 6),))]
)
def test_heads_are_viewed_without_a_copy(trace):
    class Heads(Attention):
        def forward(self, x):
            parts = super().forward(x)
            query, key, value = (part.view(x.size(0), -1, 2, 2).transpose(1, 2) for part in parts)
            return (query @ key.transpose(-1, -2)).softmax(-1) @ value

    model = Heads()
    gm = check(MergeLinears(), model, torch.randn(4, 5, 6), marked=1, gm=trace(model))
    assert not any(node.target == "contiguous" for node in gm.graph.nodes)


class Five(nn.Module):
    """Five linears of one input, and whatever function of them is given."""

    def __init__(self, function=lambda self, x: [self.get_submodule(name)(x) for name in "abcde"]):
        super().__init__()
        self.function = function
        for name in "abcde":
            self.add_module(name, nn.Linear(4, 4))

    def forward(self, x):
        return self.function(self, x)


def five(change=lambda model: None, **given):
    model = Five(**given)
    change(model)
    return model


def groups(gm):
    """Return which linears explain puts together."""
    frame = MergeLinears().explain(gm)
    return {reason for reason, matched in zip(frame.reason, frame.matched, strict=True) if matched}


def test_a_linear_that_is_left_over_names_the_nearest_and_in_what_it_differs():
    reasons = MergeLinears().explain(traced(five(lambda model: model.b.requires_grad_(False)))).reason
    assert reasons["b"].endswith("same input: a differs in requires grad, bias")
    hooked = five(lambda model: [getattr(model, n).register_forward_hook(print) for n in "acde"])
    assert MergeLinears().explain(traced(hooked)).reason["b"].endswith("none of the others can be merged")


def test_a_part_of_a_module_that_is_called_as_a_whole_is_left_alone():
    model = Nested()
    graph = traced_whole(model, Attention).graph
    whole = next(node for node in graph.nodes if node.target == "attention")
    with graph.inserting_after(whole):
        extra = [graph.call_module(f"attention.{name}", (whole.args[0],)) for name in ("query", "key")]
    graph.output_node().args = ((graph.output_node().args[0], *extra),)
    gm = fx.GraphModule(model, graph)
    MergeLinears()(gm)
    assert MergeLinears().get_transformed_nodes(gm) == []
    assert model.attention.query is gm.attention.query


def test_weights_on_the_meta_device_are_merged():
    with torch.device("meta"):
        model = Attention()
    gm = check(MergeLinears(), model, torch.empty(2, 6, device="meta"), marked=1)
    assert merged_linear(gm).weight.is_meta


def test_what_is_known_of_the_results_is_kept():
    gm = traced(Nested())
    fx.passes.shape_prop.ShapeProp(gm).propagate(torch.randn(2, 6))
    known = {node.name: node.meta["tensor_meta"] for node in gm.graph.nodes}
    MergeLinears()(gm)
    for name in ("attention_query", "attention_key"):
        assert next(n for n in gm.graph.nodes if n.name == name).meta["tensor_meta"] == known[name]


@pytest.mark.parametrize(
    ("count", "name"), [(4, "at_0_at_1_at_2_at_3_merged"), (5, "at_0_and_4_more_merged")]
)
def test_the_name_of_many_linears_stays_short(count, name):
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(count):
                self.add_module(f"at_{i}", nn.Linear(3, 2))

        def forward(self, x):
            return [getattr(self, f"at_{i}")(x) for i in range(count)]

    (node,) = MergeLinears().get_transformed_nodes(MergeLinears()(traced(Many())))
    assert node.target == name


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
def test_a_view_of_the_same_shape_reads_the_same_input():
    class Viewed(Attention):
        def forward(self, x):
            return self.query(x), self.key(x.view(2, 6)), self.value(x)

    model, x = Viewed().eval(), torch.randn(2, 6)
    gm = torch.export.export(model, (x,)).run_decompositions().module()
    check(MergeLinears(), model, x, marked=1, gm=gm)
    assert len(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)) == 1
