"""Passes on offer are found by their exact names."""

import pytest
import torch

import fxlab

X = torch.ones(2)


def offer():
    return fxlab.Session(lambda x: torch.relu(x) / 2, X)


@pytest.mark.parametrize("written", ["Merge-Linears", "merge_linears", "merge", "MergeLinears", "fuse-batch"])
def test_another_spelling_is_answered_with_the_exact_name(written):
    session = offer()
    with pytest.raises(ValueError, match=r"there is no pass .*Did you mean '(merge-linears|fuse-batch-norm)"):
        session.apply(written)
    assert session.applied.names == ()


def test_a_tuple_of_passes_finds_them_by_name_and_by_place():
    passes = offer().passes
    assert passes["merge-linears"] in passes
    assert "merge-linears" in passes
    assert "merge" not in passes
    assert passes[0].name == passes.names[0]
    with pytest.raises(KeyError, match="merge-linears"):
        passes["merge-linear"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (fxlab.MergeLinears, r"Call the class: MergeLinears\(\)"),
        ([fxlab.MergeLinears()], r"each as an argument: \*passes"),
        ((lambda x: x, lambda x: x), r"fxlab\.from_pattern"),
        (3, "expected a transformation, its name, or a function of a graph module, got 3"),
    ],
)
def test_another_kind_is_answered_with_what_to_write(given, words):
    with pytest.raises(TypeError, match=words):
        offer().apply(given)
