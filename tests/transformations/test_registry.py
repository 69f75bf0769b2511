"""The registry: fxlab's own passes, and those that other installed packages offer by entry points."""

import inspect
import pkgutil
import sys
from importlib import import_module

import pytest
import torch
from exactness import traced
from installed_passes import install_passes
from torch import nn

import fxlab
from fxlab import Transformation
from fxlab.transformations import available, installed, passes

MODULE = """
import torch
from fxlab import from_callable, MergeLinears, Transformation


class Nothing(Transformation):
    def transform(self, graph_module):
        return graph_module


class NeedsArguments(Transformation):
    def __init__(self, argument):
        self.argument = argument

    def transform(self, graph_module):
        return graph_module


class Nameless(Nothing):
    @property
    def signature(self):
        raise RuntimeError("no signature")


def double(graph_module):
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.neg


negate = from_callable(double, name="negate")
again = from_callable(double, name="negate")
number = 3
"""


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Return a function that installs a distribution with entry points."""

    def install(**entry_points):
        install_passes(tmp_path, "somebodys_passes", MODULE, entry_points)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    sys.modules.pop("somebodys_passes", None)


def test_classes_and_instances_are_offered_by_name(offer):
    offer(b="somebodys_passes:Nothing", a="somebodys_passes:negate")
    assert [transformation.name for transformation in installed()] == ["negate", "nothing"]


def test_a_session_offers_them_above_fxlabs_own(offer):
    offer(negate="somebodys_passes:negate")

    class Model(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    session = fxlab.Session(traced(Model()), (torch.randn(3),))
    assert [pass_.name for pass_ in session.passes] == [*(cls().name for cls in available()), "negate"]
    session.apply("negate")
    assert [node.name for node in session.passes[-1].get_transformed_nodes(session.graph_module)] == ["relu"]
    session.revert("negate")
    assert session.graph_module is session.original


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:Nothing", "ModuleNotFoundError"),
        ("somebodys_passes:NoSuchClass", "AttributeError"),
        ("somebodys_passes:number", "got 3"),
        ("somebodys_passes:double", "got a function"),
        ("torch.nn:Linear", "got the class Linear"),
        ("somebodys_passes:NeedsArguments", "argument"),
        ("somebodys_passes:Nameless", "no signature"),
        ("somebodys_passes:Transformation", "abstract"),
        ("fxlab:MergeLinears", "there is a transformation 'merge-linears' already"),
    ],
)
def test_what_cannot_be_offered_is_left_out_with_a_warning_that_names_it(offer, value, reason):
    offer(broken=value, good="somebodys_passes:Nothing")
    with pytest.warns(UserWarning, match=f"'broken' of somebodys-package .*{reason}") as caught:
        found = installed()
    assert [transformation.name for transformation in found] == ["nothing"]
    assert len(caught) == 1


def test_of_two_with_one_name_the_first_is_offered(offer):
    offer(a="somebodys_passes:negate", b="somebodys_passes:again")
    with pytest.warns(UserWarning, match="'b' of somebodys-package"):
        (found,) = installed()
    assert found.name == "negate"


def test_a_broken_one_does_not_keep_a_session_from_being_made(offer):
    offer(broken="no_such_module:Nothing")
    with pytest.warns(UserWarning, match="'broken'"):
        session = fxlab.Session(traced(nn.Sequential(nn.ReLU())), (torch.randn(3),))
    assert len(session.passes) == len(available())


def test_each_pass_has_a_line_in_the_stub_and_each_row_of_the_order_is_a_pass():
    files = pkgutil.walk_packages(passes.__path__, f"{passes.__name__}.")
    values = (value for file in files for value in vars(import_module(file.name)).values())
    classes = {each for each in values if inspect.isclass(each) and issubclass(each, Transformation)}
    own = {cls for cls in classes if cls.__module__.startswith(passes.__name__)}
    own = {cls.__name__ for cls in own if own.isdisjoint(cls.__subclasses__())}
    assert own == {*passes.__all__}, (
        "each pass needs `from its.file import Pass as Pass` in fxlab/__init__.pyi"
    )
    assert passes.ORDER.keys() <= own
