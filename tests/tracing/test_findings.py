"""Codes of findings and of errors of a trace, by which programs tell them apart."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import fxlab
from fxlab.base.reasons import Reason
from fxlab.tracing.report import Found, Obstacle

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.parametrize("table", [Found, Obstacle, Reason])
def test_codes_are_in_kebab_case_and_each_stands_for_one_thing(table):
    codes = [entry.code for entry in table]
    assert len({*codes}) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


def test_each_kind_of_finding_is_explained_in_the_docs():
    explained = (DOCS / "tracing.md").read_text()
    assert not [found.code for found in Found if f"`{found.value[0]}`" not in explained]


def test_findings_are_a_table_with_their_codes():
    traced = fxlab.symbolic_trace(nn.Linear(2, 3), torch.ones(4, 2))
    table = traced.meta["trace"].table
    assert table["kind"].tolist() == ["check", "check", "symbolic size", "fixed size"]
    assert table["code"].tolist() == ["same-bits", "same-bits", "followed-size", "fixed-size"]


@pytest.mark.parametrize("compiled", [torch.compile(nn.ReLU(), backend="eager"), nn.ReLU()])
def test_a_trace_of_a_compiled_model_says_that_it_is_one_of_its_source(compiled):
    is_compiled = not isinstance(compiled, nn.ReLU)
    codes = fxlab.symbolic_trace(compiled, torch.ones(4, 2)).meta["trace"].table["code"].tolist()
    assert (Found.COMPILED.code in codes) == is_compiled
