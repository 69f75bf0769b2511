"""Assertions for tests of passes and models."""

from fxlab.comparison.compare import assert_same as assert_same
from fxlab.session.expecting import expect as expect
from fxlab.session.expecting import expect_no_match as expect_no_match

__all__ = ["assert_same", "expect", "expect_no_match"]
