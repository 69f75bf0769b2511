"""Names of passes are understood in any common spelling wherever a pass is named."""

import pytest
import torch
from torch import nn

from fxlab import Session, benchmark
from fxlab.command_line.passed_session import chosen_names
from fxlab.transformations import available, offered
from fxlab.transformations.pass_names import find_name

NAMES = [pass_.name for pass_ in offered()]


@pytest.mark.parametrize("cls", available(), ids=lambda cls: cls.__name__)
def test_every_pass_is_found_by_its_class_and_in_each_spelling(cls):
    name = cls().name
    spaced = name.replace("-", " ").capitalize()
    for spelling in (name, name.replace("-", "_"), name.upper(), spaced, cls.__name__):
        assert find_name(spelling, NAMES) == name


def test_a_name_as_it_is_written_wins_over_one_in_another_spelling():
    assert find_name("a-b", ["A_B", "a-b"]) == "a-b"
    with pytest.raises(ValueError, match="'ab' may be A_B, a-b"):
        find_name("ab", ["A_B", "a-b"])


def test_a_prefix_counts_where_it_is_asked_for_alone():
    assert find_name("Fuse_Bias", NAMES, by_prefix=True) == "fuse-bias-in-linear"
    with pytest.raises(
        ValueError, match=r"there is no pass 'Fuse_Bias'\. Did you mean 'fuse-bias-in-linear'"
    ):
        find_name("Fuse_Bias", NAMES)


def test_all_that_begin_like_a_name_may_be_meant():
    with pytest.raises(ValueError, match="Did you mean 'fuse-a-in-b' or 'fuse-a-in-c'"):
        find_name("fuse-a", ["fuse-a-in-b", "fuse-a-in-c", "fuse-b"])


def test_sessions_benchmarks_and_the_command_line_understand_all_spellings():
    session = Session(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))), torch.ones(1, 2))
    for spelling in ("FuseBiasInLinear", "fuse_bias_in_linear", "Fuse bias in linear"):
        session.apply(spelling)
        assert session.is_on("fuse-bias-in-linear")
        session.revert(spelling)
        table = benchmark(session, passes=[spelling], rounds=1, min_seconds=0)
        assert table.index.tolist() == ["original", "fuse-bias-in-linear"]
        assert chosen_names(spelling, NAMES) == ["fuse-bias-in-linear"]
    for use in (session.apply, session.revert, session.find, session.explain, session.exclude):
        with pytest.raises(ValueError, match="Did you mean 'merge-linears'"):
            use("merge-linear")
    with pytest.raises(ValueError, match=r"passes: .* Did you mean 'merge-linears'"):
        benchmark(session, passes=["merge-linear"])
