"""What modules may do while they are recorded."""

import collections
import dataclasses
import warnings

import pytest
import torch
from agreement import assert_agree, assert_right_or_refused, targets
from torch import nn
from torch.nn import functional as F

from fxlab import TraceError, TraceWarning, symbolic_trace


class Calls(nn.Module):
    """A module around a function."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class OfTensors(nn.Module):
    """A module whose forward is a method that takes ``x``."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def agree(function, *sizes, other=(5, 4)):
    """Assert that a function of one tensor is traced right, for another size as well."""
    module = OfTensors(function)
    traced = symbolic_trace(module, (torch.randn(*sizes or (3, 4)),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, module, (torch.randn(*sizes or (3, 4)),))
    assert_agree(traced, module, (torch.randn(*other),))
    return traced


# Writes in place.


def write_into_a_view(x):
    y = x * 1
    y[0].mul_(3)
    y.t()[1:].zero_()
    return y, y.sum()


def write_through_an_alias_of_an_alias(x):
    y = x * 1
    z = y.view(-1)
    z[::2] += 1
    return y + z.view_as(y)


def set_items(x):
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1]
    y[1] = 7.0
    y[y > 5] = -1
    y[..., -1] = x.sum()
    return y


def write_out(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y


def write_and_read_before_and_after(x):
    y = x.clone()
    before = y + 0
    y.add_(1)
    return before, y, before + y


def write_into_the_input(x):
    x.add_(1)
    return x * 2


def fill(x):
    y = x.new_empty(x.shape)
    y.copy_(x)
    y.masked_fill_(x > 0, 0.5)
    y.index_fill_(0, torch.tensor([0]), 2)
    return y.clamp_(max=1)


def set_data(x):
    y = x.clone()
    y.data = y.data * 2
    return y


@pytest.mark.parametrize(
    "function",
    [
        write_into_a_view,
        write_through_an_alias_of_an_alias,
        set_items,
        write_out,
        write_and_read_before_and_after,
        write_into_the_input,
        fill,
        set_data,
    ],
)
def test_writes_in_place_come_in_order(function):
    agree(function)


def test_inputs_of_the_caller_are_not_written_to():
    for function in (write_into_the_input, lambda x: x.add_(1) if bool(x.sum() > -9) else x):
        x = torch.ones(3, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            symbolic_trace(OfTensors(function), (x,), check=False)
        assert torch.equal(x, torch.ones(3, 4))


# What goes in and out.


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor
    label: str = "pair"


Named = collections.namedtuple("Named", ["left", "right"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: (x, x),
        lambda x: x.contiguous(),
        lambda x: [x + 1, {"a": (x, None), "b": 3}],
        lambda x: Pair(x + 1, x - 1),
        lambda x: Named(x + 1, [x]),
        lambda x: collections.OrderedDict(a=x * 2),
        lambda x: x.shape,
        lambda x: (x.shape[0] * 2 + 1, x.numel(), x / x.shape[0]),
        lambda x: x.max(dim=0),
        lambda x: torch.topk(x, 2).values,
        lambda x: x.split([1, 3], dim=1)[1],
        lambda x: x.chunk(2, dim=1),
        lambda x: torch.ones(3),
        lambda x: None,
        lambda x: (),
    ],
)
def test_outputs_of_every_kind(function):
    agree(function)


def test_the_same_object_comes_out_once():
    def function(x):
        pair = Pair(x, x + 1)
        return pair, pair

    first, second = agree(function)(torch.ones(1, 4))
    assert first is second


def test_inputs_in_containers():
    class Module(nn.Module):
        def forward(self, batch, *more, scale=2.0, **named):
            (a, b), c = batch["pair"], batch["one"]
            return a + b * c + sum(more) * scale + named["extra"]

    module = Module()
    batch = {"pair": (torch.randn(2, 3), torch.randn(2, 3)), "one": torch.randn(2, 3)}
    inputs = {"batch": batch, "scale": 3.0, "extra": torch.randn(2, 3)}
    traced = symbolic_trace(module, inputs)
    assert_agree(traced, module, inputs)
    larger = {"pair": (torch.randn(5, 3), torch.randn(5, 3)), "one": torch.randn(5, 3)}
    assert_agree(traced, module, {"batch": larger, "scale": 3.0, "extra": torch.randn(5, 3)})
    with pytest.raises(AssertionError, match=r"scale = 3\.0"):
        traced(**(inputs | {"scale": 1.0}))


def test_one_tensor_given_twice_is_two_inputs():
    model = Calls(lambda x, y, more: x * 2 + y * 3 + more["z"] * 5 + more["list"][0] * 7)
    one = torch.randn(4, 3, requires_grad=True)
    traced = symbolic_trace(model, (one, one, {"z": one, "list": [one]}), check=False)
    others = [torch.randn(5, 3) for _ in range(4)]
    assert_agree(traced, model, (*others[:2], {"z": others[2], "list": [others[3]]}))


def test_a_parameter_of_the_model_given_as_an_input_is_an_input():
    model = nn.Linear(3, 3, bias=False)
    traced = symbolic_trace(model, (model.weight,), check=False)
    assert_agree(traced, model, (torch.randn(4, 3),))


def test_awkward_names():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("0", nn.Linear(4, 4))
            self.add_module("forward_", nn.Linear(4, 4))
            self.add_module("print", nn.ModuleList([nn.Linear(4, 4)]))
            self.register_parameter("input", nn.Parameter(torch.randn(4)))

        def forward(self, input, self_, torch_=None, len=None):
            x = getattr(self, "0")(input) + self.forward_(self_)
            return self.print[0](x) * self.input + torch_ - len

    inputs = {name: torch.randn(2, 4) for name in ("input", "self_", "torch_", "len")}
    module = Module()
    traced = symbolic_trace(module, inputs, check=False)
    assert_agree(traced, module, inputs)
    assert_agree(traced, module, tuple(inputs.values()))
    assert traced.state_dict().keys() == module.state_dict().keys()


# What modules hold.


class Holds(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.full((4,), 2.0)  # neither parameter nor buffer
        self.register_buffer("offset", torch.ones(4), persistent=False)
        self.register_buffer("count", torch.zeros(()))
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.again = self.linear
        self.cache = None
        self.calls = 0
        self.seen = []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x)
        if self.cache is None:
            self.cache = torch.arange(4.0)
        x = self.again(self.tied(self.linear(x * self.scale + self.offset + self.cache)))
        return x @ self.linear.weight.t() + torch.tensor([1.0, 2.0, 3.0, 4.0])


def snapshot(module):
    attributes = {}
    for path, m in module.named_modules():
        for name, value in vars(m).items():
            kept = value.copy() if isinstance(value, dict | list) else value
            attributes[path, name] = (id(value), kept, getattr(value, "_version", None))
    return attributes, {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_untouched(module, before):
    attributes, state = before
    now, state_now = snapshot(module)
    assert now.keys() == attributes.keys()
    for key, (identity, value, version) in attributes.items():
        assert now[key][0] == identity, key
        assert now[key][2] == version, key
        if isinstance(value, dict | list):
            assert len(now[key][1]) == len(value), key
    assert all(torch.equal(state[name], state_now[name]) for name in state)


def test_the_model_is_left_as_it_was():
    module = Holds()
    before, call = snapshot(module), nn.Module.__call__
    symbolic_trace(module, (torch.randn(2, 4),))
    assert_untouched(module, before)
    assert nn.Module.__call__ is call
    assert module.cache is None
    assert module.calls == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_model_is_left_as_it_was_after_an_error(error):
    class Fails(Holds):
        def forward(self, x):
            super().forward(x)
            self.offset.add_(1)
            self.linear.extra = 1
            raise error("halfway")

    module = Fails()
    before, call = snapshot(module), nn.Module.__call__
    expected = TraceError if error is ValueError else error
    with pytest.raises(expected, match="halfway"):
        symbolic_trace(module, (torch.randn(2, 4),))
    assert_untouched(module, before)
    assert nn.Module.__call__ is call
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))


def test_batch_norm_in_training_updates_its_statistics_when_run_only():
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    before = snapshot(module)
    x = torch.randn(2, 3, 5, 5)
    traced = symbolic_trace(module, (x,))
    assert_untouched(module, before)
    traced(x)
    assert module[1].num_batches_tracked == 1
    assert traced.get_submodule("1") is module[1]


def test_buffers_that_forward_replaces_are_written_by_the_graph():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("same", torch.ones(2))

        def forward(self, x):
            self.count = self.count + 1
            self.same = self.same.to(x.dtype)
            return x * self.count * self.same

    module = Counts()
    traced = symbolic_trace(module, (torch.ones(2),), check=False)
    assert module.count == 0
    assert torch.equal(traced(torch.ones(2)), torch.ones(2))
    assert torch.equal(traced(torch.ones(2)), torch.full((2,), 2.0))
    assert targets(traced, "call_method").count("copy_") == 1


def test_buffers_that_change_their_shape_are_not_silently_lost():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            self.seen = torch.cat([self.seen, x])
            return x * 2

    with pytest.warns(TraceWarning, match="seen"):
        symbolic_trace(Grows(), (torch.ones(2),))


class Remembers(nn.Module):
    """Its Python keeps what a graph cannot."""

    def __init__(self, remember):
        super().__init__()
        self.remember, self.number, self.seen, self.name, self.last = remember, 0, [], "a", None

    def forward(self, x):
        self.remember(self, x)
        return x * 2


def kinds(traced, kind):
    return [finding.what for finding in traced.meta["trace"].findings if finding.kind == kind]


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x * len(self.seen),
        lambda self, x: x + 1 if self.last is None else x,
        lambda self, x: x + (0 if self.last is None else self.last),
    ],
)
def test_a_model_whose_second_run_gives_something_else_is_said_to(function):
    class Depends(Remembers):
        def forward(self, x):
            y = function(self, x)
            self.seen.append(1)
            self.last = x
            return y

    with pytest.warns(TraceWarning, match="a second run"):
        traced = symbolic_trace(Depends(None), torch.randn(4, 3))
    (found,) = traced.meta["trace"].of_kind("state")
    assert (found.what, found.code) == ("a second run", "second-run-differs")
    assert set(kinds(traced, "attribute")) == {"seen", "last"}


class Averages(nn.Module):
    """The mean of all means so far, which the same data again do not move."""

    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        mean = x.mean()
        self.mean = mean if self.mean is None else self.mean + (mean - self.mean) / 2
        return x - self.mean


class AddsALayer(nn.Module):
    """Has random weights from its first call on, which the same random numbers again do not change."""

    def forward(self, x):
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(3, 3)
        return self.layer(x)


class Swaps(nn.Module):
    """Calls each of its layers in turn."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        self.one, self.other = self.other, self.one
        return self.one(x)


class Decays(nn.Module):
    """Has another frozen parameter in the place of the last one after each call."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.rand(3), requires_grad=False)

    def forward(self, x):
        x = x - self.rate
        self.rate = nn.Parameter(self.rate.sqrt(), requires_grad=False)
        return x


@pytest.mark.parametrize("model_class", [Averages, AddsALayer, Swaps, Decays])
def test_a_second_run_is_on_other_data_and_random_numbers(model_class):
    with pytest.warns(TraceWarning, match="a second run the model has changed"):
        symbolic_trace(model_class(), torch.randn(4, 3))


# Gradients, random numbers, autocast.


def test_no_gradient_flows_where_the_model_stops_it():
    class Stops(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                target = self.a(x) * 2
                pair = (self.b(x) + 1).chunk(2, dim=-1)
            return self.b(x) + target + pair[0].sum() + self.a(x).detach()

    module = Stops()
    for trace in (symbolic_trace, torch.no_grad()(symbolic_trace)):
        traced = trace(module, (torch.randn(2, 4),))
        x = torch.randn(2, 4)
        gradients = []
        for m in (module, traced):
            module.zero_grad()
            m(x).sum().backward()
            gradients.append([None if p.grad is None else p.grad.clone() for p in module.parameters()])
        assert gradients[0][:2] == gradients[1][:2] == [None, None]
        assert all(torch.equal(a, b) for a, b in zip(gradients[0][2:], gradients[1][2:], strict=True))


def test_a_shape_that_is_changed_in_place_without_gradient_is_that_of_what_comes_out():
    class Unsqueezes(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                made = x * 2
                made.unsqueeze_(0)
            return made * x, made.shape[0] + made

    traced = symbolic_trace(Unsqueezes(), (torch.randn(2, 4),), check=False)
    assert_agree(traced, Unsqueezes(), (torch.randn(3, 4),))


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, times):
        ctx.times = times
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 100 * ctx.times, None


def test_random_numbers_are_drawn_anew_in_the_model_s_order():
    class Draws(nn.Module):
        def forward(self, x):
            torch.rand(3)  # not used, but moves the generator on
            noise = torch.randn_like(x)
            return F.dropout(x + noise, 0.5, training=True) + torch.rand(x.shape[0], 1)

    module = Draws()
    traced = symbolic_trace(module, (torch.randn(2, 4),), check=False)
    assert_agree(traced, module, (torch.randn(3, 4),))
    assert not torch.equal(traced(torch.ones(2, 4)), traced(torch.ones(2, 4)))


def test_the_random_state_is_left_as_it_was():
    for module in (nn.Dropout(), OfTensors(lambda x: x * torch.rand(()) if x.sum() > -99 else x)):
        state = torch.get_rng_state()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            symbolic_trace(nn.Sequential(module), (torch.randn(2, 4),), check=False)
        torch.set_rng_state(state)
        expected = torch.rand(3)
        torch.set_rng_state(state)
        x = torch.zeros(2, 4)
        symbolic_trace(nn.Sequential(nn.Dropout()), (x,), check=False)
        assert torch.equal(torch.rand(3), expected)


# Python on tensors and sizes.


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(x.shape[0], -1, 2).transpose(1, 2).reshape(x.size(0), -1),
        lambda x: torch.zeros(x.shape[0], 2) + x.shape[1],
        lambda x: x[: x.shape[0] // 2 + 1, None, ..., ::2],
        lambda x: torch.arange(x.shape[0]) * torch.tensor(x.shape[0]),
        lambda x: x * (x.shape[0] ** 2 - 1) / max(x.shape[0], 2),
        lambda x: 1 / (2 - x) + 2**x - (3 // (abs(x) + 1)) + (5 % (abs(x) + 2)),
        lambda x: x**2 + (x * x) ** x.new_ones(4) + x.pow(3) - (-x).abs() - x.neg() + +x,
        lambda x: ~(x > 0) & (x < 1) | (x == 0) ^ (x != 2),
        lambda x: x @ x.T + x.mT.transpose(-1, -2).sum() + x.real[:, :1],
        lambda x: x.to(torch.float64).type_as(x).to(x).to(x.device),
        lambda x: x.to(float) + torch.zeros(x.shape[0], 1, dtype=float) + (x > 0).to(int),
        lambda x: torch.einsum("ij,kj->ik", x, x),
        lambda x: torch.cat([x, x.new_zeros(1, 4)], dim=0).cumsum(0).flip(0),
        lambda x: torch.where(x > 0, x, torch.finfo(x.dtype).min),
        lambda x: x.float().softmax(-1, dtype=torch.float32),
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: F.pad(x, (1, 2, x.shape[0], 0)),
        lambda x: F.interpolate(x[None, None], scale_factor=2.0),
        lambda x: F.interpolate(x[None, None], size=(x.shape[0] * 2, 3), mode="bilinear"),
        lambda x: x.repeat(x.shape[0], 1).expand(3, -1, -1),
        lambda x: x[torch.arange(x.shape[0]), torch.zeros(x.shape[0], dtype=torch.long)],
        lambda x: torch.complex(x, x).conj().imag,
        lambda x: x.masked_fill(torch.ones_like(x).bool().tril(), float("-inf")),
        lambda x: torch.nn.functional.one_hot(torch.zeros(x.shape[0], dtype=torch.long), 3),
        lambda x: x + torch.tensor(list(range(4))),
        lambda x: (lambda a, b: a - b)(*x.split(2, dim=-1)),
        lambda x: x.size()[0] * x + x.dim() + x.ndim,
    ],
)
def test_calls_of_every_kind(function):
    agree(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * len(x),
        lambda x: x.reshape(int(x.shape[0]), -1),
        lambda x: x.view(3, -1) * 2,
        lambda x: x * torch.ones([3, 1]),
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x * float(str(int(x.shape[0]))),
    ],
)
def test_a_size_that_python_burns_in_is_guarded(function):
    module = OfTensors(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(module, (torch.randn(3, 4),))
    assert_agree(traced, module, (torch.randn(3, 4),))
    assert_right_or_refused(traced, module, torch.ones(6, 4))


SEEN_FIRST = {}


def test_a_size_that_the_recorder_cannot_see_is_caught_by_the_second_shape():
    def function(x):
        # A number that goes by another road than the tensor's shape.
        rows = SEEN_FIRST.setdefault("rows", 3)
        return x.sum() / rows

    class Global(nn.Module):
        def forward(self, x):
            SEEN_FIRST["rows"] = x.untyped_storage().nbytes() // 16 if type(x) is torch.Tensor else 3
            return function(x)

    SEEN_FIRST.clear()
    with pytest.warns(TraceWarning, match="does not compute what the model computes"):
        traced = symbolic_trace(Global(), (torch.randn(3, 4),))
    assert traced.meta["trace"].rung == "real inputs"
    with pytest.raises(AssertionError, match="traced for x of shape"):
        traced(torch.randn(5, 4))


def test_a_size_that_is_fixed_is_guarded_although_the_model_compares_it_with_another():
    class Module(nn.Module):
        def forward(self, x, y):
            if x.shape[0] == y.shape[0]:
                return sum(row.sum() for row in x) + y.sum()
            return x.sum() - y.sum()

    traced = symbolic_trace(Module(), (torch.randn(3, 4), torch.randn(3)), check=False)
    assert_agree(traced, Module(), (torch.randn(3, 5), torch.randn(3)))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(4, 4), torch.randn(4))


def test_a_size_that_may_only_be_doubled_is_guarded():
    module = OfTensors(lambda x: sum(row for row in x.view(-1, 2, x.shape[1])[:, 0]))
    traced = symbolic_trace(module, (torch.randn(4, 3),))
    with pytest.raises(RuntimeError, match="invalid for input"):
        module(torch.randn(5, 3))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(8, 3))


def test_a_number_read_from_a_parameter_is_a_constant():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.tensor(3))

        def forward(self, x):
            for _ in range(self.steps.item()):
                x = x + 1
            return x

    traced = symbolic_trace(Module(), (torch.randn(2),))
    assert_agree(traced, Module(), (torch.randn(5),))
    (constant,) = traced.meta["trace"].of_kind("constant")
    assert constant.what == "steps"


def test_a_call_that_torch_does_not_show_is_refused_unless_a_part_around_it_is_one_node():
    part = OfTensors(torch.func.grad(lambda x: (x * x).sum()))
    module = nn.Sequential(part, nn.ReLU())
    with pytest.raises(TraceError, match="leaf_modules") as raised:
        symbolic_trace(part, (torch.randn(3, 4),))
    assert raised.value.code == "hidden-by-torch"
    with pytest.warns(TraceWarning, match=r"derivative of torch\.func"):
        traced = symbolic_trace(module, (torch.randn(3, 4),))
    assert_agree(traced, module, (torch.randn(5, 4),))
    traced = symbolic_trace(module, (torch.randn(3, 4),), leaf_modules=[OfTensors])
    assert_agree(traced, module, (torch.randn(5, 4),))


# Modules of modules.


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_are_leaves(kind):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = kind(4, 6, num_layers=2, batch_first=True)

        def forward(self, x):
            y, state = self.rnn(x)
            return self.rnn(y[..., :4], state)

    module = Module()
    traced = symbolic_trace(module, (torch.randn(2, 5, 4),), check=False)
    assert_agree(traced, module, (torch.randn(3, 7, 4),))
    assert targets(traced, "call_module") == ["rnn", "rnn"]


def test_packed_sequences():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 6, batch_first=True)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, _ = self.rnn(packed)
            return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]

    module = Module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(module, (torch.randn(2, 5, 4), torch.tensor([3, 5])), check=False)
    assert_agree(traced, module, (torch.randn(2, 5, 4), torch.tensor([3, 5])))


def test_parametrized_and_normed_weights():
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    module = nn.Sequential(linear, nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))).eval()
    traced = symbolic_trace(module, (torch.randn(2, 4),), check=False)
    assert_agree(traced, module, (torch.randn(3, 4),))


def test_a_traced_module_traces_again():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    once = symbolic_trace(module, (torch.randn(2, 4),))
    twice = symbolic_trace(once, (torch.randn(2, 4),))
    assert targets(twice) == targets(once)
    assert_agree(symbolic_trace(nn.Sequential(once), (torch.randn(2, 4),)), module, (torch.randn(3, 4),))


def layers():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def compiled():
    return torch.compile(layers(), backend="eager")


def compiled_in_place():
    model = layers()
    model.compile(backend="eager")
    return model


def with_a_compiled_part():
    model = layers()
    model[0] = torch.compile(model[0], backend="eager")
    return model


def with_a_compiled_function():
    return Calls(torch.compile(lambda x: x.sin() * 2, backend="eager"))


@pytest.mark.parametrize(
    "make", [compiled, compiled_in_place, with_a_compiled_part, with_a_compiled_function]
)
def test_what_is_compiled_is_recorded_as_the_python_that_it_was(make):
    model = make()
    traced = symbolic_trace(model, (torch.randn(4, 3),), check=False)
    assert_agree(traced, model, (torch.randn(6, 3),))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("of", [torch.jit.script, lambda model: torch.jit.trace(model, torch.randn(4, 3))])
def test_a_module_without_python_is_refused(of):
    with pytest.raises(TypeError, match="expected a module in Python, got a"):
        symbolic_trace(of(layers()), (torch.randn(4, 3),))


def test_a_model_without_data_that_needs_a_size_as_a_number_is_traced_for_its_sizes_if_asked():
    class Needs(nn.Linear):
        def forward(self, x):
            return super().forward(x) * float(str(x.shape[0] % 0.1))

    model, x = Needs(4, 4, device="meta"), torch.ones(3, 4, device="meta")
    with pytest.raises(TraceError, match=r"(?s)test_plain_modules.py.*float\(str.*dynamic=False"):
        symbolic_trace(model, x)
    assert symbolic_trace(model, x, dynamic=False, check=False).meta["trace"].rung == "fixed shapes"
