"""First guesses: names and forms of other libraries work, and others are answered with the way."""

import inspect
import json
import operator
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertModel
from zoo import bert_config

import fxlab

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


@pytest.fixture
def session(model):
    return fxlab.Session(model, X)


def test_names_that_mean_the_same_are_the_same(session):
    assert fxlab.Pass is fxlab.Transformation
    assert fxlab.load is fxlab.load_session
    assert fxlab.RewritePass is fxlab.rewriting.RewritePass
    assert session.gm is session.graph_module
    session.enable("fuse-bias-in-linear")
    assert session.verify()
    assert session.verify().ok
    session.disable("fuse-bias-in-linear")
    assert session.history == ((), ("fuse-bias-in-linear",), ())
    assert session.table().equals(session.nodes())
    assert session.profile().index.name == "node"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s: fxlab.input_shape, r"no attribute 'input_shape'.* torch.randn\("),
        (lambda s: fxlab.comparee, r"no attribute 'comparee'. Did you mean compare"),
        (lambda s: s.revert_al, r"'Session' object has no attribute 'revert_al'. Did you mean revert_all"),
        (lambda s: s.compile, r"fxlab.as_backend\(session\)"),
        (lambda s: s.verdict().rtol, r"fxlab.compare_outputs takes both"),
    ],
)
def test_a_missing_name_leads_to_the_one_there_is(session, ask, words):
    with pytest.raises(AttributeError, match=words):
        ask(session)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: fxlab.compare(s, s, atol=1), r"takes no argument 'atol'\. It takes .*No tolerance"),
        (lambda s: s.verdict(rtol=1), r"takes no argument 'rtol'"),
        (
            lambda s: fxlab.trace(s.model, X, dynamic_shapes=1),
            r"or an input of the model \(input\)\..* Sizes",
        ),
        (lambda s: s.graph_module.nothing, "has no attribute 'nothing'"),
        (lambda s: fxlab.bisect(s, s), "no passes between two models"),
        (lambda s: fxlab.compile_session(s.model, X, backend="eager"), "expected 'inductor'"),
        (lambda s: fxlab.Session("model.pt"), "torch.load"),
        (lambda s: s.apply("fuse_sdpa"), r"Did you mean 'fuse-attention"),
        (lambda s: s.apply("MergeLinear"), "Did you mean 'MergeLinears'"),
        (lambda s: fxlab.from_pattern(torch.relu, torch.tanh), r"lambda x: relu\(x\)"),
    ],
)
def test_a_wrong_call_says_how_it_is_written(session, call, words):
    with pytest.raises((TypeError, ValueError, AttributeError), match=words):
        call(session)


def test_arguments_have_the_names_of_other_libraries(model, session):
    assert len(fxlab.profile(model, example_inputs=X, iterations=1)) == 4
    assert session.benchmark(repeats=1, min_seconds=0).loc["original", "speedup"] == 1
    with pytest.raises(TypeError, match="rounds: expected an int"):
        fxlab.profile(model, X, repeats="a")


def test_passes_are_known_by_any_spelling_of_their_names(session):
    assert "MergeLinears" in fxlab.list_passes()
    assert session.passes["merge_linears"] == fxlab.MergeLinears()
    assert session.applied == () == session.applied()
    session.apply(fxlab.FuseBiasInLinear)
    assert session.applied == ["FuseBiasInLinear"] != ["fuse-bias"]
    assert session.applied == (fxlab.FuseBiasInLinear(),)
    assert fxlab.FuseBiasInLinear in session.applied
    assert fxlab.MergeLinears() not in session.applied
    assert session.applied.table["class"].tolist() == ["fxlab.FuseBiasInLinear"]
    session.revert_all()
    session.apply_all()
    assert len(session.applied) == len(session.passes)


def test_a_pass_in_the_place_of_a_model_stands_for_the_model_with_it(model, session):
    wrong = fxlab.from_pattern(lambda x: F.relu(x), lambda x: F.gelu(x))
    assert fxlab.verdict(model, fxlab.FuseBiasInLinear(), X)
    assert not fxlab.verdict(model, wrong, X)
    assert not fxlab.compare(model, wrong, X)
    session.apply("fuse-bias-in-linear")
    assert fxlab.first_divergence(session, wrong).max_abs_diff > 0
    assert session.applied == ["fuse-bias-in-linear"]


def test_results_have_their_numbers_and_tables_under_the_names_that_people_look_for(model, session, tmp_path):
    session.replace(lambda x: F.relu(x), lambda x: F.gelu(x))
    found = session.verdict()
    largest = fxlab.compare_outputs(session)["max_abs_diff"].max()
    assert found.max_abs_error == found.table()["max_abs_diff"].item() == pytest.approx(largest)
    assert found.different
    assert found.to_dataframe().equals(found.table)
    found.to_csv(tmp_path / "verdict.csv")
    assert json.loads(found.to_json())["status"] == "different"
    assert fxlab.verdict(model, model, X).max_diff == 0
    broken = fxlab.verdict(model, lambda x: model(x) / 0, X)
    assert broken.max_diff == float("inf")
    parted = session.first_divergence()
    assert parted.reference_node == "_1"
    assert "gelu" in repr(parted) or parted.name in repr(parted)
    assert parted.as_dict()["judgement"]["status"] == "different"
    compared = fxlab.compare(model, session, X)
    assert compared.max_abs_diff == pytest.approx(largest)
    assert compared.save(tmp_path / "c.html").read_text().startswith("<!")
    other = nn.Sequential(model[0], nn.ReLU(), nn.Linear(8, 4)).eval()
    place = fxlab.first_divergence(model, other, X)
    assert place.max_abs_diff == pytest.approx((model(X) - other(X)).abs().max().item())
    culprit = session.bisect()
    assert culprit.culprit in session.applied
    assert not hasattr(found, "all")


def test_statistics_of_all_nodes_are_one_table(session):
    found = fxlab.node_values(session)
    assert found.loc["_1", "min"] == 0
    assert session.stats().equals(found)


def test_a_list_that_is_no_call_is_several_inputs(model):
    batches = [X, X[:2]]
    session = fxlab.Session(model, batches)
    assert session.inputs is X
    assert len(session.evaluate().batches) == 2
    assert fxlab.verdict(model, session, batches).by_inputs.keys() == {"inputs 1", "inputs 2"}
    assert fxlab.Session(lambda a, b: a + b, batches[:1] * 2).inputs is not X


def test_options_have_the_names_of_other_libraries_unless_the_model_has_such_an_input(model, tmp_path):
    picture = fxlab.draw(model, X, filename=tmp_path / "a.svg", rankdir="LR")
    assert (tmp_path / "a.svg").read_text() == picture.to_svg()
    assert picture.arrangement.direction == "right"
    deep = nn.Sequential(model, nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh())))
    shown = [len(fxlab.draw(deep, X, depth=levels).view.boxes) for levels in range(3)]
    assert shown == sorted({*shown})
    assert len(fxlab.draw(lambda depth: depth + 1, depth=X).view.boxes) == 3
    assert fxlab.draw(model, X, colors={"_1": 1.0}).overlay


def test_public_functions_are_pickled_by_their_names():
    assert pickle.loads(pickle.dumps(fxlab.verdict)) is fxlab.verdict


class Scaled(nn.Module):
    def forward(self, x, scale=2.0, flag=True):
        return x * scale if flag else x


def test_positional_inputs_and_inputs_by_name_go_together():
    for graph in (
        fxlab.trace(Scaled(), X, scale=3.0),
        fxlab.trace(Scaled(), (X,), {"scale": 3.0}),
        fxlab.trace(Scaled(), args=(X,), kwargs={"scale": 3.0}),
    ):
        assert torch.equal(graph(X, 3.0), X * 3.0)


def test_a_loader_gives_inputs_without_labels_and_the_data(model):
    loader = DataLoader(TensorDataset(X, LABELS), batch_size=2)
    session = fxlab.Session(model, loader)
    assert len(session.inputs) == 1
    assert session.evaluate().batches["elements"].tolist() == [2, 2]
    assert fxlab.verdict(model, session, loader).by_inputs.keys() == {"inputs 1", "inputs 2"}
    assert fxlab.compare(model, session, loader)


def test_a_data_set_of_samples_stands_for_its_loader(model):
    data = TensorDataset(X, LABELS)
    session = fxlab.Session(model, data)
    assert [each.shape[0] for each in session.inputs] == [1]
    assert session.evaluate().batches["elements"].tolist() == [1] * len(data)
    assert len(fxlab.verdict(model, session, data).by_inputs) == len(data)
    assert fxlab.compare(model, session, data)


def test_two_models_are_timed_and_measured_as_they_are(model):
    def accuracy(outputs, batch):
        return (outputs.argmax(-1) == batch[1]).float().mean().item()

    times = fxlab.benchmark(model, nn.Linear(8, 4), X, rounds=1, min_seconds=0)
    assert times.index.tolist() == ["reference", "candidate"]
    named = {"eager": model, "function": lambda x: x + 1}
    assert fxlab.benchmark(named, X, rounds=1, min_seconds=0).index.tolist() == ["eager", "function"]
    found = fxlab.evaluate(model, nn.Linear(8, 4), [(X, LABELS)], metrics=accuracy)
    assert not found
    assert "accuracy" in str(found.table())
    assert fxlab.evaluate(model, [(X, LABELS)], metric=accuracy)


def test_passes_are_bisected_on_a_model(model):
    wrong = fxlab.from_pattern(lambda x: F.relu(x), lambda x: F.gelu(x), name="gelu")
    assert fxlab.bisect(model, X, [wrong]).pass_.name == "gelu"
    assert fxlab.bisect(model, [wrong], X).pass_.name == "gelu"
    assert fxlab.bisect(model, X) is None


def test_values_of_nodes_are_read_from_a_session(session):
    values = session.values()
    assert torch.equal(values["_1"], session.value("_1"))
    assert torch.equal(session.value("_2"), session())
    assert session["1"] is session.node("_1")
    assert session.find_matches(lambda x: F.relu(x))[0].roots == (session.node("_1"),)


def test_a_registered_pass_is_offered_in_every_session(model, monkeypatch):
    monkeypatch.setattr("fxlab.transformations.registry.REGISTERED", known := {})
    monkeypatch.setattr("fxlab.transformations.registry.REGISTERED", known)

    @fxlab.register("double_it")
    def double(graph_module):
        output = graph_module.graph.output_node()
        with graph_module.graph.inserting_before(output):
            output.args = (graph_module.graph.call_function(operator.mul, (output.args[0], 2)),)

    session = fxlab.Session(model, X)
    session.apply("double_it")
    assert torch.equal(session(X), model(X) * 2)
    with pytest.raises(ValueError, match="there is a transformation 'merge-linears' already"):
        fxlab.register(double, name="merge-linears")


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss()])
def test_a_loss_is_given_the_labels_of_a_batch(loss):
    model = nn.Linear(8, 4)
    expected = F.cross_entropy(model(X), LABELS)
    for session in (
        fxlab.training_session(model, X, LABELS, loss),
        fxlab.training_session(model, (X, LABELS), loss_fn=loss),
        fxlab.training_session(model, {"input": X, "labels": LABELS}, loss=loss),
        fxlab.training_session(model, {"input": X}, LABELS, loss),
        fxlab.training_session(model=model, inputs=X, labels=LABELS, loss=loss),
    ):
        assert torch.equal(session()["loss"], expected)
    assert torch.equal(session.as_step()({"input": X, "labels": LABELS}), expected)


def test_weights_are_compared_without_a_run(model):
    other = nn.Sequential(*model)
    assert set(fxlab.compare_weights(model, other)["status"]) == {"equal"}


def test_outputs_are_compared_as_they_are():
    assert fxlab.compare_outputs(X, X + 1)["allclose"].tolist() == [False]
    assert fxlab.compare_outputs((X, X), (X, X))["same_bits"].tolist() == [True, True]


def test_a_session_is_exported_to_a_program(session):
    assert torch.allclose(session.export().module()(X), session(X))


def test_a_change_returns_the_session(session):
    assert session.apply("fuse-bias-in-linear").apply("remove-dead-code") is session
    assert session.applied == ["remove-dead-code", "fuse-bias-in-linear"]
    assert session.undo().undo().applied == []


def test_a_pass_is_judged_alone_and_never_taken_for_inputs(model, session):
    def gelu(graph_module):
        for node in graph_module.graph.nodes:
            if node.target == "1":
                with graph_module.graph.inserting_after(node):
                    new = graph_module.graph.call_function(F.gelu, node.args)
                node.replace_all_uses_with(new)
                graph_module.graph.erase_node(node)

    session.apply("fuse-bias-in-linear", gelu)
    assert session.verdict("fuse-bias-in-linear").agrees
    assert not session.verdict(gelu)
    assert session.verdict("remove-dead-code").same_bits
    assert session.alone("gelu").applied == ["gelu"]
    assert session.bisect("gelu", inputs=X).pass_name == "gelu"
    assert session.bisect("fuse-bias") is None
    assert session.benchmark("fuse-bias", rounds=1, min_seconds=0).index[-1] == "fuse-bias-in-linear"
    for judge in (fxlab.verdict, fxlab.compare):
        assert judge(model, "fuse-bias", X)
        assert not judge(model, ["fuse-bias", gelu], X)
    assert not fxlab.verdict(model, X, gelu)
    for arguments in (("fuse-bias", X), (X, "fuse-bias"), (["fuse-bias"], X)):
        assert fxlab.bisect(model, *arguments) is None
    with pytest.raises(ValueError, match="there is no pass 'nothing'"):
        session.verdict("nothing")
    with pytest.raises(TypeError, match="a session has its own"):
        session.bisect(["gelu", "fuse-bias"])
    with pytest.raises(TypeError, match=r"session.preview\(pass_\) returns the graph with it"):
        session.applied("gelu")


def test_a_copy_of_a_session_goes_its_own_way(session):
    other = session.apply("fuse-bias-in-linear").copy()
    other.undo()
    assert (session.applied, other.applied) == (["fuse-bias-in-linear"], [])
    assert other.original is session.original


def test_what_is_on_is_set_and_other_attributes_are_not(session):
    session.enabled = ["FuseBiasInLinear"]
    assert session.applied == ["fuse-bias-in-linear"]
    with pytest.raises(AttributeError, match="verify of a session is asked for"):
        session.verify = 3


def test_methods_of_sessions_are_functions_of_a_model(model):
    graph = fxlab.apply(model, "FuseBiasInLinear", X)
    assert isinstance(graph, torch.fx.GraphModule)
    assert fxlab.verdict(model, graph, X)
    gelu = fxlab.replace_pattern(fxlab.trace(model, X), lambda x: F.relu(x), lambda x: F.gelu(x))
    assert not fxlab.verdict(model, gelu, X)
    assert fxlab.explain("FuseBiasInLinear", model, X).matched.all()
    assert fxlab.to_svg(model, X, depth=2).startswith("<")
    with pytest.raises(TypeError, match="expected a model or session"):
        fxlab.apply()


def test_several_tensors_are_the_inputs_of_one_call():
    def added(a, b):
        return a + b

    assert torch.equal(fxlab.trace(added, X, X)(X, X), X + X)
    assert fxlab.Session(added, X, X).verdict()
    assert fxlab.verdict(added, added, X, X)


def test_a_file_is_of_the_kind_that_its_suffix_names(model, session, tmp_path):
    fxlab.draw(model, X, tmp_path / "a.svg")
    session.save(tmp_path / "b.svg")
    session.save(tmp_path / "c.html")
    session.export(tmp_path / "d.html")
    assert [(tmp_path / name).read_text().lstrip()[:2] for name in ("b.svg", "c.html", "d.html")] == [
        *("<s", "<!", "<!")
    ]
    assert (tmp_path / "a.svg").exists()
    assert "digraph" in session.to_dot()
    assert session.to_html().startswith("<!")


class Divides(nn.Module):
    def forward(self, x):
        return x / 2


def multiplied(graph_module):
    for node in graph_module.graph.nodes:
        if node.target is operator.truediv:
            node.target, node.args = operator.mul, (node.args[0], 0.5)


@pytest.mark.parametrize("name", ["transform", "__call__", "apply", "call", "run"])
def test_a_pass_may_call_its_method_as_other_libraries_do(name):
    cls = type(
        "Multiplied", (fxlab.Transformation,), {name: lambda self, graph_module: multiplied(graph_module)}
    )
    session = fxlab.Session(Divides(), X)
    assert "x * 0.5" in session.apply(cls).code
    assert session.verdict()
    assert "x * 0.5" in cls()(fxlab.trace(Divides(), X)).code


def test_a_pass_without_its_method_says_what_it_needs():
    with pytest.raises(TypeError, match=r"has to implement transform.*transform\(self, graph_module\)"):
        type("Empty", (fxlab.Transformation,), {})()


class Multiplied(torch.fx.Transformer):
    def call_function(self, target, args, kwargs):
        if target is operator.truediv:
            target, args = operator.mul, (args[0], 1 / args[1])
        return super().call_function(target, args, kwargs)


def on_each_node(node: torch.fx.Node):
    if node.target is operator.truediv:
        node.target, node.args = operator.mul, (node.args[0], 0.5)


@pytest.mark.parametrize("pass_", [multiplied, Multiplied, on_each_node])
def test_transformers_and_functions_of_nodes_are_passes(pass_):
    session = fxlab.Session(Divides(), X)
    assert "* 0.5" in session.apply(pass_).code
    assert session.verdict()


def test_passes_are_joined_by_operators_and_by_name(model):
    both = fxlab.FuseBiasInLinear() | "remove-dead-code"
    assert both.name == fxlab.Pipeline("FuseBiasInLinear", fxlab.RemoveDeadCode).name
    assert both == fxlab.FuseBiasInLinear() >> fxlab.RemoveDeadCode()
    assert fxlab.verdict(model, both.apply(fxlab.trace(model, X)), X)


def test_a_function_of_a_graph_module_is_judged_in_the_place_of_a_model(model):
    def halved(gm):
        for node in gm.graph.nodes:
            if node.target == "1":
                node.target = "2"
        gm.recompile()

    assert fxlab.verdict(Divides(), multiplied, X)
    assert fxlab.verdict(multiplied, Divides(), X)
    with pytest.raises(ValueError, match="does not run"):
        fxlab.verdict(model, halved, X)


def test_candidates_are_chosen_where_a_pass_is_applied(session):
    everything = {*session.explain("fuse-bias-in-linear").index}
    assert everything == {"_0", "_2"}
    session.apply("fuse-bias-in-linear", exclude="_0")
    assert session.excluded() == (("_0",),)
    session.undo()
    session.apply("fuse-bias-in-linear", only=["_0"])
    assert session.excluded("fuse-bias-in-linear") == (("_2",),)
    assert [step.candidate for step in session.rewrites() if not step.is_excluded] == [("_0",)]


@pytest.mark.parametrize("where", ["linear", nn.Linear, lambda node: node.target in ("0", "2")])
def test_nodes_are_found_by_what_they_are(session, where):
    assert [node.name for node in session.find(where)] == ["_0", "_2"]
    assert session.nodes(where).index.tolist() == ["_0", "_2"]
    assert fxlab.nodes(session, where=where).index.tolist() == ["_0", "_2"]


def test_rows_of_a_table_are_found_by_name(model, session):
    costs = fxlab.profile(model, X)
    assert costs["_0"].flops == costs.loc["_0", "flops"]
    assert "_0" in costs
    assert "flops" in costs
    assert "nothing" not in costs
    assert costs["0"].index.tolist() == ["_0"]
    assert costs[["node", "params"]].columns.tolist() == ["node", "parameters"]
    assert costs[1].node == costs.rows[1]["name"] == "_0"
    assert {"node", "op", "flops"} <= {*costs[-1]}
    with pytest.raises(KeyError, match="no column, row or module"):
        costs["nothing"]
    with pytest.raises(AttributeError, match="row has no attribute 'nothing'"):
        _ = costs[0].nothing
    assert session.graph_diff().added.empty


def test_a_table_is_true_if_it_has_rows_that_are_no_comparisons(session):
    assert session.explain("fuse-bias-in-linear")
    assert not session.why_not("fuse-bias-in-linear")
    nodes = session.nodes()
    assert session.compare_nodes()["max_abs_diff"].max() == session.compare_nodes()["max_diff"].max() == 0
    for table in (fxlab.compare_outputs(session), session.compare_nodes(), nodes == nodes, nodes.isna()):
        with pytest.raises(ValueError, match=r"fxlab.verdict\(reference, candidate, inputs\)"):
            bool(table)


def test_results_are_iterated_by_their_rows(model):
    verdict = fxlab.verdict(model, model, X)
    assert [row.status for row in verdict] == ["same bits"]
    assert "output" in verdict
    assert len(verdict) == 1
    compared = fxlab.compare(model, model, X)
    assert {row.status for row in compared} == {"agrees"}


def test_a_table_is_a_value_for_pandas_which_calls_what_can_be_called(model):
    costs = fxlab.profile(model, X)
    assert costs() is costs
    assert costs.loc[costs["flops"] > 0].where(costs.notna()).equals(costs[costs["flops"] > 0])


def test_names_are_patterns_and_words_that_add_nothing_are_left_out(session):
    assert fxlab.PassError is fxlab.TransformationError
    assert fxlab.check_pass(fxlab.FuseBiasInLinear(), session.model, X)
    assert session.get_verdict()
    assert session.assert_equal() is None
    assert session.to_exported_program().module()(X).shape == (4, 4)
    with pytest.raises(AttributeError, match="no attribute 'get_nothing'"):
        _ = session.get_nothing
    with pytest.raises(AttributeError):
        _ = fxlab.compile_nothing


def test_what_reads_a_graph_is_asked_of_the_session(session):
    assert {*session.state_dict()} == {*session.graph_module.state_dict()}
    assert session.get_submodule("1") is session.graph_module.get_submodule("1")
    with pytest.raises(AttributeError):
        _ = session.train


def test_summary_says_what_each_pass_has_changed(session):
    assert session.apply("fuse-bias-in-linear").summary().splitlines()[1:] == [
        f"fuse-bias-in-linear: {session.changes('fuse-bias-in-linear')}"
    ]


def test_revert_takes_what_apply_takes_and_all_without_arguments(session):
    session.apply("fuse-bias-in-linear", "remove-dead-code").revert(["fuse-bias-in-linear"])
    assert session.applied == ["remove-dead-code"]
    session.apply(fxlab.FuseBiasInLinear).revert(fxlab.FuseBiasInLinear, "remove-dead-code")
    assert session.applied == []
    assert session.apply("fuse-bias-in-linear").revert().graph_module is session.original
    session.apply("fuse-bias-in-linear").revert([])
    assert session.applied == ["fuse-bias-in-linear"]


def test_a_method_that_is_called_wrongly_says_what_it_takes(session):
    with pytest.raises(TypeError, match=r"exclude\(\): missing .* It takes \(pass_, \*nodes\)"):
        session.exclude()
    with pytest.raises(TypeError, match=r"takes no argument 'tolerance'"):
        session.bisect(tolerance=0)


def test_a_pass_is_applied_under_a_name(session):
    session.apply(fxlab.FuseBiasInLinear(), name="mine")
    assert session.applied == ["mine"]
    with pytest.raises(TypeError, match="expected one pass beside a name, got 2"):
        session.apply("remove-dead-code", "fuse-bias-in-linear", name="both")


def test_inputs_have_their_names_in_every_function():
    wrong, x = Scaled(), X
    assert fxlab.verdict(Scaled(), wrong, x=x, scale=3.0).agrees
    assert fxlab.compare_outputs(Scaled(), Scaled(), x, scale=3.0)["same_bits"].all()
    assert fxlab.profile(model=Scaled(), x=x).index.tolist()[0] == "x"
    session = fxlab.Session(Scaled(), x)
    assert session.verdict(x=x + 1).agrees
    with pytest.raises(TypeError, match="takes no argument 'y'"):
        fxlab.verdict(Scaled(), wrong, y=x)


def test_a_session_takes_the_options_of_a_trace(model):
    assert not fxlab.Session(model, X, dynamic=False).graph.find_nodes(op="call_function", target="sym_size")
    with pytest.raises(TypeError, match=r"dynamic: a graph is taken as it is. Give the model that"):
        fxlab.Session(fxlab.trace(model, X), X, dynamic=False)
    with pytest.raises(TypeError, match="leaf_modules: a graph is taken as it is"):
        fxlab.trace(fxlab.trace(model, X), leaf_modules=[nn.Linear])


def on_graph(graph):
    for node in graph.nodes:
        if node.target is operator.truediv:
            node.target, node.args = operator.mul, (node.args[0], 0.5)


def called_graph(graph):
    on_graph(graph.graph)


@pytest.mark.parametrize("pass_", [on_graph, called_graph])
def test_a_function_of_an_argument_called_graph_is_given_what_it_reads(pass_):
    session = fxlab.Session(Divides(), X).apply(pass_)
    assert "* 0.5" in session.code
    assert session.verdict()


def test_a_name_stands_before_or_behind_a_function(monkeypatch):
    monkeypatch.setattr("fxlab.transformations.registry.REGISTERED", {})
    assert fxlab.register("halved", multiplied).name == "halved"
    assert fxlab.from_callable(multiplied, "halved").name == "halved"
    assert fxlab.from_pattern(lambda x: x / 2, lambda x: x * 0.5, "half").name == "half"


def test_a_condition_of_a_pattern_needs_no_words():
    def never(match):
        return False

    for where in (never, [never]):
        half = fxlab.from_pattern(lambda x: x / 2, lambda x: x * 0.5, match_filters=where)
        session = fxlab.Session(Divides(), X).apply(half)
        assert not session.changes(half)
        assert "never" in str(session.explain(half)["reason"].tolist())


def test_a_result_has_what_the_result_in_it_has(model, session):
    session.replace(lambda x: F.relu(x), lambda x: F.gelu(x))
    assert session.bisect().node == session.bisect().divergence.node
    assert fxlab.compare(model, session, X).status == session.verdict().verdict == "different"
    with pytest.raises(AttributeError):
        _ = session.bisect().agrees


def test_changes_are_a_row_for_each_rewrite(session):
    session.apply("fuse-bias-in-linear")
    for changes in (session.changes("fuse-bias-in-linear"), session.changes()):
        assert [row.removed for row in changes] == ["_0", "_2"]
        assert len(changes) == 2
        assert changes.removed == changes.added == ("_0", "_2")
        assert [(label, row["before"], row.after) for label, row in changes.items()] == [
            *((0, "_0", "_0"), (1, "_2", "_2"))
        ]
    assert session.changes("remove-dead-code").table.empty


def test_a_benchmark_and_a_cost_are_numbers_with_a_table(model, session):
    session.apply("fuse-bias-in-linear")
    times = session.benchmark(runs=2, warmup=2, min_seconds=0)
    assert times.index.tolist() == ["original", "fuse-bias-in-linear"]
    assert times.speedup == times.table["speedup"].iloc[-1]
    assert times["original"].median == times.before > 0
    assert times.after == times.time == dict(times.items())["fuse-bias-in-linear"].seconds
    assert fxlab.benchmark(model, X, rounds=1, min_seconds=0).median > 0
    assert "times as fast as original" in str(times)
    told = json.loads(times.to_json())
    assert told["rows"][1]["passes"] == "fuse-bias-in-linear"
    assert (told["time"], told["speedup"], told["outcome"]) == (times.time, times.speedup, times.outcome)
    cost = fxlab.cost(model, X, by="module")
    assert cost.params == sum(each.numel() for each in model.parameters())
    assert cost.flops == session.revert().cost().flops == cost.table["flops"].sum() == 2 * 4 * (64 + 32)
    with pytest.raises(AttributeError, match="twice the macs"):
        _ = cost.macs
    with pytest.raises(ValueError, match="by: expected 'node' or 'module'"):
        fxlab.cost(model, X, by="layer")


def test_assertions_and_passes_are_where_other_libraries_have_them(model):
    from fxlab.optimization import MergeLinears, Transformation, compose
    from fxlab.testing import assert_close, assert_same

    assert (MergeLinears, Transformation) == (fxlab.MergeLinears, fxlab.Transformation)
    assert inspect.unwrap(compose) is inspect.unwrap(fxlab.compose)
    assert_close(model, model, X)
    with pytest.raises(AssertionError, match="The models differ"):
        assert_same(model, nn.Linear(8, 4), X)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from fxlab.testing import nothing  # noqa: F401


def test_a_pass_that_is_not_on_offer_is_asked_where_it_would_stand(session):
    gelu = fxlab.from_pattern(lambda x: F.relu(x), lambda x: F.gelu(x))
    near = fxlab.from_pattern(lambda x: F.relu(x) + 1, lambda x: x)
    assert len(session.changes(gelu)) == 1
    assert session.explain(gelu)["matched"].all()
    assert len(session.why_not(near)) == 1
    assert gelu not in session.passes
    with pytest.raises(TypeError, match="pass_: expected"):
        session.explain(3)


def test_a_pass_of_fxlab_that_is_not_on_offer_is_applied_by_name(session):
    assert session.apply("deep-copy").applied == ["DeepCopy"]
    assert session.add("nothing", lambda graph_module: graph_module).passes.names[-1] == "nothing"
    assert dict(session.passes.items())["nothing"] is session.passes["nothing"]
    other = fxlab.Session(session.model, X, passes=[])
    with pytest.raises(ValueError, match="there is no pass 'merge-linears'"):
        other.apply("merge-linears")


def test_nodes_are_found_by_their_columns(model, session):
    assert session.nodes(op="placeholder").index.tolist() == ["input_1"]
    assert [node.name for node in session.find_nodes(op="call_module", target="1")] == ["_1"]
    assert fxlab.nodes(model, X, module="0").index.tolist() == ["_0"]
    assert session.nodes("linear", module="2").index.tolist() == ["_2"]
    assert session.nodes(target="nothing").empty
    with pytest.raises(TypeError, match="takes no argument 'dtype'"):
        session.nodes(dtype="float32")


def test_a_judgement_is_asserted_and_told(model, session):
    session.verdict().assert_same()
    session.replace(lambda x: F.relu(x), lambda x: F.gelu(x))
    for found in (session.verdict(), fxlab.compare(model, session, X)):
        assert found.summary() == str(found)
        with pytest.raises(AssertionError, match="different"):
            found.raise_if_different()
    assert found.first.node == found.first.nodes[0]
    assert found.where.module == found.first.candidate
    assert session.bisect().pass_name == session.applied[0].name
    with pytest.raises(fxlab.PassError) as raised:
        session.apply(lambda gm: 1 / 0)
    assert raised.value.pass_name == "lambda"


def test_passes_are_a_table_by_any_name(session):
    assert session.passes.to_dataframe().equals(session.passes.table)
    assert fxlab.passes().df.index[0] == "remove-dead-code"


def test_tolerances_are_those_of_compare_outputs(model, session):
    session.replace(lambda x: F.relu(x), lambda x: F.gelu(x))
    assert session.compare_outputs(atol=10.0)["allclose"].all()
    assert not session.compare_outputs()["allclose"].any()
    with pytest.raises(TypeError, match=r"takes no argument 'atol'.*No tolerance is chosen"):
        fxlab.assert_same(model, session, X, atol=1e-5)


def test_a_function_of_a_graph_takes_a_model_and_its_inputs(model):
    assert len(fxlab.find_matches(model, lambda x: F.relu(x), X)) == 1


def test_nodes_of_a_pass_are_highlighted_by_its_name(session):
    session.apply("fuse-bias-in-linear")
    assert session.draw(highlight="FuseBiasInLinear").svg == session.draw(highlight=session.applied).svg
    with pytest.raises(ValueError, match="it names 'merge-linears', but the graph has no such node"):
        session.draw(highlight="merge-linears")


@pytest.mark.parametrize("wrong", [None, 3, object(), nn.Bilinear, "none of that name"])
def test_what_is_no_pass_is_not_reverted(session, wrong):
    with pytest.raises((TypeError, ValueError), match="pass_: "):
        session.revert(wrong)


def test_a_model_is_named_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bert = BertModel(bert_config(1)).eval()
    bert.save_pretrained("folder")
    for place in ("folder", tmp_path / "folder"):
        assert fxlab.compare(place, bert).same_bits
    assert isinstance(fxlab.Session("folder/config.json").model, BertModel)
    made = f"{tmp_path.name.replace('-', '_')}.py"  # Python imports a name once
    (tmp_path / made).write_text("import torch\nmodel = torch.nn.Linear(4, 2), torch.ones(3, 4)\n")
    assert fxlab.Session(f"{made}:model").verdict()
    with pytest.raises(ValueError, match=r"there is no nothing in"):
        fxlab.Session(f"{made}:nothing")
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module"):
        fxlab.Session("no such folder")


def test_all_passes_are_applied_by_one_word(session):
    assert session.apply("all").applied == session.passes


def test_a_compile_is_of_one_call(model):
    with pytest.raises(TypeError, match=r"inputs: expected those of one call, got a list of 2"):
        fxlab.compile_session(model, [X, X[:2]])


def test_a_name_that_would_mislead_is_refused(model, session):
    for ask in (
        lambda: session.verdict().nodes,
        lambda: session.compiled_model,
        lambda: session.num_nodes,
        lambda: session.gradients,
        lambda: session.verdict().max_rel_diff,
    ):
        with pytest.raises(AttributeError, match="has no attribute"):
            ask()
