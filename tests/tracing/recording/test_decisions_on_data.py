"""Models whose Python decides on data: the graph holds for the decisions that were taken, and checks them."""

import copy
import itertools
import logging
import operator
import types

import pytest
import torch
from agreement import assert_agree, targets
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from fxlab import TraceWarning, symbolic_trace
from fxlab.tracing.report import DYNAMIC, REAL
from fxlab.values.nested import texts_inside


class Decides(nn.Module):
    """A module around a function of ``x`` that decides on data."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def traced_with_warning(module, x):
    with pytest.warns(TraceWarning, match=r"test_decisions_on_data\.py:\d+"):
        return symbolic_trace(module, (x,))


class Deciding:
    """Not functions of a file, which would stay whole: what the model itself does."""

    @staticmethod
    def doubled_if_positive(x):
        return x * 2 if x.sum() > 0 else x - 1

    @staticmethod
    def doubled_if_any(x):
        return x * 2 if (x > 0).any().item() else x - 1

    @staticmethod
    def doubled_unless_none(x):
        return x - 1 if (x > 0).any().item() == False else x * 2  # noqa: E712

    @staticmethod
    def halved_until_small(x):
        while x.max() > 1:
            x = x / 2
        return x

    @staticmethod
    def as_many_times(x):
        for _ in range(int(x.abs().max())):
            x = x + 1
        return x

    @staticmethod
    def as_many_items(x):
        return x + sum(range(len(x[0].ceil().long().tolist()))) * x[0, 0].__int__()


@pytest.mark.parametrize(
    ("function", "values", "others"),
    [
        (Deciding.doubled_if_positive, 1.0, -1.0),
        (Deciding.doubled_if_any, 1.0, -1.0),
        (Deciding.doubled_unless_none, 1.0, -1.0),
        (Deciding.halved_until_small, 3.0, 9.0),
        (Deciding.as_many_times, 2.0, 4.0),
        (Deciding.as_many_items, 2.0, 4.0),
    ],
)
def test_a_decision_is_held_at_every_size_and_checked(function, values, others):
    module = Decides(function)
    traced = traced_with_warning(module, torch.full((3, 4), values))
    report = traced.meta["trace"]
    assert report.rung == "dynamic shapes, with data"
    assert report.of_kind("branch on data")
    assert_agree(traced, module, (torch.full((3, 4), values),))
    assert_agree(traced, module, (torch.full((5, 4), values),))
    with pytest.raises(AssertionError, match=r"traced for .* \(decided at .*test_decisions_on_data"):
        traced(torch.full((3, 4), others))


class OfOneNumber:
    """Numbers that Python takes out of an input without dimensions."""

    @staticmethod
    def as_factor(x, n):
        return x * n.__int__()

    @staticmethod
    def as_float(x, n):
        return x * n.__float__()

    @staticmethod
    def as_bound(x, n):
        return x[:, n.__int__() :]

    @staticmethod
    def as_count(x, n):
        return x.chunk(n.long(), 1)[1]

    @staticmethod
    def as_index(x, n):
        return x * [1, 2, 3, 5][n.long()]

    @staticmethod
    def as_branch(x, n):
        return x * 2 if int(n) > 2 else x


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "function",
    [value.__func__ for name, value in vars(OfOneNumber).items() if name.startswith("as_")],
    ids=lambda function: function.__name__,
)
def test_the_number_in_an_input_without_dimensions_is_data(function, dtype, check):
    class Reads(nn.Module):
        def forward(self, x, n):
            return function(x, n)

    module, x = Reads(), torch.randn(2, 4, generator=torch.manual_seed(0))
    with pytest.warns(TraceWarning):
        traced = symbolic_trace(module, (x, torch.tensor(2, dtype=dtype)), check=check)
    assert {finding.code for finding in traced.meta["trace"].limits()} == {"branch-on-data"}
    assert traced.meta["trace"].rung == "dynamic shapes, with data"
    assert_agree(traced, module, (x, torch.tensor(2, dtype=dtype)))
    with pytest.raises(AssertionError, match="traced for"):
        traced(x, torch.tensor(3, dtype=dtype))


class Reading:
    """The same, by numpy."""

    @staticmethod
    def read_by_numpy(x):
        return x * float(x.detach().numpy().max())

    @staticmethod
    def indexed_by_a_mask(x):
        return x.sum() / x[torch.as_tensor(x.detach().numpy() > 0)].shape[0]

    @staticmethod
    def repeated_as_numpy_says(x):
        counts = torch.as_tensor(x.detach().numpy()[0]).long()
        return x[0].repeat_interleave(counts).reshape(-1, 2).sum(0) + counts.sum().item()


@pytest.mark.parametrize(
    "function", [Reading.read_by_numpy, Reading.indexed_by_a_mask, Reading.repeated_as_numpy_says]
)
def test_what_is_read_out_of_real_inputs_is_checked(function):
    module = Decides(function)
    traced = traced_with_warning(module, torch.full((3, 4), 2.0))
    report = traced.meta["trace"]
    assert report.rung == "real inputs"
    assert report.of_kind("branch on data")
    assert_agree(traced, module, (torch.full((3, 4), 2.0),))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.tensor([4.0, -1.0, 2.0]).view(3, 1).expand(3, 4).contiguous())
    with pytest.raises(AssertionError, match="traced for x of shape"):
        traced(torch.full((2, 4), 2.0))


def test_a_mask_that_is_dropped_where_it_masks_nothing_is_not_dropped_silently():
    class Masked(nn.Module):
        def forward(self, x, mask):
            return x.softmax(-1) if bool(mask.all()) else x.masked_fill(~mask, -1e9).softmax(-1)

    x, ones = torch.randn(2, 5), torch.ones(2, 5, dtype=torch.bool)
    with pytest.warns(TraceWarning):
        traced = symbolic_trace(Masked(), (x, ones))
    assert_agree(traced, Masked(), (torch.randn(3, 7), torch.ones(3, 7, dtype=torch.bool)))
    padded = ones.clone()
    padded[1, 3:] = False
    with pytest.raises(AssertionError, match="traced for"):
        traced(x, padded)
    with pytest.warns(TraceWarning):
        traced = symbolic_trace(Masked(), (x, padded))
    assert_agree(traced, Masked(), (x, padded))
    with pytest.raises(AssertionError, match="traced for"):
        traced(x, ones)


def test_nan_is_held():
    module = Decides(lambda x: x + float(x.detach().numpy()[0, 0]) * 0 + x.sum())
    nan = torch.full((2, 2), float("nan"))
    traced = traced_with_warning(module, nan)
    assert traced(nan).isnan().all()
    with pytest.raises(AssertionError, match="traced for numpy giving"):
        traced(torch.ones(2, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.pad(x, (0, (x > 0).sum())),
        lambda x: x[:, : (x[0] > -99).sum()],
        lambda x: x[(x[0] > -99).sum() // 2 :].clone(),
        lambda x: torch.zeros((x > 0).sum(), 2) + 1,
        lambda x: x.new_ones((x > 0).sum()).cumsum(0),
    ],
)
def test_sizes_given_as_tensors_are_followed(function):
    module = Decides(function)
    x = torch.randn(3, 4)
    traced = symbolic_trace(module, (x,))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, module, (x,))
    assert_agree(traced, module, (torch.randn(6, 8),))


def test_random_numbers_that_are_decided_on_are_those_of_the_check():
    class Draws(nn.Module):
        def forward(self, x):
            return x * 2 if float(torch.rand(1).numpy()[0]) < 0.5 else x

    with pytest.warns(TraceWarning):
        traced = symbolic_trace(Draws(), (torch.randn(2, 2),))
    assert_agree(traced, Draws(), (torch.randn(2, 2),))


def test_loops_do_not_fill_the_report():
    def function(x):
        for _ in range(50):
            x = x * 2 if x.detach().numpy()[0, 0] > 0 else x
        return x

    traced = traced_with_warning(Decides(function), torch.full((2, 2), 1e-9))
    branches = traced.meta["trace"].of_kind("branch on data")
    assert len(branches) == len({(branch.what, branch.detail, branch.where) for branch in branches})


def test_recurrent_layers_compute_what_is_decided_on():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 4, batch_first=True)

        def forward(self, x):
            y, (h, _) = self.lstm(x)
            return y * 2 if 0 < h.abs().sum() < 8 else y

    torch.manual_seed(0)
    model = Gated()
    with pytest.warns(TraceWarning):
        traced = symbolic_trace(model, (torch.randn(2, 5, 4),))
    assert traced.meta["trace"].rung == "dynamic shapes, with data"
    assert_agree(traced, model, (torch.randn(3, 9, 4),))


SIZES = {"vocab_size": 100, "num_attention_heads": 2, "intermediate_size": 48, "hidden_size": 32}


WRITES = {
    "add_": lambda y, x: y.add_(x),
    "addcmul_": lambda y, x: y.addcmul_(x, x),
    "addmm_": lambda y, x: y.addmm_(x, x),
    "cumsum_": lambda y, x: y.cumsum_(0),
    "index_add_": lambda y, x: y.index_add_(0, torch.arange(3), x),
    "index_put_": lambda y, x: y.index_put_((torch.arange(3),), x, accumulate=True),
    "lerp_": lambda y, x: y.lerp_(x + 3, 0.5),
    "mul_": lambda y, x: y.mul_(x + 1),
    "scatter_add_": lambda y, x: y.scatter_add_(0, torch.zeros(3, 3, dtype=torch.int64), x),
    "setitem": lambda y, x: y.__setitem__(slice(1, None), y[:2] + x[:2]),
    "sigmoid_": lambda y, x: y.sigmoid_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_what_is_written_in_place_is_written_once_before_it_is_decided_on(write):
    once, twice = torch.ones(3, 3), torch.ones(3, 3)
    x = torch.ones(3, 3)
    for y, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            write(y, x)
    between = float(once.sum() + twice.sum()) / 2
    assert once.sum() != twice.sum()

    class Decides(nn.Module):
        def forward(self, x):
            y = torch.ones_like(x)
            write(y, x)
            return y + 1 if y.sum() < between else y - 1

    traced = symbolic_trace(Decides(), x)
    assert traced.meta["trace"].rung == "dynamic shapes, with data"
    assert torch.equal(traced(x), Decides()(x))


class SplitsByData(nn.Module):
    """Takes rows apart where a tensor says, as models do with the patches of each image."""

    def forward(self, rows, lengths):
        parts = rows.split([length * 2 for length in lengths])
        return torch.stack([part.sum(0) for part in parts])


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_parts_whose_sizes_are_data_are_counted():
    traced = symbolic_trace(SplitsByData(), (torch.randn(10, 3), torch.tensor([2, 3])))
    assert traced.meta["trace"].rung == DYNAMIC
    assert_agree(traced, SplitsByData(), (torch.randn(12, 3), torch.tensor([5, 1])))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(12, 3), torch.tensor([3, 1, 2]))


def transposed() -> torch.Tensor:
    return torch.randn(3, 4).t()


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (lambda x: x * 2 if x.stride(-1) == 1 else x * 3, transposed()),
        (lambda x: x.as_strided(x.size(), x.stride()) * 2, transposed()),
        (lambda x: (x + 1).as_strided(x.size(), (x + 1).stride()) * 2, transposed()),
        (lambda x: x * 2 if x.storage_offset() == 0 else x * 3, torch.randn(13)[1:].view(4, 3)),
        (lambda x: x * 2 if x.layout is torch.strided else x * 3, torch.randn(4, 3).to_sparse()),
        (lambda x: x * 3 if x.is_sparse else x * 2, torch.randn(4, 3).to_sparse()),
        (lambda x: x * 3 if x.is_neg() else x * 2, torch.randn(4, 3, dtype=torch.complex64).conj().imag),
        (lambda x: x * 2 if x.dim_order() == (0, 1) else x * 3, transposed()),
        (lambda x: x * 3 if x.is_shared() else x * 2, torch.randn(4, 3).share_memory_()),
        (lambda x: x * 3 if x._is_view() else x * 2, torch.randn(4, 3)[1:]),
    ],
    ids=[
        *("one", "all", "of what was computed", "offset", "layout", "sparse", "negated lazily"),
        *("order of dimensions", "shared memory", "a view"),
    ],
)
def test_where_python_reads_strides_or_layouts_tensors_that_lie_otherwise_are_refused(function, other):
    traced = traced_with_warning(Decides(function), torch.randn(4, 3))
    assert traced.meta["trace"].rung == DYNAMIC
    assert_agree(traced, Decides(function), (torch.randn(7, 2),))
    with pytest.raises(AssertionError, match="traced for tensors that lie in memory as they did"):
        traced(other)


def test_strides_that_torch_reads_of_what_is_not_used_are_not_checked():
    traced = symbolic_trace(Decides(lambda x: (torch.IntTensor([3]), x * 2)[1]), (torch.randn(4, 3),))
    assert targets(traced, "call_function") == [operator.mul]


GRADIENT_READS = {
    "requires_grad": lambda tensor: tensor.requires_grad,
    "is_leaf": lambda tensor: tensor.is_leaf,
    "grad_fn is None": lambda tensor: tensor.grad_fn is None,
}


@pytest.mark.each_value
@pytest.mark.parametrize("wants_gradients", [False, True])
@pytest.mark.parametrize("gradients_on", [False, True])
@pytest.mark.parametrize("of_hidden", [False, True])
@pytest.mark.parametrize("read", GRADIENT_READS)
def test_a_decision_on_gradients_is_held(read, of_hidden, gradients_on, wants_gradients):
    class DecidesOnGradients(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            hidden = self.linear(x)
            return hidden * 2 if GRADIENT_READS[read](hidden if of_hidden else x) else hidden * 3

    model, x = DecidesOnGradients(), torch.randn(4, 3, requires_grad=wants_gradients)
    with torch.set_grad_enabled(gradients_on):
        traced = symbolic_trace(model, (x,))
        assert torch.equal(traced(x), model(x))
    (finding,) = (f for f in traced.meta["trace"].findings if f.code == "gradient-read")
    assert finding.what == read
    answers = set()
    for is_on, wants, is_frozen in itertools.product([False, True], repeat=3):
        model.requires_grad_(not is_frozen)
        other = torch.randn(5, 3, requires_grad=wants)
        with torch.set_grad_enabled(is_on):
            expected = model(other)
            try:
                answers.add(torch.equal(traced(other), expected))
            except AssertionError as error:
                answers.add(str(error)[:10])
    assert True in answers
    assert answers <= {True, "traced for"}


def test_whether_a_parameter_is_trained_is_held():
    class DecidesOnItsWeight(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * (self.weight if self.weight.requires_grad else 3)

    model = DecidesOnItsWeight()
    traced = symbolic_trace(model, (torch.randn(4, 3),))
    model.requires_grad_(False)
    with pytest.raises(AssertionError, match="requires_grad being True only"):
        traced(torch.randn(4, 3))


TEXTS_OF_SIZES = {
    "str": lambda x: (x * 2, str(x.shape)),
    "format": lambda x: (x * 2, f"{x.shape[0]} rows"),
    "key": lambda x: {f"rows {x.shape[0]}": x * 2},
    "repr": lambda x: [x * 2, [repr(x.shape[0] * 2)]],
    "object": lambda x: types.SimpleNamespace(x=x * 2, size=f"{x.shape}"),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", TEXTS_OF_SIZES)
def test_a_text_of_a_size_that_is_returned_fixes_it(name, check):
    model, x = Decides(TEXTS_OF_SIZES[name]), torch.randn(4, 3)
    with pytest.warns(TraceWarning, match="A text with a size in it"):
        traced = symbolic_trace(model, (x,), check=check)
    assert list(texts_inside(traced(x))) == list(texts_inside(model(x)))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(5, 3))


@pytest.mark.parametrize("check", [True, False])
def test_a_copy_of_a_size_is_followed(check):
    model = Decides(lambda x: x * copy.deepcopy(x.shape[0]))
    traced = symbolic_trace(model, (torch.ones(4, 3),), check=check)
    assert torch.equal(traced(torch.ones(7, 3)), torch.full((7, 3), 7.0))


def test_a_text_of_a_size_that_is_only_said_fixes_nothing(caplog):
    def logs(x):
        logging.getLogger("model").warning(f"{x.shape[0]} rows")
        torch._assert((x < 9).all(), f"{x.shape[0]} rows are too large")
        return x * 2

    with caplog.at_level(logging.WARNING):
        traced = symbolic_trace(Decides(logs), (torch.randn(4, 3),))
    assert torch.equal(traced(torch.ones(7, 3)), torch.full((7, 3), 2.0))
    assert any("x.shape[0]" in message for message in caplog.messages)
    with pytest.raises(AssertionError, match=r"x\.shape\[0\] rows are too large"):
        traced(torch.full((7, 3), 10.0))


def test_texts_that_are_returned_are_compared():
    class ReturnsText(nn.Module):
        def forward(self, x):
            return x * 2, "compiled" if torch.compiler.is_compiling() else f"{x[0, 0]}"

    with pytest.warns(TraceWarning):
        traced = symbolic_trace(ReturnsText(), (torch.ones(4, 3),))
    assert traced(torch.ones(4, 3))[1] == "1.0"


@pytest.mark.parametrize("text", [repr, "{}".format])
def test_a_text_of_a_tensor_is_held(text):
    x = torch.randn(4, 3)
    traced = traced_with_warning(Decides(lambda x: x * len(text(x[0, 0]))), x)
    assert traced.meta["trace"].rung == REAL
    with pytest.raises(AssertionError, match="traced for"):
        traced(x * 2)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "address",
    [lambda x: x.data_ptr(), lambda x: x.untyped_storage().data_ptr(), lambda x: x.storage().data_ptr()],
)
def test_an_address_is_read_from_real_inputs_alone(address, check):
    def compared(x):
        first, second = x * 2, x * 3
        return first + second if address(first) == address(second) else first - second

    model, x = Decides(compared), torch.randn(4, 3)
    with pytest.warns(TraceWarning):
        traced = symbolic_trace(model, x, check=check)
    assert traced.meta["trace"].rung == REAL
    assert any(f.what == "data_ptr" for f in traced.meta["trace"].findings)
    assert_agree(traced, model, (x,))


class AsksForFakes(nn.Module):
    """Decides on its mask; where it is traced it computes something that is a little off."""

    def forward(self, x, mask):
        if not isinstance(mask, torch._subclasses.FakeTensor) and mask.all():
            return x.sum(1)
        return x.masked_fill(~mask, 0).sum(1) * 1.0001


def test_a_model_that_asks_whether_it_is_traced_is_recorded_as_it_runs():
    model, (x, mask) = AsksForFakes(), (torch.randn(2, 50), torch.ones(2, 50, dtype=torch.bool))
    with pytest.warns(TraceWarning, match="does not compute what the model computes"):
        traced = symbolic_trace(model, (x, mask))
    assert traced.meta["trace"].rung == "dynamic shapes, with data"
    assert_agree(traced, model, (torch.randn(5, 70), torch.ones(5, 70, dtype=torch.bool)))
    with pytest.raises(AssertionError, match="traced for"):
        traced(x, mask.logical_not())
    assert torch._subclasses.FakeTensor is FakeTensor


class Counts(nn.Module):
    """Reads a number from a buffer that it writes, in one of several ways."""

    def __init__(self, count):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.norm, self.counted = nn.BatchNorm1d(4), count

    def forward(self, x):
        return x * self.counted(self, x)


def counted_before(model, x):
    count = int(model.count)
    model.count += 1
    return count


def counted_after(model, x):
    with torch.no_grad():
        model.count += 1
    return int(model.count)


def counted_elsewhere(model, x):
    count = int(model.count)
    model.count = model.count + 1
    return count


def counted_in_data(model, x):
    count = int(model.count)
    model.count.data += 1
    return count


def count_assigned(model, x):
    count = int(model.count)
    model.count.data = torch.tensor(count + 1)
    return count


def counted_by_a_leaf(model, x):
    count = int(model.norm.num_batches_tracked)
    model.norm(x)
    return count


@pytest.mark.parametrize(
    "count",
    [counted_before, counted_after, counted_elsewhere, counted_in_data, count_assigned, counted_by_a_leaf],
)
def test_a_number_read_from_a_buffer_that_the_model_writes_is_data(count):
    x = torch.randn(3, 4)
    traced, model = symbolic_trace(Counts(count), x), Counts(count)
    assert traced.meta["trace"].rung == DYNAMIC
    for _ in range(3):
        assert torch.equal(traced(x), model(x))


def test_a_model_that_counts_and_does_the_same_in_both_modes_runs_in_both():
    def counted_in_each_mode(model, x):
        shift = {True: x.sum, False: x.sum}[model.training]()
        return counted_before(model, x) + shift

    x = torch.randn(3, 4)
    traced, model = symbolic_trace(Counts(counted_in_each_mode), x, check=False), Counts(counted_in_each_mode)
    assert torch.equal(traced.eval()(x), model.eval()(x))
    assert torch.equal(traced.train()(x), model.train()(x))


def test_a_flag_that_the_model_sets_is_checked():
    def once(model, x):
        if not model.count:
            model.count.fill_(1)
            return 2
        return 1

    x = torch.randn(3, 4)
    traced = traced_with_warning(Counts(once), x)
    assert torch.equal(traced(x), 2 * x)
    with pytest.raises(AssertionError, match="decided at"):
        traced(x)
