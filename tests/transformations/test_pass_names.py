"""Names of passes are understood in any common spelling wherever a pass is named."""

import pytest
import torch
from torch import nn

import fxlab
from fxlab import Session, benchmark
from fxlab.command_line.passed_session import chosen_names
from fxlab.transformations import available, offered
from fxlab.transformations.pass_names import find_names

NAMES = [pass_.name for pass_ in offered()]
BATCH_NORMS = [name for name in NAMES if name.startswith("fuse-batch-norm")]


@pytest.mark.parametrize("cls", available(), ids=lambda cls: cls.__name__)
def test_every_pass_is_found_by_its_class_and_in_each_spelling(cls):
    name = cls().name
    spaced = name.replace("-", " ").capitalize()
    for spelling in (name, name.replace("-", "_"), name.upper(), spaced, cls.__name__):
        assert find_names(spelling, NAMES) == [name]


def test_a_name_as_it_is_written_wins_over_one_in_another_spelling():
    assert find_names("a-b", ["A_B", "a-b"]) == ["a-b"]
    with pytest.raises(ValueError, match="'ab' may be A_B, a-b"):
        find_names("ab", ["A_B", "a-b"])


def test_a_prefix_counts_where_it_is_asked_for_alone():
    assert find_names("Fuse_Bia", NAMES, by_prefix=True) == ["fuse-bias-in-linear"]
    with pytest.raises(ValueError, match=r"there is no pass 'Fuse_Bia'\. Did you mean 'fuse-bias-in-linear'"):
        find_names("Fuse_Bia", NAMES)


def test_all_that_have_the_words_of_a_name_may_be_meant():
    with pytest.raises(ValueError, match=r"'fuse-a' may be fuse-a-in-b, fuse-a-in-c\. Write the whole name"):
        find_names("fuse-a", ["fuse-a-in-b", "fuse-a-in-c", "fuse-b"])


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("div-to-mul", ["change-true-div-to-mul-by-inverse"]),
        ("Fuse_Bias", ["fuse-bias-in-linear"]),
        ("FuseBatchNorm", BATCH_NORMS),
        ("fuse-batchnorm", BATCH_NORMS),
        ("fuse_conv_bn", [name for name in BATCH_NORMS if "conv" in name]),
        ("batch_norm2d", ["fuse-batch-norm2d-in-conv2d"]),
        ("CSE", ["eliminate-common-subexpressions"]),
        ("constant_folding", ["fold-constants"]),
    ],
)
def test_words_of_a_name_mean_the_pass_or_the_passes_of_a_kind_that_have_them(part, names):
    assert find_names(part, offered()) == names


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("fuse", "'fuse' may be fuse-batch-norm2d-in-conv2d, .*fuse-attention"),
        ("fuse-norm", "may be .*fuse-rms-norm"),
        ("merge-linear", "Did you mean 'merge-linears'"),
        ("fuse-gelu", "there is no pass 'fuse-gelu'. Did you mean 'fuse-activation'"),
    ],
)
def test_words_of_several_kinds_and_other_words_mean_no_pass(part, words):
    with pytest.raises(ValueError, match=words):
        find_names(part, offered())


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.linear, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.last(self.linear(self.norm(self.conv(x)).mean((2, 3))))


IN_CONV, IN_LINEAR = "fuse-batch-norm2d-in-conv2d", "fuse-batch-norm1d-in-linear"


def test_passes_of_a_kind_are_switched_told_and_excluded_together():
    session = Session(Normed().eval(), torch.ones(2, 3, 4, 4))
    assert session.changes("fuse-bn").rewrites == 2
    session.apply("fuse-batchnorm")
    assert session.applied.names == (IN_CONV, IN_LINEAR)
    assert session._internals.is_on("FuseBatchNorm")
    assert "batch-norm" in session.applied
    assert session.applied.names == ("batch-norm",)
    assert session.verdict("fuse-bn").agrees
    assert len(session.rewrites("fuse-bn")) == 2
    assert set(session.explain("fuse-bn")["pass"]) == {IN_CONV, IN_LINEAR}
    assert session.why_not("fuse-bn").empty
    session.exclude("fuse-bn", "norm")
    assert session._internals.excluded("fuse-bn") == (("norm",),)
    with pytest.raises(ValueError, match="does not exclude 'conv'"):
        session.include("fuse-bn", "conv")
    session.include("fuse-bn", "norm").toggle("fuse-bn")
    assert session.applied == ()
    session.applied = ["fuse-bn"]
    assert session.revert("fuse-bn").applied == ()
    assert session.apply("fuse-bn", only="last").applied.names == (IN_LINEAR,)
    with pytest.raises(ValueError, match="'nothing' is neither"):
        session.exclude("fuse-bn", "nothing")
    with pytest.raises(ValueError, match=r"'fuse-bn' may be .* Write the whole name"):
        session.move("fuse-bn", 0)
    assert session.remove("fuse-bn").undo().applied.names == (IN_LINEAR,)
    session = Session(session.model, session.inputs)
    assert benchmark(session, passes=["fuse-bn"], each=True, rounds=1, min_seconds=0).index.tolist() == [
        *("original", IN_CONV, IN_LINEAR, f"{IN_CONV} + {IN_LINEAR}")
    ]


def test_all_of_a_kind_are_on_where_none_changes_anything():
    session = Session(lambda x: x + 1, torch.ones(2))
    assert session.apply("fuse-batchnorm").applied.names == BATCH_NORMS
    assert not session.changes("fuse-batchnorm")
    assert [
        each.name for each in Session(lambda x: x + 1, torch.ones(2), passes=["bn"]).passes
    ] == BATCH_NORMS


def test_nodes_are_found_before_a_part_of_a_name():
    session = Session(Normed().eval(), torch.ones(2, 3, 4, 4))
    assert [node.name for node in session.find("linear")] == ["linear"]
    assert session.find("fuse-layer-norm").name == "fuse-layer-norm"


def test_a_part_of_a_name_is_that_of_the_offer_also_among_what_is_on():
    def own_attention(graph_module):
        return graph_module

    session = Session(lambda x: x + 1, torch.ones(2)).apply(fxlab.from_callable(own_attention))
    assert "own_attention" in session.applied
    assert "attention" not in session.applied
    with pytest.raises(ValueError, match="'attention' may be fuse-attention, own-attention"):
        session._internals.is_on("attention")


def test_sessions_benchmarks_and_the_command_line_understand_all_spellings():
    session = Session(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))), torch.ones(1, 2))
    for spelling in ("FuseBiasInLinear", "fuse_bias_in_linear", "Fuse bias in linear"):
        session.apply(spelling)
        assert session._internals.is_on("fuse-bias-in-linear")
        session.revert(spelling)
        table = benchmark(session, passes=[spelling], rounds=1, min_seconds=0)
        assert table.index.tolist() == ["original", "fuse-bias-in-linear"]
        assert chosen_names(spelling, NAMES) == ["fuse-bias-in-linear"]
    for use in (session.apply, session.revert, session.find, session.explain, session.exclude):
        with pytest.raises(ValueError, match="Did you mean 'merge-linears'"):
            use("merge-linear")
    with pytest.raises(ValueError, match=r"passes: .* Did you mean 'merge-linears'"):
        benchmark(session, passes=["merge-linear"])
