"""Models whose trained weights packages carry: passes change no decision that rounding does not."""

import pytest

from benchmarks.trained import AGREE, MODELS, rows

pytestmark = [pytest.mark.weekly, pytest.mark.slow]


def test_passes_on_trained_models_agree_and_change_no_decision_beyond_rounding():
    found = list(rows())
    assert [row for row in found if row["verdict"] not in AGREE or row["unexplained"]] == []
    assert {row["model"] for row in found} == set(MODELS)
    assert sum(bool(row["passes"]) for row in found) > len(found) / 2
