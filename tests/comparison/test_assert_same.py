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


def test_a_report_that_cannot_be_written_is_told_before_models_differ(tmp_path):
    for report, error in ((tmp_path / "no" / "page.html", OSError), ("page.txt", ValueError), (3, TypeError)):
        with pytest.raises(error, match=r"^report: "):
            fxlab.assert_same(nn.Identity(), nn.Identity(), torch.ones(2), report=report)


def test_failed_tests_leave_reports_of_their_sessions_and_comparisons(pytester, tmp_path):
    pytester.makepyfile("""
        import pytest, torch

        LINEAR, X = torch.nn.Linear(2, 2), torch.ones(1, 2)

        def test_right(fxlab_session, fxlab_compare):
            assert fxlab_session(LINEAR, X).verdict()
            assert fxlab_compare(LINEAR, LINEAR, X).same_bits

        def test_wrong(fxlab_session):
            assert not fxlab_session(LINEAR, X).verdict()

        def test_other(fxlab_compare, monkeypatch, tmp_path_factory):
            monkeypatch.chdir(tmp_path_factory.mktemp("other"))
            fxlab_compare(LINEAR, torch.nn.Linear(2, 2), X)

        @pytest.mark.parametrize("name", ["a-b", "a.b", "c"])
        def test_names(fxlab_session, name):
            assert not fxlab_session(LINEAR, X)
    """)
    # What the tests import is imported before: pytester takes back what is imported meanwhile.
    fxlab.report(fxlab.Session(nn.Linear(2, 2), torch.ones(1, 2)), tmp_path / "report.html")
    result = pytester.runpytest_inprocess("--fxlab-reports=reports")
    result.assert_outcomes(passed=1, failed=5)
    result.stdout.fnmatch_lines(["*AssertionError: The models differ*"])
    begin = "test_failed_tests_leave_reports_of_their_sessions_and_comparisons-py-test"
    written = {file.name for file in (pytester.path / "reports").iterdir()}
    alike = {name for name in written if name.startswith(f"{begin}_names-a-b-")}
    assert written - alike == {f"{begin}_{name}.html" for name in ("wrong", "other", "names-c")}
    assert len(alike) == 2
    # A second test with a pytester of its own would import torch's compiler again.
    (pytester.path / "file").touch()
    result = pytester.runpytest_inprocess("--fxlab-reports=file", "-Wdefault", "-k", "wrong")
    result.assert_outcomes(failed=1, deselected=5, warnings=1)
    result.stdout.fnmatch_lines(["*There is no report of *File exists*"])
