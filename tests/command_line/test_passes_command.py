"""``fxlab passes``, and the names by which passes are chosen."""

import json

import pytest

import fxlab as fxlab_module
from fxlab.command_line.exit_code import CommandError
from fxlab.command_line.passed_session import chosen_names
from fxlab.transformations import available

NAMES = [cls().name for cls in available()]


def test_every_pass_is_listed_with_what_it_does(fxlab):
    answer = json.loads(fxlab("passes", "--format", "json").out)
    assert [row["name"] for row in answer["passes"]] == NAMES
    assert all(
        row["description"] and hasattr(fxlab_module, row["class"].removeprefix("fxlab."))
        for row in answer["passes"]
    )


def test_in_text_each_has_a_line(fxlab):
    lines = fxlab("passes").out.splitlines()
    assert len(lines) == 2 + len(NAMES)


def test_those_of_other_packages_are_listed_too(fxlab, somebodys_passes):
    rows = json.loads(fxlab("passes", "--format", "json").out)["passes"]
    assert [row["name"] for row in rows if not row["class"].startswith("fxlab.")] == [
        "double-weights",
        "raising",
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("merge-linears", ["merge-linears"]),
        ("fuse-bias, merge,,", ["merge-linears", "fuse-bias-in-linear"]),
        ("merge,merge-linears", ["merge-linears"]),
        ("MergeLinears,merge_linears", ["merge-linears"]),
        ("all", NAMES),
    ],
)
def test_names_and_their_beginnings_choose_in_the_order_of_application(words, names):
    assert chosen_names(words, NAMES) == names


def test_a_name_that_begins_another_is_itself():
    assert chosen_names("fuse", ["fuse", "fuse-more"]) == ["fuse"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fuse-b", "'fuse-b' may be fuse-batch-norm2d-in-conv2d.* Write the whole name"),
        ("merge-linear-layers", "no pass 'merge-linear-layers'. Did you mean 'merge-linears'"),
        ("xyz", f"no pass 'xyz'. {len(NAMES)} are on offer"),
    ],
)
def test_words_that_mean_no_pass_or_several_are_refused(words, message):
    with pytest.raises(CommandError, match=message):
        chosen_names(words, NAMES)
