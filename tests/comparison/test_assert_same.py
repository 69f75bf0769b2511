"""Comparisons as assertions."""

import pytest
import torch
from torch import nn

import fxlab


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
