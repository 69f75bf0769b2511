"""Functions that know nothing of fxlab, as transformations."""

import copy
import functools
import itertools
import pickle

import pytest
import torch
from exactness import COPIES, assert_close, assert_equals, assert_is, snapshot
from opaque_functions import (
    CHANGES,
    NO_CHANGES,
    add_module,
    change_a_setting,
    change_argument,
    everything,
    freeze,
    fuse_by_torch,
    insert,
    network,
    remove_dropout,
    reorder,
    replace_inside_a_leaf,
    replace_module,
    retarget,
    swap_arguments,
    write_weights,
)
from torch import fx, nn
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.shape_prop import ShapeProp

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    MergeLinears,
    Session,
    TransformationError,
    from_callable,
    from_exported,
    graph_diff,
)

X = torch.randn(2, 2, 3, 3)
changes = pytest.mark.parametrize("function", CHANGES, ids=lambda function: function.__name__)


def without_fxlab(function):
    """Return what a function makes of a network, and what that computes, or what is raised."""
    torch.manual_seed(0)
    gm = network()
    result = function(gm)
    gm = gm if result is None else getattr(result, "graph_module", result)
    gm.recompile()
    return outcome(gm)


def outcome(gm):
    torch.manual_seed(0)
    try:
        return copy.deepcopy(gm)(X)  # a copy, because norms in training mode note what they see
    except Exception as error:
        return type(error)


@pytest.mark.often(12)
@changes
def test_what_a_function_does_is_done_and_taken_back_exactly(function):
    expected = without_fxlab(function)
    torch.manual_seed(0)
    gm = network()
    before, code = snapshot(gm), gm.code
    transformation = from_callable(function)
    assert transformation(gm) is gm
    assert_close(outcome(gm), expected, 0.0)
    assert function is reorder or transformation.get_transformed_nodes(gm)
    assert transformation(gm, reverse=True) is gm
    assert_is(gm, before)
    assert gm.code == code
    assert transformation.get_transformed_nodes(gm) == []


@pytest.mark.parametrize("function", NO_CHANGES, ids=lambda function: function.__name__)
def test_a_function_that_changes_nothing_leaves_no_trace(function):
    gm = network()
    before = snapshot(gm)
    transformation = from_callable(function)
    assert transformation(gm) is gm
    assert_is(gm, before)
    assert not len(transformation.explain(gm))


@pytest.mark.often(12)
@changes
@pytest.mark.parametrize("kind", list(COPIES))
def test_a_copy_can_be_reversed(function, kind):
    gm = network()
    transformation = from_callable(function)
    before = snapshot(gm)
    transformation(gm)
    after = snapshot(gm)
    other = COPIES[kind](gm)
    assert_equals(other, after)
    transformation(other, reverse=True)
    assert_equals(other, before)
    assert_is(gm, after)


@pytest.mark.often(8)
@pytest.mark.slow
@changes
def test_explaining_changes_nothing_and_names_what_would_change(function):
    gm = network()
    before = snapshot(gm)
    transformation = from_callable(function)
    frame = transformation.explain(gm)
    assert_is(gm, before)
    names = {node.name for node in gm.graph.nodes}
    assert set(frame.index) <= names
    marked = {node.name for node in transformation.get_transformed_nodes(transformation(gm))}
    assert marked & names <= set(frame.index)


@pytest.mark.often(8)
@pytest.mark.slow
@changes
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=() if order[1] == 0 else pytest.mark.weekly)
        for order in itertools.permutations(range(3))
    ],
)
def test_it_is_reversed_among_others_in_any_order(function, order):
    torch.manual_seed(0)
    gm = network()
    before = snapshot(gm)
    transformation = from_callable(function)
    passes = [MergeLinears(), transformation, FuseBatchNorm2dInConv2d()]
    for pass_ in passes:
        pass_(gm)
    for index in order:
        passes[index](gm, reverse=True)
        assert passes[index].get_transformed_nodes(gm) == []
    assert_is(gm, before)


@pytest.mark.often(6)
@changes
def test_a_session_switches_it(function):
    gm = network()
    before = snapshot(gm)
    transformation = from_callable(function)
    session = Session(gm, (X,), passes=[MergeLinears(), transformation, ChangeTrueDivToMulByInverse()])
    for p in session.passes:
        session.apply(p)
    session.revert(transformation)
    session.revert(MergeLinears())
    session.apply(transformation)
    assert_is(session.original, before)
    session.revert()
    assert session.graph_module is session.original
    assert_is(session.original, before)


@pytest.mark.often(8)
@changes
def test_it_owns_up_to_all_that_it_changes(function):
    gm = network()
    before = copy.deepcopy(gm)
    transformation = from_callable(function)
    transformation(gm)
    assert graph_diff(before, gm)["marked"].all()


MARKED = {
    retarget: {"truediv"},
    change_argument: {"truediv"},
    swap_arguments: {"mul"},
    insert: {"tanh"},
    remove_dropout: {"attention"},
    replace_module: {"block_act"},
    replace_inside_a_leaf: {"attention"},
    change_a_setting: {"norm"},
    write_weights: {"head", "last"},
    freeze: {"head", "last"},
    add_module: {"block_extra"},
    fuse_by_torch: {"conv"},
}


@pytest.mark.parametrize("function", MARKED, ids=lambda function: function.__name__)
def test_marks_are_on_what_changed(function):
    gm = network()
    transformation = from_callable(function)
    transformation(gm)
    assert {node.name for node in transformation.get_transformed_nodes(gm)} == MARKED[function]


def test_what_is_equal_in_a_new_module_stays_the_object_that_it_was():
    gm = network()
    modules, parameters = dict(gm.named_modules()), dict(gm.named_parameters())
    from_callable(fuse_by_torch)(gm)
    kept = {name for name, module in gm.named_modules() if modules.get(name) is module}
    assert {"block", "block.query", "block.key", "block.act", "head"} <= kept
    assert "conv" not in kept
    assert all(gm.head.get_parameter(n) is parameters[f"head.{n}"] for n in ("bias",))
    assert gm.head.weight is gm.last.weight


def test_the_tensors_of_others_are_never_left_written():
    gm = network()
    weight = gm.head.weight
    bits = weight.detach().clone()
    from_callable(everything)(gm)
    assert gm.head.weight is not weight
    assert torch.equal(weight, bits)
    assert weight.requires_grad


def test_a_function_that_fails_leaves_the_module_as_it_was():
    def fails(gm):
        everything(gm)
        raise RuntimeError("halfway")

    gm = network()
    before = snapshot(gm)
    with pytest.raises(RuntimeError, match="halfway"):
        from_callable(fails)(gm)
    assert_is(gm, before)


def test_a_graph_that_is_broken_is_not_accepted():
    def breaks(gm):
        gm.delete_submodule("head")

    gm = network()
    before = snapshot(gm)
    with pytest.raises(RuntimeError, match="head"):
        from_callable(breaks)(gm)
    assert_is(gm, before)


def test_a_pass_below_one_that_was_lost_in_a_pickle_says_so():
    lost = from_callable(lambda gm: insert(gm))
    gm = network()
    before = snapshot(gm)
    merge = MergeLinears()
    other = COPIES["pickle"](lost(merge(gm)))
    with pytest.raises(ValueError, match="Reverse that one first"):
        merge(other, reverse=True)
    lost(other, reverse=True)
    assert_equals(merge(other, reverse=True), before)


def test_what_was_done_to_new_weights_is_not_dropped_silently():
    gm = network()
    transformation = from_callable(write_weights)
    transformation(gm)
    with torch.no_grad():
        gm.head.weight.add_(1)
    with pytest.warns(UserWarning, match="cannot bring"):
        transformation(gm, reverse=True)


def test_a_mode_set_in_between_stays():
    gm = network()
    transformation = from_callable(replace_module)
    transformation(gm).train()
    transformation(gm, reverse=True)
    assert all(module.training for module in gm.modules())


def test_it_is_described_by_the_function():
    def rounded(gm):
        """Round everything."""

    transformation = from_callable(rounded, preserves_computation=True)
    assert transformation.description == "Round everything."
    assert transformation.preserves_computation


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fuse", "expected a function, got a str"),
        (None, "expected a function, got a NoneType"),
        (nn.Linear, "expected a function, got the class Linear"),
        (MergeLinears(), "is a transformation already"),
    ],
)
def test_what_is_no_function_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        from_callable(given)


def test_a_function_that_returns_something_else_is_named():
    def describe(gm):
        return str(gm)

    gm = network()
    with pytest.raises(TypeError, match=r"describe must change the module.*returned a str"):
        from_callable(describe)(gm)


def eliminate_dead_code(gm):
    return gm.graph.eliminate_dead_code()


def replace_by_pattern(gm):
    return fx.replace_pattern(gm, lambda x: x.relu(), lambda x: x.sigmoid())


def count_changes(gm):
    return len(replace_by_pattern(gm))


def pass_result(gm):
    return PassResult(gm, bool(replace_by_pattern(gm)))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_a_result_that_does_more_than_its_graph_is_refused_and_its_graph_is_taken():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x * (self.a + self.b)

    def fold(gm):
        folded = split_const_subgraphs(gm)
        if is_folded:
            folded.run_folding()
        return fx.GraphModule(folded, folded.graph) if is_folded else folded

    session, is_folded = Session(Net(), torch.randn(2, 3)), False
    with pytest.raises(TransformationError, match="A FoldedGraphModule has a __call__ of its own"):
        session.apply(fold)
    is_folded = True
    session.apply(fold)
    assert [node.name for node in session.graph_module.graph.nodes][-2:] == ["mul", "output"]
    assert session.verdict().agrees
    session.revert(fold)
    assert session.graph_module is session.original


@pytest.mark.parametrize(
    "function",
    [eliminate_dead_code, replace_by_pattern, count_changes, pass_result],
    ids=lambda f: f.__name__,
)
def test_a_function_may_return_what_it_has_done(function):
    class Unused(nn.Module):
        def forward(self, x):
            x.tanh()
            return x.relu()

    gm = fx.symbolic_trace(Unused())
    before = snapshot(gm)
    transformation = from_callable(function)
    assert transformation(gm) is gm
    called = [node.target for node in gm.graph.find_nodes(op="call_method")]
    assert called == (["relu"] if function is eliminate_dead_code else ["tanh", "sigmoid"])
    assert_is(transformation(gm, reverse=True), before)
    assert transformation(transformation(gm)) is gm  # the second time there is nothing to do


def test_what_a_pass_writes_into_meta_alone_goes_when_it_is_reversed():
    def propagate(graph_module):
        ShapeProp(graph_module).propagate(torch.randn(2, 3))
        for node in graph_module.graph.nodes:
            node.meta.pop("stack_trace", None)

    graph_module = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    for node in graph_module.graph.nodes:
        node.meta["stack_trace"] = "model.py:1"
    before = {node.name: dict(node.meta) for node in graph_module.graph.nodes}
    shapes = from_callable(propagate)
    applied = shapes(graph_module)
    assert all("tensor_meta" in node.meta for node in applied.graph.nodes)
    restored = shapes(applied, reverse=True)
    assert {node.name: dict(node.meta) for node in restored.graph.nodes} == before


def count(graph_module):
    for node in graph_module.graph.nodes:
        node.meta["count"] = node.meta.get("count", 0) + 1
    graph_module.meta["count"] = graph_module.meta.get("count", 0) + 1
    graph_module.meta["seen"] = [*graph_module.meta.get("seen", []), "again"]


def test_metadata_that_a_pass_changes_is_seen_by_the_next_one_and_comes_back():
    graph_module = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    first, second = from_callable(count, name="first"), from_callable(count, name="second")
    for transformation in (first, second):
        transformation(graph_module)
    assert {node.meta["count"] for node in graph_module.graph.nodes} == {graph_module.meta["count"]} == {2}
    assert graph_module.meta["seen"] == ["again"] * 2
    second(graph_module, reverse=True)
    assert {node.meta["count"] for node in graph_module.graph.nodes} == {graph_module.meta["count"]} == {1}
    first(graph_module, reverse=True)
    assert not graph_module.meta
    assert not any("count" in node.meta for node in graph_module.graph.nodes)


def test_metadata_that_cannot_be_pickled_does_not_keep_a_copy_from_being_reversed():
    def change(graph_module):
        graph_module.meta["function"] = None
        retarget(graph_module)

    graph_module = network()
    before, graph_module.meta["function"] = graph_module.code, lambda: 1
    changed = from_callable(change)(graph_module)
    restored = from_callable(change)(pickle.loads(pickle.dumps(changed)), reverse=True)
    assert changed.code != before == restored.code
    assert "function" not in restored.meta


def to_clamp(graph):
    for node in graph.nodes:
        if node.target in (torch.relu, torch.ops.aten.relu.default):
            node.target, node.args = torch.ops.aten.clamp_min.default, (node.args[0], 0)


def with_inputs(graph_module, example_inputs):
    assert [each.shape for each in example_inputs] == [(2, 4)]
    to_clamp(graph_module.graph)


def of_graph(graph: fx.Graph) -> None:
    to_clamp(graph)


class ByCall(PassBase):
    def call(self, graph_module):
        to_clamp(graph_module.graph)
        return PassResult(graph_module, True)


def of_inductor():
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class OfGraph(CustomGraphPass):
        def __call__(self, graph):
            to_clamp(graph)

        def uuid(self):
            return b"1"

    return OfGraph()


def pattern_matcher():
    from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

    patterns = PatternMatcherPass("relus")
    register_replacement(
        lambda x: torch.relu(x) * 2,
        lambda x: torch.clamp_min(x, 0) * 2,
        [torch.ones(2, 4)],
        fwd_only,
        patterns,
    )
    return patterns


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's, when Inductor is imported
@pytest.mark.parametrize(
    "make", [lambda: with_inputs, lambda: of_graph, ByCall, of_inductor, pattern_matcher], ids=range(5)
)
def test_passes_of_other_projects_are_taken_as_they_are(make):
    class Model(nn.Module):
        def forward(self, x):
            return torch.relu(x) * 2

    x = torch.randn(2, 4)
    session = Session(from_exported(torch.export.export(Model(), (x,)).run_decompositions()), (x,))
    session.apply(make())
    (applied,) = session.applied
    marked = applied.get_transformed_nodes(session.graph_module)
    assert str(marked[0].target) == "aten.clamp_min.default"
    assert session.verdict().agrees
    session.revert(applied)
    assert session.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)


def test_example_inputs_that_are_bound_stay_and_unknown_ones_are_asked_for():
    gm = fx.symbolic_trace(lambda x: torch.relu(x))
    bound = functools.partial(with_inputs, example_inputs=[torch.ones(2, 4)])
    assert "clamp_min" in from_callable(bound, name="bound")(copy.deepcopy(gm)).code
    with pytest.raises(ValueError, match=r"shapes of the graph are unknown.*symbolic_trace"):
        from_callable(with_inputs)(gm)


def leave_alone(graph_module):
    return graph_module


def rename_nothing(graph_module):
    return fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))


class ReadsItsMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.norm(self.linear(x))
        return y * 2 if self.norm.training else y


@pytest.mark.parametrize("function", [leave_alone, rename_nothing], ids=["left alone", "another module"])
@pytest.mark.parametrize("folded", [False, True], ids=["traced", "folded"])
def test_checks_of_modes_are_what_they_were(function, folded):
    graph_module = fxlab.symbolic_trace(ReadsItsMode().eval(), torch.randn(3, 4))
    if folded:
        graph_module = fxlab.FuseBatchNorm1dInLinear()(graph_module)
    before = dict(graph_module.named_modules())
    applied = from_callable(function)
    after = applied(graph_module)
    assert dict(after.named_modules()) == before
    assert applied.get_transformed_nodes(after) == []
    after.train()
    with pytest.raises(AssertionError, match="for evaluation mode"):
        after(torch.randn(3, 4))


def test_a_check_follows_the_modules_that_a_function_leaves():
    def exchange(graph_module):
        graph_module.linear = nn.Linear(4, 4)
        graph_module.evaluation_mode.extra = 1

    graph_module = fxlab.symbolic_trace(ReadsItsMode().eval(), torch.randn(3, 4))
    norm = graph_module.norm
    after = from_callable(exchange)(graph_module)
    assert after.norm is norm
    norm.train()
    with pytest.raises(AssertionError, match="norm is in training mode now"):
        after(torch.randn(3, 4))
