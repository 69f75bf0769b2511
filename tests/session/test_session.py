"""The stack of switchable transformations."""

import operator
import threading
from types import FunctionType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    MergeLinears,
    Session,
    Transformation,
    TransformationError,
    from_callable,
)
from fxlab.transformations import RewritePass
from fxlab.validation import Status


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.query, self.key = nn.Linear(4, 5), nn.Linear(4, 5)
        self.unused_in_training = nn.Identity()

    def forward(self, x):
        features = self.norm(self.conv(x)).mean((2, 3))
        return {"product": self.query(features) * self.key(features) / 7.0}


class MulToAdd(Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.mul):
            node.target = operator.add
            self.mark_as_transformed(node)
        return graph_module


class HalveWeightsInPlace(Transformation):
    def transform(self, graph_module):
        with torch.no_grad():
            graph_module.conv.weight.data.mul_(0.5)
        return graph_module


class RaiseMidway(Transformation):
    def transform(self, graph_module):
        node = next(iter(graph_module.graph.find_nodes(op="call_module")))
        node.replace_all_uses_with(node.args[0])
        graph_module.graph.erase_node(node)
        del graph_module.conv
        raise KeyError("no such layer")


class NeedsMultiplication(Transformation):
    def transform(self, graph_module):
        next(iter(graph_module.graph.find_nodes(op="call_function", target=operator.mul)))
        return graph_module


@pytest.fixture
def inputs():
    return (torch.randn(2, 3, 6, 6),)


@pytest.fixture
def session(inputs):
    passes = [FuseBatchNorm2dInConv2d(), MergeLinears(), MulToAdd(), HalveWeightsInPlace(), RaiseMidway()]
    return Session(torch.fx.symbolic_trace(Model().eval()), inputs, passes=passes)


def state(module):
    graph = [
        (n.op, n.name, str(n.target), str(n.args), sorted(n.meta.get("transformations", ())))
        for n in module.graph.nodes
    ]
    parameters = {name: (id(p), p.detach().clone()) for name, p in module.named_parameters()}
    return graph, [name for name, _ in module.named_modules()], parameters


def assert_same_state(a, b):
    assert a[:2] == b[:2]
    assert a[2].keys() == b[2].keys()
    for name, (identity, bits) in a[2].items():
        assert identity == b[2][name][0]
        assert torch.equal(bits, b[2][name][1])


def test_a_pass_that_raises_midway_leaves_everything_as_it_was(session):
    session.apply("mul-to-add")
    before, current = state(session.graph_module), session.graph_module
    with pytest.raises(
        TransformationError, match=r"raise-midway failed and was not applied.*no such layer"
    ) as info:
        session.apply("raise-midway")
    assert isinstance(info.value.__cause__, KeyError)
    assert session.graph_module is current
    assert_same_state(before, state(session.graph_module))
    assert not session._internals.is_on("raise-midway")


def test_a_change_that_breaks_a_pass_above_is_refused_whole(inputs):
    session = Session(
        torch.fx.symbolic_trace(Model().eval()), inputs, passes=[MulToAdd(), NeedsMultiplication()]
    )
    session.apply("needs-multiplication")
    with pytest.raises(TransformationError, match="needs-multiplication"):
        session.apply("mul-to-add")
    assert [pass_.name for pass_ in session.applied] == ["needs-multiplication"]


def test_undo_and_redo_walk_the_history(session):
    session.apply("merge-linears")
    session.apply("mul-to-add")
    session.revert("merge-linears")
    names = []
    while session._internals.can_undo:
        session.undo()
        names.append([pass_.name for pass_ in session.applied])
    assert names == [["merge-linears", "mul-to-add"], ["merge-linears"], []]
    session.redo()
    assert [pass_.name for pass_ in session.applied] == ["merge-linears"]
    session.revert()
    assert not session._internals.can_redo
    assert session.graph_module is session.original
    session.undo()
    assert session._internals.is_on("merge-linears")


def test_undo_and_redo_at_the_ends_say_so(session):
    with pytest.raises(ValueError, match="nothing to undo"):
        session.undo()
    with pytest.raises(ValueError, match="nothing to redo"):
        session.redo()


# One rewrite of a pass


class Divisions(nn.Module):
    def forward(self, x):
        return (x / 3 + 1) / 5


@pytest.fixture
def divisions():
    passes = [ChangeTrueDivToMulByInverse(), MulToAdd()]
    return Session(torch.fx.symbolic_trace(Divisions()), torch.randn(4), passes=passes)


CHANGE = "change-true-div-to-mul-by-inverse"


def test_one_rewrite_of_a_pass_is_taken_back_and_made_again(divisions):
    before = state(divisions.original)
    divisions.apply(CHANGE)
    whole = state(divisions.graph_module)
    divisions.exclude(CHANGE, "truediv")
    (limited,) = divisions.applied
    assert (limited.name, divisions._internals.is_on(CHANGE)) == (CHANGE, True)
    assert [node.name for node in limited.get_transformed_nodes(divisions.graph_module)] == ["truediv_1"]
    assert fxlab.rewriting.transformed_nodes(
        divisions.graph_module, divisions.passes[CHANGE], original=divisions.original
    ).index.tolist() == ["truediv_1"]
    assert divisions._internals.excluded(CHANGE) == (("truediv",),)
    explained = divisions.explain(CHANGE)
    assert explained.matched.to_dict() == {"truediv": False, "truediv_1": True}
    assert explained.code["truediv"] == "excluded"
    assert "x / 3" in divisions.graph_module.code
    divisions.include(CHANGE, "truediv")
    assert state(divisions.graph_module) == whole
    assert divisions._internals.excluded(CHANGE) == ()
    assert state(divisions.original) == before


def test_what_is_left_out_is_undone_and_redone_and_outlives_switching_off(divisions):
    divisions.exclude(CHANGE, "truediv_1")
    assert divisions.graph_module is divisions.original
    divisions.apply(CHANGE)
    assert fxlab.rewriting.transformed_nodes(
        divisions.graph_module, original=divisions.original
    ).index.tolist() == ["truediv"]
    divisions.exclude(CHANGE, "truediv")
    assert divisions._internals.is_on(CHANGE)
    assert fxlab.rewriting.transformed_nodes(divisions.graph_module, original=divisions.original).empty
    divisions.undo()
    assert divisions._internals.excluded(CHANGE) == (("truediv_1",),)
    divisions.revert()
    assert divisions._internals.excluded(CHANGE) == (("truediv_1",),)
    for _ in range(3):
        divisions.undo()
    assert divisions._internals.excluded(CHANGE) == ()
    divisions.redo()
    assert divisions._internals.excluded(CHANGE) == (("truediv_1",),)


def test_what_was_changed_together_is_named_by_any_of_it_and_by_what_it_became(session):
    session.apply("merge-linears")
    for name in ("query_key_merged", "key"):
        session.exclude("merge-linears", name)
        assert session._internals.excluded("merge-linears") == (("query", "key"),)
        assert fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).empty
        session.include("merge-linears", "query")
        assert fxlab.rewriting.transformed_nodes(
            session.graph_module, original=session.original
        ).index.tolist() == ["query_key_merged"]
    (merged,) = session.applied[0].get_transformed_nodes(session.graph_module)
    session.exclude("merge-linears", merged)
    assert session.graph_module.key.weight is session.original.key.weight


def test_what_cannot_be_left_out_is_said_and_changes_nothing(divisions):
    divisions.apply(CHANGE)
    current = divisions.graph_module
    with pytest.raises(ValueError, match=r"'add' is neither .* Its candidates are: truediv, truediv_1\."):
        divisions.exclude(CHANGE, "truediv", "add")
    with pytest.raises(TypeError, match=r"mul-to-add cannot be limited .* a MulToAdd does not tell them"):
        divisions.exclude("mul-to-add", "truediv")
    with pytest.raises(ValueError, match=r"does not exclude 'truediv'\. It excludes: none\."):
        divisions.include(CHANGE, "truediv")
    with pytest.raises(TypeError, match="Expected nodes or their names, got int"):
        divisions.exclude(CHANGE, 3)
    assert divisions.graph_module is current
    divisions.exclude(CHANGE)
    assert divisions.graph_module is current


def test_a_rewrite_that_others_need_stays(divisions):
    passes = [ChangeTrueDivToMulByInverse(), NeedsMultiplication()]
    session = Session(divisions.original, divisions.inputs, passes=passes)
    session.apply(CHANGE)
    session.apply("needs-multiplication")
    session.exclude(CHANGE, "truediv")
    with pytest.raises(TransformationError, match="needs-multiplication"):
        session.exclude(CHANGE, "truediv_1")
    assert session._internals.excluded(CHANGE) == (("truediv",),)


def test_listeners_hear_of_each_change_until_they_unsubscribe(session):
    heard = []
    unsubscribe = session.on_change(lambda s: heard.append(len(s.applied)))
    session.apply("merge-linears")
    session.apply("merge-linears")
    session.revert("merge-linears")
    unsubscribe()
    session.undo()
    assert heard == [1, 0]


def test_a_pass_is_found_by_itself_and_by_its_name(session):
    session.apply(MergeLinears())
    assert "merge-linears" in session.applied
    with pytest.raises(ValueError, match="there is no pass 'nothing'"):
        session.revert("nothing")


@pytest.mark.parametrize("name", ["merge-linears", "mul-to-add", "halve-weights-in-place"])
def test_a_preview_is_what_would_be_and_changes_nothing(session, name):
    session.apply("fuse-batch-norm2d-in-conv2d")
    session.undo()
    before, stages, heard = state(session.original), session.stages, []
    session.on_change(heard.append)
    tried = session.preview(name)
    can = session._internals.can_undo, session._internals.can_redo
    assert (session.stages, can, heard) == (stages, (False, True), [])
    assert_same_state(before, state(session.original))
    session.apply(name)
    assert tried.code == session.graph_module.code
    for parameter, other in zip(tried.parameters(), session.graph_module.parameters(), strict=True):
        assert torch.equal(parameter, other)
    assert session.preview(name) is session.graph_module, "it is on"


def test_a_preview_of_a_pass_that_raises_leaves_everything_as_it_was(session):
    session.apply("mul-to-add")
    before, current = state(session.graph_module), session.graph_module
    with pytest.raises(TransformationError, match="no such layer"):
        session.preview("raise-midway")
    assert session.graph_module is current
    assert_same_state(before, state(session.graph_module))


def test_a_pass_of_ones_own_is_added_on_top(session):
    session.add(NeedsMultiplication())
    assert session.passes[-1].name == "needs-multiplication"
    with pytest.raises(ValueError, match="offered already"):
        session.add(NeedsMultiplication())


def test_training_an_optimizer_made_before_still_trains_the_restored_model(session, inputs):
    optimizer = torch.optim.SGD(session.original.parameters(), lr=0.1)
    session.apply("merge-linears")
    session.revert("merge-linears")
    before = session.graph_module.conv.weight.detach().clone()
    session.graph_module(*inputs)["product"].sum().backward()
    optimizer.step()
    assert not torch.equal(before, session.graph_module.conv.weight)


def test_wrong_arguments_are_named(session):
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, .*, got 'bert-base-uncased'"):
        Session("bert-base-uncased")
    with pytest.raises(
        TypeError, match=r"passes: expected a transformation, its name, or a function .*, got 3"
    ):
        Session(session.original, passes=[3])
    with pytest.raises(ValueError, match=r"there is no pass 'no-such-pass'\. On offer: fuse-batch-norm"):
        session.apply("no-such-pass")
    with pytest.raises(TypeError, match="its name, or a function of a graph module, got 3"):
        session.revert(3)
    with pytest.raises(TypeError, match="callback: expected a function"):
        session.on_change("no function")


@pytest.mark.parametrize("name", ["halve-weights-in-place", "mul-to-add"])
def test_the_verdict_is_that_of_what_is_on(session, name):
    assert session.verdict().status == Status.SAME_BITS
    session.apply("merge-linears")
    session.apply("fuse-batch-norm2d-in-conv2d")
    assert session.verdict().status == Status.WITHIN_ROUNDING
    session.apply(name)
    assert session.verdict().status == Status.DIFFERENT
    session.undo()
    assert session.verdict().agrees


def test_without_inputs_there_is_no_verdict():
    session = Session(torch.fx.symbolic_trace(Model().eval()))
    with pytest.raises(ValueError, match="has no inputs"):
        session.verdict()


def test_without_weights_there_is_no_verdict(inputs):
    session = Session(torch.fx.symbolic_trace(Model().eval().to("meta")), inputs)
    with pytest.raises(ValueError, match="There is no verdict: the model is on the meta device"):
        session.verdict()


def test_a_pass_is_moved_in_the_stack_and_put_back(session, inputs):
    names = [pass_.name for pass_ in session.passes]
    session.apply("merge-linears")
    session.apply("mul-to-add")
    before = session.graph_module
    session.move("mul-to-add", 0)
    assert [pass_.name for pass_ in session.passes] == [
        "mul-to-add",
        *(n for n in names if n != "mul-to-add"),
    ]
    assert [pass_.name for pass_ in session.applied] == ["mul-to-add", "merge-linears"]
    assert len(session.stages) == 3
    session.undo()
    assert [pass_.name for pass_ in session.passes] == names
    assert session.graph_module.code == before.code
    session.redo()
    assert session.passes[0].name == "mul-to-add"


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        (-1, ValueError, "index from 0"),
        (99, ValueError, "index from 0"),
        (1.0, TypeError, "int"),
        (True, TypeError, "int"),
    ],
)
def test_a_place_that_there_is_not_is_refused(session, place, error, words):
    with pytest.raises(error, match=words):
        session.move("merge-linears", place)


def test_an_order_in_which_a_pass_raises_is_not_taken():
    traced = torch.fx.symbolic_trace(lambda x: x * 2 / 4)
    session = Session(traced, passes=[NeedsMultiplication(), MulToAdd()])
    session.apply("needs-multiplication")
    session.apply("mul-to-add")
    before, module = session.passes, session.graph_module
    with pytest.raises(TransformationError):
        session.move("mul-to-add", 0)
    assert session.passes == before
    assert session.graph_module is module


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_any_order_gives_what_a_session_of_that_order_gives(data):
    passes = [MergeLinears(), ChangeTrueDivToMulByInverse(), MulToAdd()]
    session = Session(torch.fx.symbolic_trace(Model()), passes=passes)
    for _ in range(data.draw(st.integers(1, 8))):
        chosen = data.draw(st.sampled_from(session.passes))
        if data.draw(st.booleans()):
            (session.revert if chosen in session.applied else session.apply)(chosen)
        else:
            session.move(chosen, data.draw(st.integers(0, len(passes) - 1)))
    again = Session(torch.fx.symbolic_trace(Model()), passes=session.passes)
    for pass_ in session.applied:
        again.apply(pass_)
    assert session.graph_module.code == again.graph_module.code
    while session._internals.can_undo:
        session.undo()
    assert session.graph_module is session.original
    assert [pass_.name for pass_ in session.passes] == [pass_.name for pass_ in passes]


class Norms(nn.Module):
    """A model with something for each pass that makes new weights."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        y = self.norm(self.conv(x)).mean((2, 3))
        return self.query(y) * (self.scale * 2) + self.key(y) / 3


def loaded(model):
    state = {name: torch.randn_like(value.float()).abs() for name, value in model.state_dict().items()}
    model.load_state_dict(state)


def assigned(model):
    state = {name: torch.randn_like(value.float()).abs() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def trained(model):
    model(torch.ones(2, 3, 2, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.5).step()
    model.zero_grad()


def written(model):
    for tensor in (model.conv.weight, model.norm.running_mean, model.query.bias, model.key.bias, model.scale):
        with torch.no_grad():
            tensor.add_(1)


def replaced(model):
    model.query.weight, model.key.weight = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))
    model.norm.running_var = torch.full((4,), 2.0)
    model.scale = nn.Parameter(torch.full((4,), 3.0), requires_grad=False)


def given_other_memory(model):
    for tensor in (model.conv.weight, model.norm.weight, model.query.weight, model.key.weight, model.scale):
        tensor.data = tensor.data + 1


def written_past_torch(model):
    for tensor in (model.conv.weight, model.norm.running_mean, model.query.weight, model.scale):
        tensor.data.mul_(3)
        tensor.detach().numpy()[...] += 1


def cast(model):
    model.double()


def trained_by_a_fused_kernel(model):
    model(torch.ones(2, 3, 2, 2)).sum().backward()
    torch.optim.AdamW(model.parameters(), 0.5, fused=True).step()
    model.zero_grad()


def set_otherwise(model):
    model.norm.eps = 0.5


def hooked(model):
    model.norm.register_forward_hook(lambda module, args, output: output * 2)


CHANGES_OF_THE_ORIGINAL = [
    *(loaded, assigned, trained, trained_by_a_fused_kernel, written, replaced, given_other_memory, cast),
    *(set_otherwise, hooked, written_past_torch),
]


@pytest.mark.each_value
@pytest.mark.parametrize("change", CHANGES_OF_THE_ORIGINAL, ids=lambda change: change.__name__)
@pytest.mark.parametrize(
    "names",
    [
        ["fold-constants"],
        ["merge-linears"],
        ["fuse-batch-norm2d-in-conv2d"],
        ["fuse-bias-in-linear"],
        ["merge-linears", "fuse-bias-in-linear"],
        ["change-true-div-to-mul-by-inverse"],
    ],
    ids=lambda names: "+".join(names),
)
def test_passes_are_applied_anew_when_the_original_has_changed(change, names):
    traced, x = torch.fx.symbolic_trace(Norms().eval()), torch.randn(2, 3, 2, 2)
    session = Session(traced, x)
    for name in names:
        session.apply(name)
    stage, heard = session.graph_module, []
    session.on_change(lambda session: heard.append(session.graph_module))
    assert session.graph_module is stage
    change(traced)
    x = x.to(traced.conv.weight.dtype)
    assert session.graph_module is not stage
    assert heard == [session.graph_module]
    assert (session.graph_module(x) - traced(x)).abs().max() < 1e-4
    assert all(session._internals.is_on(name) for name in names)
    session.revert()
    assert session.graph_module is traced


def test_outputs_and_verdict_are_of_what_the_original_is_now():
    traced, x = torch.fx.symbolic_trace(Norms().eval()), torch.randn(2, 3, 2, 2)
    session = Session(traced, x)
    session.apply("merge-linears")
    assert session.verdict().agrees
    loaded(traced)
    assert session.verdict().agrees
    assert (
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs)["max_abs_diff"] < 1e-4
    ).all()


def test_results_about_a_pass_are_not_those_of_another_that_took_its_name():
    session = Session(torch.fx.symbolic_trace(Model().eval()), torch.randn(2, 3, 5, 5), passes=[])
    for change, has_same_bits in ((lambda graph_module: None, True), (MulToAdd().transform, False)):
        session.add(from_callable(change, name="change"))
        session.apply("change")
        assert (
            fxlab.compare_outputs(session.original, session.graph_module, session.inputs)["same_bits"].all()
            == has_same_bits
        )
        assert (session.verdict().status == Status.SAME_BITS) == has_same_bits
        session.undo()
        session.undo()


def test_a_pass_that_writes_in_place_is_not_applied_for_ever():
    session = Session(torch.fx.symbolic_trace(Model().eval()), passes=[HalveWeightsInPlace()])
    session.add(from_callable(HalveWeightsInPlace().transform, name="halve"))
    for pass_ in session.passes:
        session.apply(pass_)
    assert session.graph_module is session.graph_module


def test_what_was_trained_in_a_stage_is_not_dropped_without_a_word():
    traced = torch.fx.symbolic_trace(Norms().eval())
    session = Session(traced)
    session.apply("merge-linears")
    stage = session.graph_module
    trained(stage)
    with pytest.warns(RuntimeWarning, match=r"is lost to the session: query_key_merged\.weight"):
        assert session.graph_module is not stage


def test_a_pass_that_fails_on_the_changed_original_says_so_until_it_is_switched_off():
    def fails_on_ones(graph_module):
        if (graph_module.scale == 1).all():
            raise ValueError("only ones")

    traced = torch.fx.symbolic_trace(Norms().eval())
    traced.scale.fill_(2)
    session = Session(traced, passes=[from_callable(fails_on_ones)])
    session.apply("fails-on-ones")
    traced.scale.fill_(1)
    for _ in range(2):
        with pytest.raises(TransformationError, match="only ones"):
            _ = session.graph_module
    session.revert("fails-on-ones")
    assert session.graph_module is traced


def test_threads_undo_and_redo_one_after_the_other():
    session = Session(
        torch.fx.symbolic_trace(Model().eval()), passes=[MergeLinears(), ChangeTrueDivToMulByInverse()]
    )
    errors = []

    def work(seed):
        choices = [session.undo, session.redo, lambda: session.apply("merge-linears"), session.revert]
        for step in range(40):
            try:
                choices[(seed * 7 + step * (seed + 1)) % 4]()
                assert session.graph_module is not None
            except ValueError as error:
                if "There is nothing to" not in str(error):
                    errors.append(error)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(session.stages) == len(session.applied) + 1


def test_changes_by_several_threads_are_all_made():
    session = Session(torch.fx.symbolic_trace(Model().eval()), passes=[])
    passes = [from_callable(lambda gm: None, name=f"own-{number}") for number in range(9)]
    threads = [threading.Thread(target=session.apply, args=(pass_,)) for pass_ in passes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.applied) == len(session.history) // 2 == 9


def test_a_listener_that_raises_keeps_nothing_from_the_others():
    session = Session(torch.fx.symbolic_trace(Model().eval()), passes=[MergeLinears()])
    heard = []

    def breaks(session):
        raise KeyError("nobody home")

    session.on_change(breaks)
    session.on_change(lambda session: heard.append(len(session.applied)))
    for change, applied in ((session.apply, 1), (session.revert, 0)):
        with pytest.warns(RuntimeWarning, match="on_change raised KeyError: 'nobody home'"):
            change("merge-linears")
        assert heard[-1] == len(session.applied) == applied


def test_a_warning_about_a_listener_names_the_line_that_changed_the_session(session):
    def breaks(session):
        raise KeyError("nobody home")

    session.on_change(breaks)
    with pytest.warns(RuntimeWarning, match="nobody home") as caught:
        session.apply("merge-linears")
    assert caught[0].filename == __file__


CALLS = []


class Named(RewritePass[torch.fx.Node]):
    """Marks a node, and is of nobody at fxlab."""

    def match(self, facts):
        yield from facts.graph_module.graph.find_nodes(op="call_function", target=operator.truediv)

    def rewrite(self, node, edit):
        edit.change(node)
        return node


def test_the_code_of_a_stage_waits_until_it_is_called_if_the_pass_is_known_to_leave_python():
    def has_code():
        return isinstance(vars(type(session.graph_module))["forward"], FunctionType)

    original = torch.fx.symbolic_trace(lambda x: x / 2)
    session = Session(original, passes=[Named(), ChangeTrueDivToMulByInverse()])
    session.apply("change-true-div-to-mul-by-inverse")
    assert not has_code()
    assert session.graph_module(torch.ones(1)).item() == 0.5
    assert has_code()
    session.revert()
    session.apply("named")
    assert has_code()


def test_a_pass_that_cannot_explain_itself_is_a_row_among_the_others():
    class Broken(RewritePass):
        def match(self, facts):
            raise KeyError("halfway")

        def rewrite(self, candidate, edit):
            raise NotImplementedError

    session = Session(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), torch.randn(2, 4))
    session.add(Broken())
    for table in (session.explain(), session.why_not()):
        (reason,) = table[table["pass"] == "broken"]["reason"]
        assert reason.startswith("the pass itself raises KeyError: 'halfway' (test_session.py:")
    assert "remove-identities" in {*session.explain()["pass"]}
    with pytest.raises(KeyError, match="halfway"):
        session.explain("broken")
    with pytest.raises(ValueError, match="no node"):
        session.why_not(node="nowhere")


def test_every_pass_applies_to_a_graph_without_an_output():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(2):
        graph.call_function(torch.add, (graph.call_method("view", (x, 2)), 1))
    session = Session(fx.GraphModule(nn.Module(), graph), torch.ones(2))
    for p in session.passes:
        session.apply(p)
    assert len(session.applied) == len(session.passes)
    assert fxlab.draw(session)
