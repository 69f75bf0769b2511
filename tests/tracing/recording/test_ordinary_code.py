"""Code of every day that computes nothing, watches gradients or gives other weights is traced."""

import copy
import functools
import io
import itertools
import random

import numpy as np
import pytest
import torch
from agreement import assert_agree
from torch import nn

import fxlab

X = torch.randn(2, 4)


class Runs(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.linear, self.run = nn.Linear(4, 4), run

    def forward(self, x):
        return self.run(self, x)


def in_a_profiler(model, x):
    with torch.profiler.record_function("block"):
        return model.linear(x)


@torch.profiler.record_function("block")
def decorated(model, x):
    return model.linear(x)


def test_marks_for_a_profiler_are_left_out():
    for model in (Runs(in_a_profiler), Runs(decorated), nn.DataParallel(nn.Linear(4, 4))):
        traced = fxlab.symbolic_trace(model, X)
        assert len(traced.graph.nodes) == 3
        assert_agree(traced, model, (torch.randn(5, 4),))


def keep_gradient(model, x):
    y = model.linear(x)
    y.retain_grad()
    return y.relu()


def watch_gradient(model, x):
    y = model.linear(x)
    y.register_hook(lambda gradient: gradient * 2)
    return y.relu()


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_keeps_a_gradient_runs_with_gradients(training):
    model = Runs(keep_gradient).train(training)
    traced = fxlab.symbolic_trace(model, X, check=False)
    assert torch.equal(traced(X), model(X))


def watch_step(model, x):
    y = model.linear(x).exp()
    if y.grad_fn is not None:
        y.grad_fn.register_prehook(lambda gradients: (2 * gradients[0],))
    return y


def save_less(model, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
        return model.linear(x).exp()


@pytest.mark.parametrize("forward", [watch_gradient, watch_step, save_less])
def test_a_hook_on_a_gradient_is_told_to_be_missing(forward):
    with pytest.warns(fxlab.TraceWarning, match="backward hooks are not in the graph"):
        traced = fxlab.symbolic_trace(model := Runs(forward), X)
    assert torch.equal(traced(X), model(X))


def test_a_call_with_other_weights_reads_those():
    def with_doubled_weights(model, x):
        doubled = {"weight": 2 * model.linear.weight, "bias": model.linear.bias}
        return torch.func.functional_call(model.linear, doubled, (x,)) + model.linear(x)

    model = Runs(with_doubled_weights)
    traced = fxlab.symbolic_trace(model, X, check=False)
    assert_agree(traced, model, (torch.randn(5, 4),))


def hooked_for_a_while(model, x):
    handle = model.linear.register_forward_hook(lambda module, args, output: output * 2)
    doubled = model.linear(x)
    handle.remove()
    return doubled + model.linear(x)


def test_a_hook_that_is_there_for_a_while_is_recorded():
    model = Runs(hooked_for_a_while)
    traced = fxlab.symbolic_trace(model, X, check=False)
    assert_agree(traced, model, (torch.randn(5, 4),))
    assert not model.linear._forward_hooks


def test_a_model_may_use_a_tensor_that_a_hook_of_a_leaf_has_made():
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.seen = nn.Linear(4, 4), {}
            self.linear.register_forward_hook(
                lambda module, args, output: self.seen.update(last=output.detach())
            )

        def forward(self, x):
            return self.linear(x) - self.seen["last"].mean()

    model = Watched()
    traced = fxlab.symbolic_trace(model, X, check=False)
    assert_agree(traced, model, (torch.randn(5, 4),))


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_the_backward_of_a_scripted_function_is_told_to_be_missing():
    @torch.jit.script
    def positive_part_plus(x, y):
        return torch.relu(x) + y

    model = Runs(lambda model, x: positive_part_plus(model.linear(x), x))
    for _ in range(3):  # torch optimizes a function after some calls
        model(X)
    with pytest.warns(fxlab.TraceWarning, match="a scripted function its own backward is not in the graph"):
        traced = fxlab.symbolic_trace(model, X)
    assert_agree(traced, model, (torch.randn(2, 4),))


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
@pytest.mark.parametrize("part", [nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.BatchNorm1d(4)])
def test_a_scripted_part_is_traced_at_the_given_sizes(part):
    # A copy, like one that is loaded, has no function in Python.
    model = nn.Sequential(nn.Linear(4, 4), copy.deepcopy(torch.jit.script(part)))
    with pytest.warns(fxlab.TraceWarning):
        traced = fxlab.symbolic_trace(model, X)
    assert_agree(traced, model, (torch.randn(2, 4),))


class Draws(nn.Module):
    """Changes what is neither a tensor nor an attribute of a module."""

    def __init__(self):
        super().__init__()
        self.steps, self.rates = np.zeros(1), iter([1.0, 2.0, 3.0])

    def forward(self, x):
        self.steps += 1
        return x * float(self.steps[0]) * next(self.rates)


def scales():
    yield from (1.0, 2.0, 3.0, 4.0)


GLOBAL = scales()


class GoesOn(nn.Module):
    """Has generators in different places, and takes a value of one."""

    def __init__(self, kept):
        super().__init__()
        self.kept, self.items, self.around = scales(), [scales()], scales()
        self.function = dict(self.ways(scales()))[kept]

    def ways(self, around):
        yield "attribute", lambda model: next(model.kept)
        yield "item", lambda model: model.items[0].send(None)
        yield "variable around", lambda model: next(around)
        yield "global variable", lambda model: sum(GLOBAL)

    def forward(self, x):
        return x * self.function(self)


@pytest.mark.parametrize("kept", ["attribute", "item", "variable around", "global variable"])
def test_a_generator_of_the_model_is_refused_in_words_and_left_as_it_was(kept):
    model = GoesOn(kept)
    with pytest.raises(fxlab.TraceError, match=r"goes on with a generator \(scales\), at .*ordinary_code"):
        fxlab.symbolic_trace(model, X)
    assert torch.equal(model(X), X * (10 if kept == "global variable" else 1))


class Advances(nn.Module):
    """Has something that goes on when it runs."""

    def __init__(self, kept, advance):
        super().__init__()
        self.kept, self.advance = kept, advance

    def forward(self, x):
        return x * self.advance(self.kept)


def variable_around():
    calls = 0

    def advance(kept):
        nonlocal calls
        calls += 1
        return calls

    return advance


USED_UP = {
    "count": (lambda: itertools.count(2), next),
    "in a tuple": (lambda: (0, [itertools.cycle([2.0, 3.0])]), lambda kept: next(kept[1][0])),
    "zip": (lambda: zip([2.0, 3.0], "ab", strict=True), lambda kept: next(kept)[0]),
    "dict": (lambda: iter({2.0: 0, 3.0: 0}), next),
    "array": (lambda: np.arange(2.0, 9.0).flat, next),
    "method": (lambda: itertools.count(2).__next__, lambda kept: kept()),
    "partial": (lambda: functools.partial(next, itertools.count(2)), lambda kept: kept()),
    "file": (lambda: io.StringIO("234"), lambda kept: float(kept.read(1))),
}


@pytest.mark.parametrize(("make", "advance"), USED_UP.values(), ids=[*USED_UP])
def test_an_iterator_that_nothing_can_copy_is_refused_before_it_goes_on(make, advance):
    model = Advances(make(), advance)
    with pytest.raises(
        fxlab.TraceError, match=r"goes on with an iterator or file \(\w+\), at .*ordinary"
    ) as error:
        fxlab.symbolic_trace(model, X)
    assert error.value.code == "generator"
    assert torch.equal(model(X), X * 2)


COUNT, DRAWN = itertools.count(2), random.Random(3)


@pytest.mark.parametrize(("advance", "first"), [(lambda _: next(COUNT), 2), (lambda _: DRAWN.random(), None)])
def test_iterators_in_a_file_are_refused_before_they_go_on(advance, first):
    model = Advances(None, advance)
    with pytest.raises(fxlab.TraceError, match="goes on with"):
        fxlab.symbolic_trace(model, X)
    assert torch.equal(model(X), X * (first or random.Random(3).random()))


def test_an_iterator_that_is_not_read_is_nobodys_business(tmp_path):
    with (tmp_path / "log").open("w") as log:
        model = Advances([itertools.count(), log], lambda kept: kept[1].write("two"))
        assert torch.equal(fxlab.symbolic_trace(model, X, check=False)(X), X * 3)


COPIED = {
    "variable around": (None, variable_around(), "advance.calls"),
    "partial": (
        functools.partial(lambda seen: seen.append(1) or len(seen), []),
        lambda k: k(),
        "kept.args[0]",
    ),
    "method of a list": ([].append, lambda kept: kept(1) or len(kept.__self__), "kept.__self__"),
    "list in a tuple": (([],), lambda kept: kept[0].append(1) or len(kept[0]), "kept[0]"),
    "method of a generator": (random.Random(3).random, lambda kept: kept(), "kept.__self__"),
}


@pytest.mark.parametrize(("kept", "advance", "path"), COPIED.values(), ids=[*COPIED])
def test_what_python_advances_is_as_it_was_and_told_to_change(kept, advance, path):
    model = Advances(kept, advance)
    with pytest.warns(fxlab.TraceWarning, match="a second run the model has changed"):
        traced = fxlab.symbolic_trace(model, X)
    assert {found.what for found in traced.meta["trace"].of_kind("attribute")} == {path}
    expected = traced(X)
    assert torch.equal(model(X), expected)
    assert not torch.equal(model(X), expected)


class MakesAPart(nn.Module):
    """Makes a part in its first call, and keeps it."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.register_buffer("part", None)

    def forward(self, x):
        if self.part is None:
            del self.part
            self.part = self.make()
            return x
        return x * 2


@pytest.mark.parametrize("make", [lambda: nn.Parameter(torch.ones(4)), lambda: torch.ones(4), nn.ReLU])
def test_a_part_that_the_first_call_makes_is_told(make):
    with pytest.warns(fxlab.TraceWarning, match="a second run the model has changed"):
        traced = fxlab.symbolic_trace(MakesAPart(make), X)
    assert {found.what for found in traced.meta["trace"].of_kind("attribute")} == {"part"}


class Seeds(nn.Module):
    def __init__(self, seeds, draws):
        super().__init__()
        self.seeds, self.draws = seeds, draws

    def forward(self, x):
        self.seeds()
        return x + torch.randn(4) if self.draws else x + 1


def seed_apart():
    with torch.random.fork_rng():
        torch.manual_seed(3)


def put_back():
    state = torch.get_rng_state()
    torch.rand(2)
    torch.set_rng_state(state)


SEEDING = (
    lambda: torch.manual_seed(0), lambda: torch.seed(), lambda: torch.random.manual_seed(0),
    seed_apart, put_back,
    lambda: torch.default_generator.manual_seed(0), lambda: torch.default_generator.set_state(STATE),
    lambda: torch.random.set_rng_state(STATE), lambda: torch.random.fork_rng().__enter__(),
)  # fmt: skip
STATE = torch.get_rng_state()


@pytest.mark.parametrize("seeds", SEEDING)
def test_a_model_that_seeds_and_draws_is_refused(seeds):
    with pytest.raises(fxlab.TraceError, match="seeds torch's random number generators"):
        fxlab.symbolic_trace(Seeds(seeds, draws=True), X)


def test_seeding_is_told_to_be_missing():
    with pytest.warns(fxlab.TraceWarning, match="seeds torch's random number generators, the graph does not"):
        fxlab.symbolic_trace(Seeds(lambda: torch.manual_seed(0), draws=False), X)


def test_arrays_and_iterators_are_as_they_were_and_told_to_change():
    model = Draws()
    with pytest.warns(fxlab.TraceWarning, match="a second run the model has changed"):
        traced = fxlab.symbolic_trace(model, X)
    assert {found.what for found in traced.meta["trace"].of_kind("attribute")} == {"steps", "rates"}
    assert model.steps[0] == 0
    assert next(model.rates) == 1.0


def test_a_packed_sequence_is_an_input():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 6)

        def forward(self, packed):
            return self.gru(packed)[1]

    model = Reads().eval()
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(2, 4)])
    with pytest.warns(fxlab.TraceWarning, match="traced on real inputs"):  # it holds sizes as data
        traced = fxlab.symbolic_trace(model, (packed,))
    assert torch.equal(traced(packed), model(packed))


LINEAR = nn.Linear(4, 4)


def scaled(x, scale: float = 2.0):
    return LINEAR(x) * scale


def around(layer):
    return lambda a, b: layer(a) + torch.relu(b)


@pytest.mark.parametrize(
    ("function", "inputs", "parameters"),
    [
        (lambda a, b: torch.relu(a) + b, (X, X), []),
        (scaled, (X,), ["LINEAR.weight", "LINEAR.bias"]),
        (functools.partial(scaled, scale=3.0), (X,), ["LINEAR.weight", "LINEAR.bias"]),
        (around(LINEAR), (X, X), ["layer.weight", "layer.bias"]),
        (LINEAR.forward, (X,), ["module.weight", "module.bias"]),
        (torch.relu, (X,), []),
    ],
    ids=["function", "global module", "partial", "closure", "method", "of torch"],
)
def test_a_function_is_a_model(function, inputs, parameters):
    traced = fxlab.symbolic_trace(function, inputs, check=False)
    assert [name for name, _ in traced.named_parameters()] == parameters
    others = tuple(torch.randn(5, 4) for _ in inputs)
    assert torch.equal(traced(*others), function(*others))


def test_offloaded_weights_are_refused_in_words():
    model = nn.Sequential(nn.Linear(4, 4, device="meta"))
    own = model[0].forward

    def forward(x):
        model[0].weight = type(model[0].weight)(torch.ones(4, 4), requires_grad=False)
        return own(x)

    model[0].forward = forward
    with pytest.raises(fxlab.TraceError, match="meta device") as raised:
        fxlab.symbolic_trace(model, X)
    assert raised.value.code == "offloaded"


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x + torch.tensor([torch.tensor(-104)] * 2).sum(),
        lambda x: torch.tensor([[x.sum(), 2], [x.shape[0], x[0, 0]]]),
        lambda x: torch.tensor([x.argmax(), 2.5]),
        lambda x: torch.asarray([x.sum().half(), x.mean()], dtype=torch.float64),
        lambda x: x.double().new_tensor([x.sum(), 2.0]),
    ],
)
def test_a_tensor_of_numbers_in_tensors_follows_sizes(made):
    traced = fxlab.symbolic_trace(made, X)
    assert traced.meta["trace"].rung == "dynamic shapes"
    other = torch.randn(5, 4)
    assert torch.equal(traced(other), made(other))
    assert traced(other).dtype == made(other).dtype


@pytest.mark.parametrize("name", ["modules", "parameters", "named_buffers"])
def test_an_attribute_in_the_place_of_a_method_is_named(name):
    inside = nn.Linear(4, 4)
    setattr(inside, name, [1])
    with pytest.raises(ValueError, match=rf"self\.{name} of 1 \(a list\) hides the method {name}\(\)"):
        fxlab.symbolic_trace(nn.Sequential(nn.ReLU(), inside), X)


def test_a_function_that_trains_is_refused_before_it_has_trained():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(fxlab.TraceError, match=r"backward\(\).*fxlab\.trace_step"):
        fxlab.Session(step, torch.ones(3, 8))
    assert not optimizer.state
    assert model.weight.grad is None
