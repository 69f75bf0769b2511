"""What people look for on a session, and the forms in which they give models and inputs."""

import copy
import functools
import json
import pickle
import re

import numpy as np
import pytest
import torch
from torch import nn

import fxlab


@pytest.fixture
def session():
    torch.manual_seed(0)
    return fxlab.Session(nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval(), torch.ones(1, 2))


def test_functions_of_a_session_are_its_methods(session, tmp_path):
    session.apply("remove-identities")
    assert str(session.draw()) == str(fxlab.draw(session))
    assert session.nodes().equals(fxlab.nodes(session))
    assert session.report(tmp_path / "r.html").exists()
    assert session.export(tmp_path / "m.pt2").path.exists()
    assert session.bisect() is None
    assert session.compare(session.original).agrees
    assert not session.benchmark(rounds=1, min_seconds=0).empty


class Third(nn.Module):
    def forward(self, x):
        return x / 3


TABLES = (
    *("benchmark", "collectives", "compare_nodes", "compare_outputs", "compare_stages", "compare_weights"),
    *("graph_diff", "nodes", "profile", "transformed_nodes"),
)


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_those_of_the_docstring_and_none_is_empty(name):
    session = fxlab.Session(nn.Sequential(nn.Linear(2, 64), Third()), torch.ones(1, 2))
    session.apply(["fuse-bias-in-linear", "change-true-div-to-mul-by-inverse"])
    function = getattr(fxlab, name, None) or getattr(fxlab.validation, name)
    table = function(*([session.original, session] if name == "compare_weights" else [session]))
    told = {*re.findall(r"``(\w+)``", function.__doc__)}
    assert {str(each).removesuffix("_before") for each in (*table.columns, table.index.name)} <= told
    assert not [column for column in table.columns if len(table) and table[column].isna().all()]


def test_a_session_shows_itself(session):
    session.apply("remove-identities")
    assert repr(session).startswith("<Session of Sequential: remove-identities on, ")
    assert "<svg" in session._repr_html_()
    assert repr(session.verdict()).startswith("<Verdict: same bits")
    assert "<table" in session.verdict()._repr_html_()


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        (np.ones((1, 2), "float32"), {}),
        ({"input": np.ones((1, 2), "float32")}, {}),
        ([np.ones((1, 2), "float32")], {}),
        (None, {"input": torch.ones(1, 2)}),
    ],
)
def test_inputs_come_as_arrays_and_keyword_arguments(inputs, arguments):
    assert fxlab.Session(nn.Linear(2, 2), inputs, **arguments).verdict()


def test_inputs_given_twice_are_refused():
    with pytest.raises(TypeError, match="beside the keyword arguments input"):
        fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2), input=torch.ones(1, 2))


def test_more_inputs_in_the_place_of_those_by_name_are_refused():
    with pytest.raises(TypeError, match=r"kwargs: .* got False\. All inputs are one argument: \(a, b\)"):
        fxlab.trace(lambda parts, flag: parts[0] + flag, [torch.ones(2)], False)


def test_functions_and_pipelines_are_models():
    assert fxlab.Session(lambda x: x + 1, torch.ones(2)).verdict()
    with pytest.raises(TypeError, match="what the function <lambda> is called with"):
        fxlab.Session(lambda x: x + 1)
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16, vocab_size=20
        )
    ).eval()
    pipeline = transformers.Pipeline.__new__(
        type("Features", (transformers.Pipeline,), dict.fromkeys(transformers.Pipeline.__abstractmethods__))
    )
    pipeline.model = model
    assert fxlab.Session(pipeline).original.get_submodule("encoder.layer.0") is not None


def test_whatever_is_a_pass_is_applied(session):
    from torch.fx.passes.infra.pass_base import PassBase

    class Base(PassBase):
        def call(self, graph_module):
            pass

    def one(graph_module):
        pass

    def two(graph_module, count):
        pass

    pattern = (lambda x: torch.relu(x), lambda x: torch.relu(x))
    session.apply(
        "remove-identities", fxlab.DeepCopy, [one, functools.partial(two, count=2)], Base(), pattern
    )
    assert len(session.applied) == 6
    session.apply(one)
    assert len(session.applied) == 6
    assert (
        fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2), passes=[fxlab.MergeLinears, one]).passes[1].name
        == "one"
    )


@pytest.mark.parametrize(
    ("wrong", "error"), [(3, TypeError), (nn.Linear, TypeError), ("merge-lines", ValueError)]
)
def test_what_is_no_pass_is_refused(session, wrong, error):
    with pytest.raises(error):
        session.apply(wrong)
    assert session.applied == ()


def test_a_pattern_and_its_replacement_that_were_taken_for_two_passes_are_told(session):
    with pytest.raises(fxlab.TransformationError) as raised:
        session.apply(lambda x: torch.relu(x), lambda x: torch.relu(x))
    assert raised.value.__notes__ == [
        "Each function was taken for a pass. A pattern and its replacement are one tuple: "
        "session.apply((pattern, replacement))."
    ]


def test_a_module_stands_for_its_nodes():
    torch.manual_seed(0)

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) + self.b(x)

    session = fxlab.Session(nn.Sequential(Heads(), Heads()), torch.ones(1, 4))
    session.apply("merge-linears")
    session.exclude("merge-linears", "1")
    assert all(
        name.startswith("_1_") for candidate in session.excluded("merge-linears") for name in candidate
    )
    assert fxlab.node_values(session, "0.a").node == "_0_a"
    with pytest.raises(ValueError, match=r"no node or module named '0\.c'\. Did you mean '0\."):
        fxlab.node_values(session, "0.c")


def test_a_session_says_that_it_is_not_copied(session):
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"session\.save.* fxlab\.load_session"):
            attempt(session)
    session.apply("remove-identities")
    other = copy.copy(session)
    other.revert("remove-identities")
    assert session.applied


def test_a_verdict_is_plain_values(session):
    verdict = session.verdict()
    told = json.loads(json.dumps(verdict.as_dict()))
    assert told.pop("outputs")["output"]["status"] == "same bits"
    assert told.pop("notes") == []
    assert told == {name: getattr(verdict, name) for name in told}
    assert told.keys() >= {"agrees", "status", "reason", "ratio", "max_abs_diff", "compared", "decided_by"}


def test_a_session_alone_is_compared_with_its_original(session, tmp_path):
    session.apply("remove-identities")
    assert fxlab.compare(session).agrees
    assert fxlab.report(session, tmp_path / "r.html").exists()
    assert not fxlab.nodes(nn.Linear(2, 2), torch.ones(1, 2)).empty


def test_configurations_are_models_with_random_weights():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16, vocab_size=20
    )
    assert fxlab.Session(config).verdict()
