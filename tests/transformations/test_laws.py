"""Laws that hold for every module and every sequence of passes, tried on random ones.

Each test is a law. What once broke one is kept as a test of its own, in the file of the pass.
"""

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exactness import COPIES, assert_equals, assert_is, snapshot
from hypothesis import assume, event
from hypothesis import strategies as st
from laws import law
from opaque_functions import copy_activations
from random_modules import EXPORTED, Parametrize, Recipe, kept_buffers
from strategies import recipes
from torch import fx, nn

from fxlab import (
    EliminateCommonSubexpressions,
    FoldConstants,
    RemoveDeadCode,
    ReversibleTransformation,
    Transformation,
    compose,
    from_callable,
    verdict,
)
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.parts import Requirement
from fxlab.operators.node_info import attribute_at
from fxlab.transformations import RewritePass, available
from fxlab.transformations.analysis.aliasing_and_writes import written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views.linear import as_linear
from fxlab.validation import Status
from fxlab.values.tensors import bits_of, same_bits

# torch warns of what random modules do; only what fxlab says would be news.
pytestmark = [pytest.mark.filterwarnings("ignore", "error:.*cannot bring"), pytest.mark.slow]

PASSES: list[ReversibleTransformation] = [cls() for cls in available()]
ALWAYS = [pass_ for pass_ in PASSES if pass_.name == os.environ.get("FXLAB_PASS")]
"""The pass that each sequence has: `make pass`."""
TAKES_AWAY = (RemoveDeadCode, EliminateCommonSubexpressions, FoldConstants)
"""The passes that take away calls of functions, which others cannot change then."""

PERMUTE = torch.ops.aten.permute.default

WITH_OPAQUE = [*PASSES, from_callable(copy_activations)]


def some_of(passes: list[ReversibleTransformation]) -> st.SearchStrategy[list[ReversibleTransformation]]:
    """Draw one pass or more, in any order."""
    return st.permutations(passes).flatmap(
        lambda drawn: st.integers(1, len(drawn)).map(
            lambda count: [*drawn[:count], *(pass_ for pass_ in ALWAYS if pass_ in drawn[count:])]
        )
    )


sequences = some_of(PASSES)
sequences_that_keep_activations = some_of([pass_ for pass_ in PASSES if not isinstance(pass_, TAKES_AWAY)])
steps = st.lists(st.tuples(st.sampled_from(WITH_OPAQUE), st.booleans()), min_size=1, max_size=6)


class Eager:
    """What a recipe's module computes; another computes the same if a verdict calls it within rounding."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.model = recipe.build()
        self.gm = recipe.trace(self.model)
        self.keep(self.gm)
        if recipe.dialect not in EXPORTED:
            # Torch decomposes a dropout in place to one that writes nothing, for one.
            assert all(map(same_bits, self.run(self.model), self.outputs))

    def keep(self, gm: fx.GraphModule) -> None:
        """Compare with what a module is now."""
        self.outputs, self.reference = self.run(gm), copy.deepcopy(gm)

    def run(self, module: nn.Module) -> list[torch.Tensor]:
        """Return the outputs, and the input as the module leaves it."""
        x = self.recipe.input()
        with torch.no_grad(), kept_buffers(module):
            torch.default_generator.manual_seed(0)
            return [*module(x), x]

    def assert_computed_by(self, gm: fx.GraphModule) -> None:
        """Check that a transformed module computes the same, up to the rounding of both."""
        if all(map(same_bits, self.run(gm), self.outputs)):
            return
        found = verdict(self.reference, gm, (self.recipe.input(),))
        assert found.status is not Status.DIFFERENT, str(found)


def marked(gm: fx.GraphModule) -> set[str]:
    return {node.name for node in gm.graph.nodes if node.meta.get("transformations")}


def changed(gm: fx.GraphModule, before: fx.GraphModule) -> set[str]:
    """Return the nodes that call another module than before, do something else, or read what they did not.

    A layer that became a part of another does nothing any more, in whatever dialect it was written.
    """
    modules = {*before.modules(), *(check for check in gm.modules() if isinstance(check, Requirement))}
    known = {node.name: node for node in before.graph.nodes}
    layers = {node.name for node in before.graph.nodes if as_linear(node, GraphFacts(before))}
    found = {
        node.name
        for node in gm.graph.nodes
        if (node.op == "call_module" and gm.get_submodule(node.target) not in modules)
        or is_given_new_tensors(node, gm, before)
        or (node.name in known.keys() - layers and does_otherwise(node, known[node.name]))
    }
    return found | {
        node.name
        for node in gm.graph.nodes
        if node.name in known and (read_otherwise(node, known[node.name]) & known.keys()) - found
    }


def is_given_new_tensors(node: fx.Node, gm: fx.GraphModule, before: fx.GraphModule) -> bool:
    """Tell whether an operator is given parameters that there were not before."""
    read = [value.args[0] if value.target is PERMUTE else value for value in node.all_input_nodes]
    tensors = [attribute_at(gm, value.target) for value in read if value.op == "get_attr"]
    old = {id(tensor) for tensor in before.parameters()}
    given = [tensor for tensor in tensors if isinstance(tensor, nn.Parameter)]
    return node.target is not PERMUTE and any(id(tensor) not in old for tensor in given)


def does_otherwise(node: fx.Node, before: fx.Node) -> bool:
    """Tell whether a node calls another function or method."""
    is_call = before.op in ("call_function", "call_method")
    return is_call and (node.op, node.target) != (before.op, before.target)


def read_otherwise(node: fx.Node, before: fx.Node) -> set[str]:
    """Return the inputs of a node that stand where others stood."""
    return {
        now.name for now, then in zip(inputs(node), inputs(before), strict=False) if now.name != then.name
    }


def inputs(node: fx.Node) -> list[fx.Node]:
    """Return what a node reads, as often as it reads it."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), found.append)
    return found


@law(recipes(), sequences)
def test_outputs_are_those_of_eager_within_rounding(recipe, passes):
    eager = Eager(recipe)
    for pass_ in passes:
        if pass_.explain(eager.gm).matched.any():
            event(f"{pass_.name} applied")
            pass_(eager.gm)
            eager.assert_computed_by(eager.gm)


@pytest.mark.weekly
@law(recipes(), sequences)
def test_what_can_be_trained_through_a_module_still_can(recipe, passes):
    model = recipe.build()
    gm = recipe.trace(model)
    # What torch decomposes is functional, and it forgets there what was detached.
    expected = trains(gm if recipe.dialect in EXPORTED else model, recipe)
    assert trains(compose(*passes)(gm), recipe) == expected


def trains(module: nn.Module, recipe: Recipe) -> list[bool] | None:
    """Tell which outputs depend on what is trained; nothing for what autograd refuses, as some writes."""
    with kept_buffers(module):
        try:
            return [output.requires_grad for output in module(recipe.input())]
        except RuntimeError:
            return None


@law(recipes(), some_of(WITH_OPAQUE), st.data())
def test_reversing_in_any_order_gives_back_what_was_there(recipe, passes, data):
    eager = Eager(recipe)
    before, code = snapshot(eager.gm), eager.gm.code
    for pass_ in passes:
        pass_(eager.gm)
    for pass_ in data.draw(st.permutations(passes)):
        pass_(eager.gm, reverse=True)
        assert pass_.get_transformed_nodes(eager.gm) == []
        eager.assert_computed_by(eager.gm)
    assert_is(eager.gm, before)
    assert eager.gm.code == code


@law(recipes(), steps)
def test_passes_may_be_applied_and_reversed_as_one_likes(recipe, steps):
    eager = Eager(recipe)
    before = snapshot(eager.gm)
    for pass_, reverse in steps:
        pass_(eager.gm, reverse=reverse)
        eager.assert_computed_by(eager.gm)
        if reverse:
            assert pass_.get_transformed_nodes(eager.gm) == []
    for pass_ in WITH_OPAQUE:
        pass_(eager.gm, reverse=True)
    assert_is(eager.gm, before)


@law(recipes(), st.sampled_from(PASSES))
def test_marks_are_exactly_the_changed_nodes(recipe, pass_):
    gm = recipe.trace(recipe.build())
    before = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    explained = pass_.explain(gm)
    pass_(gm)
    names = {node.name for node in pass_.get_transformed_nodes(gm)}
    assert names == marked(gm) == changed(gm, before)
    assert bool(names) == bool(explained.matched.any()) or isinstance(pass_, RemoveDeadCode)


@law(recipes(), st.data())
def test_a_pass_without_some_of_its_candidates_does_what_it_does_to_the_others(recipe, data):
    eager = Eager(recipe)
    before = snapshot(eager.gm)
    pass_, matched = data.draw(passes_that_match(eager.gm))
    left_out = data.draw(st.sets(st.sampled_from(matched), min_size=1))
    limited = pass_.exclude(*left_out)
    assert (limited.name, limited == pass_, limited.signature == pass_.signature) == (
        pass_.name,
        False,
        False,
    )
    explained = limited.explain(eager.gm)
    assert not explained.matched[explained.index.isin(left_out)].any()
    assert "excluded" in set(explained.code)
    limited(eager.gm)
    eager.assert_computed_by(eager.gm)
    assert left_out <= {node.name for node in eager.gm.graph.nodes}
    assert left_out.isdisjoint(rewritten(limited, eager.gm))
    assert pass_.get_transformed_nodes(eager.gm) == []
    limited(eager.gm, reverse=True)
    assert_is(eager.gm, before)


@law(recipes(), st.data())
def test_a_pass_in_parts_rewrites_what_it_rewrites_at_once(recipe, data):
    eager, whole = Eager(recipe), recipe.trace(recipe.build())
    before = snapshot(eager.gm)
    pass_, _ = data.draw(passes_that_match(eager.gm))
    pass_(whole)
    half = data.draw(st.sets(st.sampled_from(sorted(rewritten(pass_, whole)))))
    # A candidate may be one only after others were rewritten: it is missing before, or left to the last.
    halves = [pass_.only(*half, missing_ok=True), pass_.exclude(*half, missing_ok=True), pass_]
    for limited in halves:
        limited(eager.gm)
        eager.assert_computed_by(eager.gm)
    found = [rewritten(limited, eager.gm) for limited in halves]
    assert set.union(*found) >= rewritten(pass_, whole)
    assert rewritten(halves[1], eager.gm).isdisjoint(half)
    for limited in data.draw(st.permutations(halves)):
        limited(eager.gm, reverse=True)
    assert_is(eager.gm, before)


def passes_that_match(gm: fx.GraphModule) -> st.SearchStrategy[tuple[RewritePass[Any], list[str]]]:
    """Draw a pass that would change something, with the names of its candidates."""
    explained = [(pass_, pass_.explain(gm)) for pass_ in PASSES]
    found = [(pass_, sorted(set(frame.index[frame.matched]))) for pass_, frame in explained]
    found = [(pass_, names) for pass_, names in found if names]
    assume(found)
    return st.sampled_from(found)


def rewritten(pass_: RewritePass[Any], gm: fx.GraphModule) -> set[str]:
    """Return the candidates that a pass has rewritten."""
    return {name for record in pass_.rewrites(gm) for name in record.candidate}


@law(recipes(), sequences, st.sampled_from(list(COPIES)))
def test_copies_are_independent(recipe, passes, kind):
    assume(not recipe.aliased)  # copy.deepcopy of torch gives aliases another order
    if any(isinstance(change, Parametrize) for change in recipe.changes):
        kind = "deepcopy"  # torch refuses to pickle parametrized modules
    gm = recipe.trace(recipe.build())
    ensure_picklable(gm)
    before = snapshot(gm)
    composition = compose(*passes)
    composition(gm)
    after = snapshot(gm)
    other = COPIES[kind](gm)
    assert_equals(other, after)
    assert_equals(composition(other, reverse=True), before)
    composition(other)
    assert_is(gm, after)
    once_more = snapshot(other)
    composition(gm, reverse=True)
    assert_is(gm, before)
    assert_is(other, once_more)


@law(recipes(), sequences)
def test_a_copy_that_shares_tensors_is_transformed_without_touching_the_first(recipe, passes):
    eager = Eager(recipe)
    before = snapshot(eager.gm)
    other = share_tensors_copy(eager.gm)
    shared = snapshot(other)
    composition = compose(*passes)
    eager.assert_computed_by(composition(other))
    assert_is(eager.gm, before)
    eager.assert_computed_by(eager.gm)
    assert_is(composition(other, reverse=True), shared)


TREATMENTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "frozen": lambda module: module.requires_grad_(False),
    "thawed": lambda module: module.requires_grad_(True),
    "trained": lambda module: module.train(),
    "double": lambda module: module.double(),
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
}


@pytest.mark.weekly
@law(recipes(), sequences, st.sampled_from(list(TREATMENTS)))
def test_what_is_done_to_a_transformed_module_is_done_to_what_comes_back(recipe, passes, treatment):
    assume(not recipe.aliased)  # copy.deepcopy of torch gives aliases another order
    gm = recipe.trace(recipe.build().eval())
    expected = copy.deepcopy(gm)
    composition = compose(*passes)
    TREATMENTS[treatment](composition(gm))
    composition(gm, reverse=True)
    assert_equals(gm, snapshot(TREATMENTS[treatment](expected)))


@law(recipes(), sequences)
def test_weights_trained_in_a_transformed_module_come_back(recipe, passes):
    eager = Eager(recipe)
    composition = compose(*passes)
    composition(eager.gm)
    with torch.no_grad():
        for parameter in eager.gm.parameters():
            parameter.mul_(1 + torch.rand_like(parameter) / 4)
    eager.keep(eager.gm)
    try:
        composition(eager.gm, reverse=True)
    except UserWarning:  # there is no place for some of them, and that is said
        return
    eager.assert_computed_by(eager.gm)


def has_effects(node: fx.Node, gm: fx.GraphModule) -> bool:
    """Tell whether a node writes into a value or into statistics, or draws random numbers."""
    trains = node.op == "call_module" and gm.get_submodule(node.target).training
    return node.is_impure() or trains or bool(written_inputs(node, gm))


@law(recipes(), sequences)
def test_dead_code_may_be_removed_in_between(recipe, passes):
    eager = Eager(recipe)
    composition = compose(*passes)
    composition(eager.gm)
    eager.gm.graph.eliminate_dead_code(lambda node: has_effects(node, eager.gm))
    eager.gm.recompile()
    eager.assert_computed_by(eager.gm)
    eager.assert_computed_by(composition(eager.gm, reverse=True))
    assert marked(eager.gm) == set()


class NegateActivations(Transformation):
    """Change what activations do and what reads them, as anybody's transformation may."""

    def transform(self, graph_module):
        for node in list(graph_module.graph.nodes):
            if node.target in (torch.relu, "tanh", "sum"):
                with graph_module.graph.inserting_after(node):
                    negative = graph_module.graph.call_function(torch.neg, (node,))
                node.replace_all_uses_with(negative, lambda user: user.target is not torch.neg)
                self.mark_as_transformed(node)
        return graph_module


@law(recipes(), sequences_that_keep_activations)
def test_what_others_change_in_between_stays(recipe, passes):
    eager = Eager(recipe)
    expected = NegateActivations()(copy.deepcopy(eager.gm))
    composition = compose(*passes)
    gm = composition(NegateActivations()(composition(eager.gm)), reverse=True)
    assert sorted(map(str, snapshot(gm).nodes)) == sorted(map(str, snapshot(expected).nodes))
    for actual, output in zip(eager.run(gm), eager.run(expected), strict=True):
        assert torch.equal(bits_of(actual), bits_of(output))


@law(recipes(), sequences)
def test_explaining_changes_nothing(recipe, passes):
    gm = recipe.trace(recipe.build())
    before = snapshot(gm)
    for pass_ in passes:
        frame = pass_.explain(gm)
        assert all(frame.reason)
    assert_is(gm, before)
