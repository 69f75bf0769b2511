"""RewritePass: all or nothing, and reversal after others have changed the module in between."""

import copy
import gc
import operator
import weakref
from dataclasses import dataclass

import pytest
import torch
from exactness import COPIES, Allocations, assert_is, snapshot, traced
from torch import fx, nn

from fxlab import (
    DeepCopy,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    RemoveDeadCode,
    Session,
    TransformationError,
    compose,
    from_callable,
)
from fxlab.base.reasons import Refusal
from fxlab.models.graph_modules.parts import RequireApart
from fxlab.rewriting import only_input, operator_of
from fxlab.transformations import RewritePass


class Attention(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x):
        return self.query(x) * self.key(x) / 3 + self.value(x)


@dataclass(frozen=True)
class Sum:
    node: fx.Node

    @property
    def nodes(self):
        return (self.node,)


@dataclass(frozen=True)
class AddConstant(RewritePass[Sum]):
    """Add a constant to every result of an addition, but for those of some names."""

    constant: float = 1.0
    refused: tuple[str, ...] = ()
    fails_on: str = ""

    preserves_computation = False

    def match(self, facts):
        for node in facts.graph_module.graph.find_nodes(op="call_function", target=operator.add):
            yield Sum(node)

    def refuse(self, candidate, facts):
        listed = Refusal("listed", "its name is on the list")
        return listed if candidate.node.name in self.refused else None

    def describe(self, candidate):
        return f"{self.constant} is added"

    def rewrite(self, candidate, edit):
        node = candidate.node
        total = edit.insert_before(node, "call_function", operator.add, node.args, name="total")
        edit.change(node, target=torch.add, args=(total, self.constant))
        if node.name == self.fails_on:
            raise KeyError("on purpose")
        return node


class Sums(nn.Module):
    def forward(self, x):
        return (x + 1) * (x + 2) * (x + 3)


def node_named(gm, name):
    return next(node for node in gm.graph.nodes if node.name == name)


def names(nodes):
    return [node.name for node in nodes]


# Applying


def test_every_candidate_that_is_not_refused_is_rewritten_and_marked():
    gm = traced(Sums())
    before = snapshot(gm)
    pass_ = AddConstant(10.0, refused=("add_1",))
    assert names(pass_.get_transformed_nodes(pass_(gm))) == ["add", "add_2"]
    assert gm(torch.tensor(0.0)) == 11 * 2 * 13
    assert_is(pass_(gm, reverse=True), before)


def test_explain_tells_of_each_candidate_and_changes_nothing():
    gm = traced(Sums())
    before = snapshot(gm)
    frame = AddConstant(10.0, refused=("add_1",)).explain(gm)
    assert frame.reset_index().to_dict("list") == {
        "node": ["add", "add_1", "add_2"],
        "matched": [True, False, True],
        "reason": ["10.0 is added", "its name is on the list", "10.0 is added"],
        "code": ["", "listed", ""],
        "candidate": [0, 1, 2],
    }
    assert_is(gm, before)


@pytest.mark.parametrize("fails_on", ["add", "add_1", "add_2"])
def test_a_candidate_that_fails_leaves_the_module_as_it_was(fails_on):
    gm = traced(Sums())
    before = snapshot(gm)
    with pytest.raises(KeyError, match="on purpose"):
        AddConstant(fails_on=fails_on)(gm)
    assert_is(gm, before)


def test_a_candidate_that_fails_leaves_what_others_did():
    gm = AddConstant(refused=("add_1",))(traced(Sums()))
    after = snapshot(gm)
    with pytest.raises(KeyError, match="on purpose"):
        AddConstant(fails_on="total_1")(gm)
    assert_is(gm, after)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("pass_", [MergeLinears(), FuseBiasInLinear()], ids=lambda pass_: pass_.name)
def test_what_is_made_without_gradients_can_be_trained(pass_, mode):
    gm = traced(Attention())
    with mode():
        pass_(gm)
    gm(torch.randn(2, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in gm.parameters())
    with mode():
        gm.double()
        pass_(gm, reverse=True)
    gm(torch.randn(2, 4).double()).sum().backward()


# Limiting


@pytest.mark.parametrize("limit", [AddConstant.only, AddConstant.exclude])
def test_unknown_candidates_are_named_with_those_there_are_and_nothing_is_changed(limit):
    gm = traced(Sums())
    before = snapshot(gm)
    message = r"add-constant has no candidate 'mul', 'x' .* Its candidates are: add, add_1, add_2\."
    with pytest.raises(ValueError, match=message):
        limit(AddConstant(), "add", "x", "mul")(gm)
    assert_is(gm, before)


def test_a_pass_with_an_init_of_its_own_is_limited():
    class Plain(AddConstant):
        def __init__(self, amount):
            object.__setattr__(self, "constant", amount)

    gm = traced(Sums())
    limited = Plain(5.0).only("add_1")
    assert names(limited.get_transformed_nodes(limited(gm))) == ["add_1"]
    assert gm(torch.tensor(0.0)) == 1 * 7 * 3


def test_passes_that_do_not_tell_their_candidates_apart_cannot_be_limited():
    opaque = from_callable(lambda gm: gm, name="opaque")
    for pass_ in (opaque, compose(MergeLinears(), opaque), DeepCopy()):
        for limit in (pass_.only, pass_.exclude):
            with pytest.raises(TypeError, match=rf"{pass_.name} cannot be limited .* only a .*RewritePass"):
                limit("add")
    with pytest.raises(TypeError, match="Expected nodes or their names, got int"):
        MergeLinears().only(3)


def test_what_only_a_left_out_dead_node_reads_stays():
    class Unused(nn.Module):
        def forward(self, x):
            x.relu().sum()
            return x.cos()

    gm = traced(Unused())
    before = snapshot(gm)
    remove = RemoveDeadCode().exclude("sum_1")
    assert names(remove(gm).graph.nodes) == ["x", "relu", "sum_1", "cos", "output"]
    assert_is(remove(gm, reverse=True), before)


# Reversing after others have changed the module


class ReadsWeights(Attention):
    def forward(self, x):
        layers = self.query, self.key, self.value
        return sum(nn.functional.linear(x, each.weight, each.bias) for each in layers)


@pytest.mark.parametrize(
    ("model", "behind", "call", "reason"),
    [
        (
            *(Attention(), "query_key_value_merged"),
            *(lambda graph, merged: graph.call_method("sum", (merged,)), "'sum_1'"),
        ),
        (Attention(), "x", lambda graph, x: graph.call_module("query_key_value_merged", (x,)), ""),
        (ReadsWeights(), "x", lambda graph, x: graph.get_attr("query_key_value_merged.weight"), ""),
    ],
    ids=["reads the merged result", "calls the merged module", "reads the merged weight"],
)
def test_a_node_that_needs_what_was_merged_stands_in_the_way(model, behind, call, reason):
    gm = MergeLinears()(traced(model))
    node = node_named(gm, behind)
    with gm.graph.inserting_after(node):
        made = call(gm.graph, node)
    gm.graph.output_node().args = ((gm.graph.output_node().args[0], made),)
    gm.recompile()
    after = snapshot(gm)
    message = f"'query_key_value_merged' cannot be taken back, because {reason}"
    with pytest.raises(ValueError, match=message):
        MergeLinears()(gm, reverse=True)
    assert_is(gm, after)


def test_a_module_that_has_lost_what_reversing_needs_says_so():
    gm = MergeLinears()(traced(Attention()))
    other = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    after = snapshot(other)
    with pytest.raises(ValueError, match="has lost what reversing needs"):
        MergeLinears()(other, reverse=True)
    assert_is(other, after)


def test_a_mark_taken_off_by_hand_does_not_keep_reversal_from_working():
    gm = traced(Attention())
    before = snapshot(gm)
    merge = MergeLinears()
    merge.mark_as_restored(merge.get_transformed_nodes(merge(gm))[0])
    assert_is(merge(gm, reverse=True), before)


# What is done to the modules in between


class Block(nn.Module):
    """Something for each pass that replaces modules."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.query, self.key = nn.Linear(5, 4), nn.Linear(5, 4)
        self.eval()

    def forward(self, x):
        x = self.norm(self.conv(x))
        return self.query(x) * self.key(x)


REPLACING = (FuseBatchNorm2dInConv2d(), MergeLinears(), FuseBiasInLinear())


@pytest.mark.parametrize(
    "treat",
    [
        lambda m: m.requires_grad_(False),
        lambda m: m.train(),
        lambda m: m.double(),
        lambda m: m.half(),
        lambda m: m.to("meta"),
        lambda m: m.double().requires_grad_(False).train(),
    ],
)
def test_modes_casts_and_devices_are_brought_back(treat):
    gm = traced(Block())
    expected = treat(copy.deepcopy(gm))
    tensors = dict(gm.state_dict(keep_vars=True))
    for pass_ in REPLACING:
        pass_(gm)
    treat(gm)
    for pass_ in REPLACING:
        pass_(gm, reverse=True)
    assert [(name, m.training) for name, m in gm.named_modules()] == [
        (name, m.training) for name, m in expected.named_modules()
    ]
    for (name, tensor), other in zip(
        gm.state_dict(keep_vars=True).items(), expected.state_dict(keep_vars=True).values(), strict=True
    ):
        assert (tensor.dtype, tensor.device, tensor.requires_grad) == (
            other.dtype,
            other.device,
            other.requires_grad,
        )
        assert tensor.is_meta or torch.equal(tensor, other)
        assert not isinstance(tensor, nn.Parameter) or tensor is tensors[name] or tensor.is_meta


def test_a_pass_that_cannot_bring_values_back_says_so():
    @dataclass(frozen=True)
    class Forgetful(FuseBiasInLinear):
        update_originals = RewritePass.update_originals

    gm = Forgetful()(traced(nn.Sequential(nn.Linear(4, 4))))
    with torch.no_grad():
        gm.get_submodule("0").weight.add_(1)
    with pytest.warns(UserWarning, match="forgetful cannot bring what was written to a Linear back"):
        Forgetful()(gm, reverse=True)


# Memory


def test_merging_takes_no_more_memory_than_the_merged_weights():
    gm = traced(Attention(size=64))
    merged_bytes = sum(parameter.nbytes for parameter in gm.parameters())
    with Allocations() as allocations:
        MergeLinears()(gm)
    assert merged_bytes <= allocations.bytes <= 1.1 * merged_bytes
    with Allocations() as allocations:
        MergeLinears()(gm, reverse=True)
    assert allocations.bytes < 0.1 * merged_bytes


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize(
    "pass_",
    [MergeLinears(), pytest.param(FuseBiasInLinear(), marks=pytest.mark.weekly)],
    ids=lambda pass_: pass_.name,
)
def test_nothing_is_kept_after_reversing(pass_):
    gm = pass_(traced(Attention()))
    (node, *_) = pass_.get_transformed_nodes(gm)
    module = weakref.ref(gm.get_submodule(node.target))
    pass_(gm, reverse=True)
    assert gm.meta == {}
    del node
    gc.collect()
    assert module() is None


# Inputs that share memory with the model


class Updates(nn.Module):
    """Writes its second input between layers that read the first."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, cache):
        scale = cache.mul_(2)
        return self.query(x) + self.key(x) * scale


@pytest.mark.parametrize("kind", ["itself", *COPIES])
def test_a_graph_refuses_to_write_what_a_pass_has_made_weights_of(kind):
    gm = MergeLinears()(traced(Updates()))
    gm = gm if kind == "itself" else COPIES[kind](gm)
    gm(torch.ones(4, 4), torch.ones(4, 4))
    (check,) = [module for module in gm.modules() if isinstance(module, RequireApart)]
    weights = {path: module.weight for path, module in check._holders}
    assert weights.keys() == {"query", "key"}
    before = weights["query"].clone()
    with torch.no_grad(), pytest.raises(AssertionError, match=r"merge-linears .* cache, .* query\.weight"):
        gm(torch.ones(4, 4), weights["query"][:])
    assert torch.equal(weights["query"], before)


def is_relu(node):
    called = None if node is None else operator_of(node)
    return called is not None and called.computes == "relu"


class RemoveSecondReLU(RewritePass):
    """Let the users of a second relu read the first one, which may have others."""

    def match(self, facts):
        yield from [
            node for node in facts.graph_module.graph.nodes if is_relu(node) and is_relu(only_input(node))
        ]

    def rewrite(self, node, edit):
        inner = only_input(node)
        edit.erase(node, pass_on_to=inner)
        return inner


@dataclass(frozen=True)
class InsertTanh(RewritePass):
    """Replace each relu by a new node that reads its input."""

    fails: bool = False

    preserves_computation = False

    def match(self, facts):
        yield from [node for node in facts.graph_module.graph.nodes if is_relu(node)]

    def rewrite(self, node, edit):
        if self.fails and any(user.op == "output" for user in node.users):
            raise KeyError("on purpose")
        new = edit.insert_before(node, "call_function", torch.tanh, node.args)
        edit.erase(node, pass_on_to=new)
        return new


def reads_both(x):
    inner = x.relu()
    return torch.relu(inner) + inner


def reads_first(x):
    inner = x.relu()
    return torch.relu(inner).sin() * inner.exp()


def reads_several(x):
    inner = x.relu()
    return inner.relu().relu() + inner.relu()


@pytest.mark.parametrize("function", [reads_both, reads_first, reads_several])
def test_users_of_an_erased_node_and_of_the_one_they_read_instead_are_told_apart(function):
    graph_module = fx.symbolic_trace(function)
    before, remove = graph_module.code, RemoveSecondReLU()
    changed = remove(graph_module)
    assert changed.code != before
    assert remove(changed, reverse=True).code == before


def test_nodes_erased_for_new_ones_come_back():
    graph_module = fx.symbolic_trace(lambda x: x.relu().relu().relu())
    before, insert = graph_module.code, InsertTanh()
    insert(graph_module)
    assert "relu" not in graph_module.code
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        added = graph_module.graph.call_function(torch.sin, output.args)
    output.args = (added,)
    insert(graph_module, reverse=True)
    names = [node.name for node in graph_module.graph.nodes]
    assert names == ["x", "relu", "relu_1", "relu_2", "sin", "output"]
    output.args = added.args
    graph_module.graph.erase_node(added)
    graph_module.recompile()
    assert graph_module.code == before


def test_a_pass_that_fails_behind_erased_nodes_leaves_the_module_as_it_was():
    graph_module = fx.symbolic_trace(lambda x: x.relu().relu().relu())
    before = [node.format_node() for node in graph_module.graph.nodes]
    with pytest.raises(KeyError, match="on purpose"):
        InsertTanh(fails=True)(graph_module)
    assert [node.format_node() for node in graph_module.graph.nodes] == before


@dataclass(frozen=True)
class Returns(RewritePass):
    """A pass with given results of its steps."""

    matched: object = None
    marked: object = None

    def match(self, facts):
        yield (
            facts.graph_module.graph.find_nodes(op="call_method")[0] if self.matched is None else self.matched
        )

    def rewrite(self, candidate, edit):
        edit.change(candidate, target="relu")
        return self.marked


def test_a_rewrite_without_nodes_to_mark_may_return_nothing():
    graph_module = fx.symbolic_trace(lambda x: x.sin())
    changed = Returns()(graph_module)
    assert "relu" in changed.code
    assert "sin" in Returns()(changed, reverse=True).code


@pytest.mark.parametrize(
    ("pass_", "error", "message"),
    [
        (Returns(marked=5), TypeError, r"returns.rewrite: expected nodes to mark \(one, or a tuple\), got 5"),
        (Returns(marked=("sin",)), TypeError, "returns.rewrite: expected nodes to mark .*, got a tuple"),
        (Returns(matched=5), TypeError, "match: expected nodes, or objects with nodes .*, got 5"),
        (Returns(matched=()), ValueError, "match: expected a candidate of one node or more"),
    ],
)
def test_steps_with_other_results_are_named(pass_, error, message):
    graph_module = fx.symbolic_trace(lambda x: x.sin())
    with pytest.raises(error, match=message):
        pass_(graph_module)
    assert "sin" in graph_module.code


@dataclass(frozen=True)
class ByHand(RewritePass):
    """Change a graph without the editor."""

    change: object

    def match(self, facts):
        yield facts.graph_module.graph.find_nodes(op="call_method", target="sin")[0]

    def rewrite(self, node, edit):
        edit.change(node.next, target="exp")
        self.change(node)
        return node.next


def retarget(node):
    node.target = "cos"


def rewire(node):
    node.args = (node.graph.find_nodes(op="placeholder")[1],)


def insert(node):
    with node.graph.inserting_before(node):
        node.graph.call_function(torch.neg, node.args)


def erase(node):
    node.next.args = node.args
    node.graph.erase_node(node)


@pytest.mark.parametrize("change", [retarget, rewire, insert, erase])
def test_changes_without_the_editor_are_refused(change):
    graph_module = fx.symbolic_trace(lambda x, y: x.sin().cos() + y)
    with pytest.raises(TypeError, match="expected changes through the editor, got a change of"):
        ByHand(change)(graph_module)
    session = Session(fx.symbolic_trace(lambda x, y: x.sin().cos() + y))
    with pytest.raises(TransformationError, match="without it"):
        session.apply(ByHand(change))
    assert session.graph_module is session.original


def test_a_match_that_returns_no_candidates_is_refused():
    class Forgets(RewritePass):
        def match(self, facts):
            return None

        def rewrite(self, candidate, edit):
            return candidate

    graph_module = fx.symbolic_trace(lambda x: x + 1)
    for ask in (Forgets().candidates, Forgets().explain, Forgets().attempts, Forgets()):
        with pytest.raises(TypeError, match="match: expected an iterator of candidates, got None"):
            ask(graph_module)


class Last(RewritePass[fx.Node]):
    """Moves a call to the end of the graph."""

    def match(self, facts):
        yield from facts.graph_module.graph.find_nodes(op="call_function", target=torch.sin)

    def rewrite(self, candidate, edit):
        edit.move([candidate], edit.graph_module.graph.output_node())
        return candidate


def test_moved_nodes_go_back_to_their_places():
    def names(gm):
        return [node.name for node in gm.graph.nodes]

    gm = fx.symbolic_trace(lambda x: (torch.sin(x), torch.cos(x)))
    before = names(gm)
    assert names(Last()(gm)) == ["x", "cos", "sin", "output"]
    assert names(Last()(gm, reverse=True)) == before
