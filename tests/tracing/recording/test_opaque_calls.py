"""Parts that loop over sizes or read numbers stay whole, so that the graph holds for other inputs too."""

import copy
import io
import pickle
import re
import warnings

import pytest
import torch
from torch import nn

import fxlab
from fxlab import TraceWarning
from fxlab.tracing.report import DYNAMIC, WHOLE
from fxlab.values.tensors import same_bits


def scan(x: torch.Tensor, decay: torch.Tensor, state: torch.Tensor | None = None):
    """Go through the time steps, one by one."""
    state = torch.zeros_like(x[:, 0]) if state is None else state
    outputs = []
    for step in range(x.shape[1]):
        state = state * decay + x[:, step]
        outputs.append(state)
    return torch.stack(outputs, 1), state


scan_by_another_name = scan


def positions(lengths: torch.Tensor, *, options: dict | None = None) -> torch.Tensor:
    if options is not None and "positions" in options:
        return options.pop("positions")
    return torch.cat([torch.arange(n) for n in lengths.tolist()])


def described(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    parts = [x[i] for i in range(x.shape[0])]
    return torch.stack(parts), "a text"


def written(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    for row in range(into.shape[0]):
        into[row] += x.sum()
    return x + 1


def stretched(x: torch.Tensor) -> torch.Tensor:
    """Give each row a length that takes many operations to compute."""
    length = x.shape[1]
    for divisor in range(2, 9):
        length = length + length // divisor
    return x.sum(1, keepdim=True).expand(-1, length)


class Stretched(nn.Module):
    def forward(self, x):
        return stretched(x) * 2


class StretchedImages(nn.Module):
    def forward(self, images):
        return stretched(images[:, 0, :, 0]) * 2


class Recurrent(nn.Module):
    def __init__(self, call=scan) -> None:
        super().__init__()
        self.call = call
        self.before, self.after = nn.Linear(4, 6), nn.Linear(6, 3)
        self.decay = nn.Parameter(torch.rand(6))

    def forward(self, x):
        hidden, state = self.call(self.before(x), self.decay)
        hidden += 1
        return self.after(hidden), state


class Chunks(nn.Module):
    """As attention over packed images: each chunk by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(4, 4)

    def forward(self, x, lengths):
        return torch.cat([chunk - chunk.mean(0) for chunk in self.weight(x).split(lengths.tolist())])


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 4)
        self.blocks = nn.ModuleList([Chunks(), Chunks()])
        self.head = nn.Linear(4, 2)

    def forward(self, x, lengths, **options):
        x = x + self.embed(positions(lengths, options=options))
        for block in self.blocks:
            x = x + block(x, lengths)
        return self.head(x)


class Calls(nn.Module):
    """Calls a function inside of a module inside of the model."""

    class Inner(nn.Module):
        def __init__(self, function) -> None:
            super().__init__()
            self.function = function

        def forward(self, x, *more):
            return self.function(x, *more)[0]

    def __init__(self, function) -> None:
        super().__init__()
        self.inner = Calls.Inner(function)

    def forward(self, x, *more):
        return self.inner(x * 2, *more) + 1


def traced_quietly(model: nn.Module, *inputs: torch.Tensor, **options) -> torch.fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return fxlab.symbolic_trace(model.eval(), inputs, **{"check": False} | options)


def called(traced: torch.fx.GraphModule, target) -> list[torch.fx.Node]:
    return [node for node in traced.graph.nodes if node.target == target]


@pytest.mark.parametrize("call", [scan, scan_by_another_name], ids=["by its name", "by another"])
def test_a_function_that_goes_through_a_size_is_one_node(call):
    model = Recurrent(call)
    with pytest.warns(TraceWarning, match="parts kept whole"):
        traced = fxlab.symbolic_trace(model.eval(), (torch.randn(2, 5, 4),))
    assert traced.meta["trace"].rung == WHOLE
    assert len(called(traced, scan)) == 1
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["before", "after"]
    for batch, steps in [(2, 5), (3, 9), (1, 1), (4, 2)]:
        x = torch.randn(batch, steps, 4)
        for ours, theirs in zip(traced(x), model(x), strict=True):
            assert same_bits(ours, theirs)


@pytest.mark.slow
def test_what_stays_whole_is_in_the_report_with_its_line():
    traced = traced_quietly(Packed(), torch.randn(7, 4), torch.tensor([3, 4]))
    kept = traced.meta["trace"].of_kind("kept whole")
    assert [finding.what for finding in kept] == ["positions", "blocks.0 (Chunks)", "blocks.1 (Chunks)"]
    assert all(re.search(r"test_opaque_calls\.py:\d+", finding.where) for finding in kept)


def test_modules_that_take_numbers_out_of_tensors_are_one_node_each():
    model = Packed()
    traced = traced_quietly(model, torch.randn(7, 4), torch.tensor([3, 4]))
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert called == ["embed", "blocks.0", "blocks.1", "head"]
    assert traced.get_submodule("blocks.0") is model.blocks[0]
    for lengths in ([3, 4], [4, 3], [1, 2, 4], [9], [2, 2, 2, 2]):
        x = torch.randn(sum(lengths), 4)
        assert same_bits(traced(x, torch.tensor(lengths)), model(x, torch.tensor(lengths)))


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_what_makes_sizes_too_complicated_is_one_node():
    traced = fxlab.symbolic_trace(Stretched(), torch.randn(2, 12))
    report = traced.meta["trace"]
    assert report.rung == WHOLE
    assert "operations to compute" in report.steps_down[0]
    assert len([node for node in traced.graph.nodes if node.target is stretched]) == 1
    for shape in ((2, 12), (3, 200)):
        x = torch.randn(shape)
        assert same_bits(traced(x), Stretched()(x))


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_heights_that_make_sizes_too_complicated_are_fixed_before_anything_is_one_node():
    traced = fxlab.symbolic_trace(StretchedImages(), torch.randn(2, 3, 12, 12))
    assert traced.meta["trace"].rung == DYNAMIC
    assert not traced.meta["trace"].steps_down
    images = torch.randn(5, 3, 12, 12)
    assert same_bits(traced(images), StretchedImages()(images))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(2, 3, 24, 12))


def test_what_gives_what_a_graph_cannot_hold_leaves_that_to_the_module_around_it():
    model = Calls(described)
    traced = traced_quietly(model, torch.randn(3, 2), check=True)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["inner"]
    x = torch.randn(6, 2)
    assert same_bits(traced(x), model(x))


def test_what_a_part_writes_is_written_by_the_graph():
    class Writing(nn.Module):
        def forward(self, x, into):
            into = into.clone()
            return written(x, into), into

    model = Writing()
    traced = traced_quietly(model, torch.randn(2, 3), torch.zeros(4, 1), check=True)
    assert len(called(traced, written)) == 1
    x, into = torch.randn(5, 3), torch.ones(6, 1)
    for ours, theirs in zip(traced(x, into), model(x, into), strict=True):
        assert same_bits(ours, theirs)


def test_a_part_that_gives_something_else_for_other_inputs_is_refused():
    model = Calls(fickle)
    traced = traced_quietly(model, torch.randn(3, 2), check=True)
    assert same_bits(traced(torch.ones(5, 2)), model(torch.ones(5, 2)))
    with pytest.raises(AssertionError, match="traced for fickle giving"):
        traced(torch.ones(20, 2))
    traced.graph.eliminate_dead_code()
    traced.recompile()
    with pytest.raises(AssertionError, match="traced for fickle giving"):
        traced(torch.ones(20, 2))


def fickle(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    rows = [x[i] for i in range(x.shape[0])]
    return torch.stack(rows), None if len(rows) < 10 else x


def test_a_graph_with_parts_kept_whole_is_copied_and_saved():
    model = Packed()
    traced = traced_quietly(model, torch.randn(7, 4), torch.tensor([3, 4]))
    saved = io.BytesIO()
    torch.save(traced, saved)
    saved.seek(0)
    x, lengths = torch.randn(6, 4), torch.tensor([1, 5])
    for other in (
        copy.deepcopy(traced),
        pickle.loads(pickle.dumps(traced)),
        torch.load(saved, weights_only=False),
    ):
        assert same_bits(other(x, lengths), model(x, lengths))


@pytest.mark.parametrize("inputs", [(torch.randn(2, 5, 4),), (torch.randn(2, 5, 3),)], ids=["right", "wrong"])
def test_functions_are_as_they_were_afterwards(inputs):
    code = scan.__code__
    try:
        traced_quietly(Recurrent(), *inputs)
    except Exception:
        assert inputs[0].shape[-1] == 3
    assert scan.__code__ is code
    assert scan(torch.ones(1, 3, 6), torch.ones(6))[1].sum() == 18


class Numbered(nn.Module):
    """Numbers positions by a method that loops, as models of text and images do."""

    def __init__(self, uses: str = "", width: int = 4):
        super().__init__()
        self.uses, self.offset = uses, 3
        self.linear = nn.Linear(width, width)

    def positions(self, lengths, extra=None):
        offset = self.offset
        if self.uses == "a parameter":
            offset = offset + self.linear.bias[0].detach()
        if self.uses == "a module, if it is there":
            offset += 0 if getattr(self, "linear", None) is None else 1
        if self.uses == "a list of its parameters":
            offset += len(list(self.parameters()))
        if self.uses == "an attribute that it writes":
            self.offset = 5
        return torch.cat([torch.arange(n) + offset for n in lengths.tolist()])

    def forward(self, x, lengths):
        return self.linear(x) + self.positions(lengths, extra=None)[:, None]


def test_a_method_that_needs_settings_only_is_one_node():
    model = Numbered()
    with pytest.warns(TraceWarning):
        traced = fxlab.symbolic_trace(model, (torch.randn(5, 4), torch.tensor([2, 3])))
    assert traced.meta["trace"].rung == WHOLE
    (node,) = (n for n in traced.graph.nodes if getattr(n.target, "name", "") == "positions")
    assert node.op == "call_function"
    assert [str(name) for name in node.kwargs] == ["extra"]
    expected = copy.deepcopy(model)
    model.offset = 100  # what the model is later does not reach the graph
    for lengths in ([4, 3], [1, 1, 1], [6]):
        x = torch.randn(sum(lengths), 4)
        assert same_bits(traced(x, torch.tensor(lengths)), expected(x, torch.tensor(lengths)))
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        x = torch.randn(7, 4)
        assert same_bits(other(x, torch.tensor([3, 4])), expected(x, torch.tensor([3, 4])))


class Pictures(nn.Module):
    """As a model of text and images, which has a method for the features of images."""

    def __init__(self, *, with_text: bool = True, joins: bool = False):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.register_buffer("shift", torch.rand(4))
        self.tower, self.text = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), nn.Linear(4, 4)
        self.with_text, self.joins = with_text, joins

    def features(self, x, lengths):
        x = self.tower(x).to(next(self.parameters()).dtype) * self.scale + self.shift
        x = x if self.with_text else self.text(x)
        parts = [part - part.mean(0) for part in x.split(lengths.tolist())]
        return torch.cat(parts) if self.joins else parts

    def forward(self, x, lengths):
        features = self.features(x, lengths)
        features = features if self.joins else torch.cat(features)
        return self.text(features) if self.with_text else features * 2


def test_a_method_is_given_the_modules_and_parameters_that_it_uses():
    model = Pictures()
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]))
    assert traced.meta["trace"].rung == WHOLE
    (node,) = (n for n in traced.graph.nodes if getattr(n.target, "name", "") == "features")
    given = node.args[0]
    assert {name: value.target for name, value in given.items()} == {
        name: name for name in ("scale", "shift", "tower")
    }
    assert traced.tower is model.tower
    assert traced.state_dict().keys() == model.state_dict().keys()
    x, lengths = torch.randn(7, 4), torch.tensor([4, 2, 1])
    for ours, theirs in [
        (traced, model),
        (copy.deepcopy(traced), model),
        (pickle.loads(pickle.dumps(traced)), model),
        (copy.deepcopy(traced).double(), copy.deepcopy(model).double()),
    ]:
        x = x.to(theirs.scale.dtype)
        assert same_bits(ours(x, lengths), theirs(x, lengths))
    ours = torch.autograd.grad(traced(x.float(), lengths).square().sum(), list(traced.parameters()))
    theirs = torch.autograd.grad(model(x.float(), lengths).square().sum(), list(model.parameters()))
    assert all(map(same_bits, ours, theirs))


def test_no_model_is_one_call_of_a_method_of_its_own():
    traced = traced_quietly(Pictures(with_text=False), torch.randn(5, 4), torch.tensor([2, 3]))
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["tower.0", "tower.1", "text"]


class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = Pictures(), nn.Linear(4, 4)

    def forward(self, x, lengths):
        return self.head(self.inner(x, lengths))


def test_a_module_inside_of_another_stays_whole_rather_than_its_method():
    model = Inside()
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]))
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["inner", "head"]
    x, lengths = torch.randn(7, 4), torch.tensor([4, 2, 1])
    assert same_bits(traced(x, lengths), model(x, lengths))


class Apiece(Pictures):
    """Kept whole in two parts, nothing would be left."""

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, lengths):
            return torch.cat([self.linear(part).cumsum(0) for part in x.split(lengths.tolist())])

    def __init__(self):
        super().__init__()
        self.text = Apiece.Text()

    def forward(self, x, lengths):
        return self.text(torch.cat(self.features(x, lengths)), lengths)


def test_no_model_is_a_method_and_modules_that_are_one_node_each():
    model = Apiece()
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]))
    x, lengths = torch.randn(5, 4), torch.tensor([1, 4])
    assert "tower.0" in [n.target for n in traced.graph.nodes if n.op == "call_module"]
    assert same_bits(traced(x, lengths), model(x, lengths))


class Decided(Pictures):
    """Decides on data in a method: how many items there are is not asked."""

    def features(self, x, lengths):
        return self.tower(x[: (lengths[0] / 2).__int__()]) + lengths[1].__int__()


def test_a_method_hides_no_modules_for_a_decision_on_data_alone():
    model = Decided(joins=True)
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([4, 3]))
    assert "tower.0" in [n.target for n in traced.graph.nodes if n.op == "call_module"]
    assert same_bits(
        traced(torch.ones(9, 4), torch.tensor([4, 3])), model(torch.ones(9, 4), torch.tensor([4, 3]))
    )
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.ones(9, 4), torch.tensor([8, 3]))


def test_passes_work_around_a_method_that_is_given_modules():
    traced = traced_quietly(Pictures(), torch.randn(5, 4), torch.tensor([2, 3]))
    session = fxlab.Session(traced, (torch.randn(7, 4), torch.tensor([3, 4])))
    for each in session.passes:
        session.apply(each)
    assert session.graph_module.text.bias is None  # merged into the weight
    assert str(session.verdict()).startswith(("same bits", "within"))
    session.revert()
    assert session.graph_module is session.original


class NormedElsewhere(Pictures):
    """Calls a layer before a batch norm, and in a method again."""

    def __init__(self):
        super().__init__()
        self.tower, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.norm.running_var.uniform_(1, 2)

    def forward(self, x, lengths):
        return super().forward(x, lengths) + self.norm(self.tower(x))


def test_no_pass_changes_a_module_that_a_method_is_given():
    traced = traced_quietly(NormedElsewhere(), torch.randn(5, 4), torch.tensor([2, 3]))
    assert [n.op for n in traced.graph.nodes if n.target == "tower"] == ["get_attr", "call_module"]
    found = fxlab.FuseBatchNorm1dInLinear().explain(traced)
    assert list(found["code"]) == ["called-repeatedly"]


class Output(dict):
    """As the outputs of transformers: a mapping whose items are attributes as well."""

    def __init__(self, **items):
        super().__init__(items)
        vars(self).update(items)


class Exchanged(nn.Module):
    """Puts something else into what a part has given, as models of text and images do."""

    class Tower(nn.Module):
        def forward(self, x, lengths):
            return Output(parts=[part - part.mean(0) for part in x.split(lengths.tolist())], whole=x)

    def __init__(self):
        super().__init__()
        self.tower = Exchanged.Tower()

    def forward(self, x, lengths):
        output = self.tower(x, lengths)
        whole, output["whole"] = output["whole"], output["parts"]
        return torch.cat(output["whole"]) + whole


def test_what_is_put_into_what_a_part_gives_is_not_what_it_gives():
    model = Exchanged()
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]))
    assert traced.meta["trace"].rung == WHOLE
    x, lengths = torch.randn(6, 4), torch.tensor([1, 2, 3])
    assert same_bits(traced(x, lengths), model(x, lengths))


class GivenAShape(nn.Module):
    def repeated(self, shape):
        return torch.cat([torch.full((1, shape[1]), float(row)) for row in range(shape[0])])

    def forward(self, x):
        return x.sum(-1) + self.repeated(x.shape[:-1])


def test_a_part_may_be_given_a_shape():
    traced = traced_quietly(GivenAShape(), torch.randn(2, 3, 4), check=True)
    assert traced.meta["trace"].rung == WHOLE
    x = torch.randn(5, 7, 4)
    assert same_bits(traced(x), GivenAShape()(x))


@pytest.mark.parametrize(
    "uses",
    ["a parameter", "a module, if it is there", "a list of its parameters", "an attribute that it writes"],
)
def test_a_method_that_needs_more_of_its_module_is_not_kept_whole(uses):
    model = Numbered(uses)
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]))
    assert not [n for n in traced.graph.nodes if getattr(n.target, "name", "") == "positions"]
    x = torch.randn(5, 4)
    assert same_bits(traced(x, torch.tensor([2, 3])), model(x, torch.tensor([2, 3])))


class Apart(nn.Module):
    """As a merger of packed images: a list with an item for each."""

    class Merger(nn.Module):
        def forward(self, x, lengths):
            return [chunk - chunk.mean(0) for chunk in x.split(lengths.tolist())]

    def __init__(self, join) -> None:
        super().__init__()
        self.merger, self.join = Apart.Merger(), join

    def forward(self, x, lengths):
        return self.join(self.merger(x * 2, lengths))


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("join", "items"),
    [(torch.cat, [2, 2]), (torch.cat, [4]), (torch.stack, [2, 2]), (lambda parts: parts, [2, 2])],
    ids=["cat", "cat of one", "stack", "as it is"],
)
def test_a_list_that_a_part_gives_may_have_any_number_of_items_until_it_is_read(join, items):
    model = Apart(join)
    traced = traced_quietly(model, torch.randn(sum(items), 4), torch.tensor(items))
    assert traced.meta["trace"].rung == WHOLE
    for lengths in ([3, 3], [2, 2, 2], [5], [1] * 6):
        x, lengths = torch.randn(sum(lengths), 4), torch.tensor(lengths)
        for ours, theirs in zip(traced(x, lengths), model(x, lengths), strict=True):
            assert same_bits(ours, theirs)


def as_many(x: torch.Tensor, lengths: torch.Tensor) -> list[int]:
    """Give numbers of rows by a loop that no graph holds."""
    return [int(n) + 0 * row for row, n in enumerate(lengths)]


class PartedByNumbers(nn.Module):
    """Takes rows apart by numbers that another part gives."""

    def __init__(self, joins) -> None:
        super().__init__()
        self.joins, self.numbers = joins, PartedByNumbers.Numbers()

    class Numbers(nn.Module):
        def forward(self, x, lengths):
            return as_many(x, lengths)

    def forward(self, x, lengths):
        parts = (x * 2).split(self.numbers(x, lengths))
        return torch.cat(parts) if self.joins else torch.cat([part.cumsum(0) for part in parts])


@pytest.mark.parametrize("joins", [True, False])
def test_a_list_of_numbers_that_a_part_gives_is_handed_on(joins):
    model = PartedByNumbers(joins)
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]), check=True)
    assert traced.meta["trace"].rung == WHOLE
    x = torch.randn(6, 4)
    assert same_bits(traced(x, torch.tensor([1, 5])), model(x, torch.tensor([1, 5])))
    if joins:
        assert same_bits(traced(x, torch.tensor([1, 3, 2])), model(x, torch.tensor([1, 3, 2])))
    else:
        with pytest.raises(AssertionError, match="traced for"):
            traced(x, torch.tensor([1, 3, 2]))


class Taking(nn.Module):
    """Takes a list apart in a module that is one node because the caller says so."""

    class Joined(nn.Module):
        def forward(self, parts):
            return torch.cat([part.cumsum(0) for part in parts])

    def __init__(self):
        super().__init__()
        self.merger, self.joined = Apart.Merger(), Taking.Joined()

    def forward(self, x, lengths):
        joined = self.joined(self.merger(x, lengths))
        return joined.new_ones(joined.shape) + joined


def test_a_named_leaf_reads_the_lists_that_it_is_given():
    model = Taking()
    traced = traced_quietly(model, torch.randn(5, 4), torch.tensor([2, 3]), leaf_modules=[Taking.Joined])
    x = torch.randn(5, 4)
    assert same_bits(traced(x, torch.tensor([1, 4])), model(x, torch.tensor([1, 4])))
    with pytest.raises(AssertionError, match="traced for Merger giving tensors"):
        traced(torch.randn(6, 4), torch.tensor([1, 3, 2]))


def test_another_number_of_items_is_refused_before_one_is_taken():
    model, x = Apart(lambda parts: torch.cat([part + 1 for part in parts])), torch.randn(5, 4)
    traced = traced_quietly(model, x, torch.tensor([2, 3]))
    assert traced.meta["trace"].rung == WHOLE
    lengths = torch.tensor([4, 1])
    assert same_bits(traced(x, lengths), model(x, lengths))
    for other in ([5], [2, 2, 1]):
        with pytest.raises(AssertionError, match="traced for Merger giving tensors"):
            traced(x, torch.tensor(other))


def padded(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Pad to whole chunks of four time steps."""
    missing = -x.shape[1] % 4
    if missing > 0:
        x = nn.functional.pad(x, (0, 0, 0, missing))
    return x, missing


def in_chunks(x: torch.Tensor) -> torch.Tensor:
    """Sum up within chunks of four time steps."""
    chunks, missing = padded(x)
    chunks = chunks.unflatten(1, (-1, 4)).cumsum(2).flatten(1, 2)
    return chunks[:, : x.shape[1]] if missing > 0 else chunks


class Chunked(nn.Module):
    def __init__(self, decides: bool) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(4, 6), nn.Linear(6, 3)
        self.decides = decides

    def forward(self, x):
        x = self.before(x)
        if not self.decides:
            return self.after(in_chunks(x))
        chunks, missing = padded(x)
        return self.after(chunks[:, :-missing] if missing > 0 else chunks)


@pytest.mark.slow
def test_lengths_of_every_remainder_are_right_where_a_function_pads_them():
    model = Chunked(decides=False)
    traced = traced_quietly(model, torch.randn(2, 6, 4))
    assert traced.meta["trace"].rung == WHOLE
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["before", "after"]
    for steps in (6, 8, 4, 13, 16, 3, 1):
        x = torch.randn(3, steps, 4)
        assert same_bits(traced(x), model(x))


def test_nothing_stays_whole_if_the_model_itself_decides_on_the_remainder_too():
    model = Chunked(decides=True)
    traced = traced_quietly(model, torch.randn(2, 6, 4))
    assert traced.meta["trace"].rung == DYNAMIC
    assert not traced.meta["trace"].of_kind("kept whole")
    x = torch.randn(3, 9, 4)
    assert same_bits(traced(x), model(x))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(3, 8, 4))
