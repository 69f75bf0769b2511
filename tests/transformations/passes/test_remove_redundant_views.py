"""RemoveRedundantViews: which views and casts change nothing, and that nothing else goes."""

import pytest
import torch
from exactness import Apply, check, refused

import fxlab
from fxlab import FuseAttention, RemoveRedundantViews

REMOVE = RemoveRedundantViews()

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def traced(function, x=None):
    x = torch.randn(2, 3, 4) if x is None else x
    return fxlab.symbolic_trace(Apply(lambda m, x: function(x)), (x,))


def exported(function, x=None):
    x = torch.randn(2, 3, 4) if x is None else x
    program = torch.export.export(Apply(lambda m, x: function(x)), (x,))
    return fxlab.from_exported(program.run_decompositions())


@pytest.mark.often(6)
@pytest.mark.parametrize("captured", [traced, exported])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.tanh().view(x.shape).relu(),
        lambda x: x.tanh().reshape(x.size(0), -1, x.size(2)).relu(),
        lambda x: x.tanh().expand(-1, -1, -1).relu(),
        lambda x: x.tanh().transpose(1, 2).transpose(-1, -2).relu(),
        lambda x: x.tanh().permute(1, 2, 0).permute(2, 0, 1).relu(),
        lambda x: x.tanh().permute(0, 1, 2).relu(),
        lambda x: x.tanh().unsqueeze(1).squeeze(1).relu(),
        lambda x: x.tanh().view(x.size(0), 12).view(x.size(0), 3, 4).relu(),
        lambda x: x.tanh().view(-1).view(x.size(0), 12).relu(),
        lambda x: x.tanh()[..., ::1].relu(),
        lambda x: x.tanh()[:].relu(),
        lambda x: x.tanh()[0:, ..., : x.size(2)].relu(),
    ],
)
def test_what_changes_nothing_goes_and_comes_back(function, captured):
    x = torch.randn(2, 3, 4)
    gm = captured(function)
    before = len(gm.graph.nodes)
    check(REMOVE, Apply(lambda m, x: function(x)), x, marked=1, gm=gm, tolerance=0.0)
    assert len(gm.graph.nodes) < before
    assert REMOVE.candidates(gm) == []


@pytest.mark.often(5)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.transpose(1, 2).transpose(0, 1).relu(),
        lambda x: x[:, :2, :2].transpose(1, 2).relu(),  # of one shape before and after
        lambda x: x.view(torch.int32).relu(),
        lambda x: x.reshape(12, 2).view(2, 3, 4).contiguous().relu(),
        lambda x: x[:, :2].relu(),
        lambda x: x.to(torch.float64).to(torch.float32).relu(),
        lambda x: x.bfloat16().float().relu(),
        lambda x: x.detach().relu(),
        lambda x: x.clone().relu(),
    ],
)
def test_what_changes_something_stays(function):
    gm = traced(function)
    assert REMOVE.candidates(gm) == []


def write(x):
    y = x.tanh()
    y.view(y.shape).add_(1)
    return y


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda x: x.view(x.shape), "returned"),
        (write, "written-in-place"),
        (lambda x: x.tanh().float().relu(), "autocast-dtype"),
        (lambda x: (y := x.tanh().view(-1)).view(6, 4).sum() + y.sum(), "other-users"),
    ],
)
def test_what_somebody_could_notice_is_refused(function, code):
    assert refused(REMOVE, traced(function)) == code


def test_a_view_that_is_made_without_gradients_stays():
    gm = traced(lambda x: x.tanh().expand(-1, -1, -1).relu())
    (expand,) = gm.graph.find_nodes(op="call_method", target="expand")
    for place, is_on in ((gm.graph.inserting_before, False), (gm.graph.inserting_after, True)):
        with place(expand):
            gm.graph.call_function(torch._C._set_grad_enabled, (is_on,))
    gm.recompile()
    assert refused(REMOVE, gm) == "mode-changes"


def test_a_cast_to_the_dtype_of_a_cast_goes_also_under_autocast():
    model, x = Apply(lambda m, x: (x @ x.mT).float().to(torch.float32).relu()), torch.randn(2, 3, 4)
    gm = check(REMOVE, model, x, marked=1, gm=fxlab.symbolic_trace(model, (x,)), tolerance=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(gm(x), model(x))


def test_attention_is_fused_before_its_views_go():
    def attention(x):
        return (x @ x.transpose(-1, -2) * 0.5).softmax(-1) @ x

    gm = exported(attention, torch.randn(2, 4, 3, 8))
    x = torch.randn(2, 4, 3, 8)
    both = fxlab.compose(FuseAttention(), REMOVE)
    torch.testing.assert_close(both(gm)(x), attention(x))
    assert len(FuseAttention().get_transformed_nodes(gm)) == 1
