"""Comparisons as assertions, and sessions of tests that leave reports when they fail."""

import pytest
import torch
from torch import nn

import fxlab

pytest_plugins = ["pytester"]


def test_models_that_agree_pass_and_others_name_the_place(tmp_path):
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    fxlab.assert_same(reference, lambda x: torch.nn.functional.gelu(reference[0](x)), torch.randn(2, 4))
    wrong = nn.Sequential(reference[0], nn.GELU("tanh"))
    page = tmp_path / "page.html"
    with pytest.raises(AssertionError, match=r"(?s)First: 1: .*Report: .*page\.html"):
        fxlab.assert_same(reference, wrong, torch.randn(2, 4), report=page)
    assert page.exists()


def test_a_failed_test_leaves_a_report_of_its_session(pytester, tmp_path):
    pytester.makepyfile("""
        import torch

        def test_right(fxlab_session):
            assert fxlab_session(torch.nn.Linear(2, 2), torch.ones(1, 2)).verdict()

        def test_wrong(fxlab_session):
            session = fxlab_session(torch.nn.Linear(2, 2), torch.ones(1, 2))
            assert not session.verdict()
    """)
    # What the tests import is imported before: pytester takes back what is imported meanwhile.
    fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2)).report(tmp_path / "report.html")
    result = pytester.runpytest_inprocess("--fxlab-reports=reports")
    result.assert_outcomes(passed=1, failed=1)
    assert [file.name for file in (pytester.path / "reports").iterdir()] == [
        "test_a_failed_test_leaves_a_report_of_its_session-py-test_wrong.html"
    ]


def test_a_fixture_compares_two_models_and_leaves_a_report(pytester, tmp_path):
    pytester.makepyfile("""
        import torch

        def test_right(fxlab_compare):
            model = torch.nn.Linear(2, 2)
            assert fxlab_compare(model, model, torch.ones(1, 2)).same_bits

        def test_wrong(fxlab_compare):
            fxlab_compare(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.ones(1, 2))
    """)
    fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2)).report(tmp_path / "report.html")
    result = pytester.runpytest_inprocess("--fxlab-reports=reports")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: The models differ*"])
    assert len([*(pytester.path / "reports").iterdir()]) == 1
