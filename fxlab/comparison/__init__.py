"""Two models of any origin, compared: aligned by their values, with the first place where they part."""

from fxlab.comparison.compare import assert_same as assert_same
from fxlab.comparison.compare import compare as compare
from fxlab.comparison.comparison import Comparison as Comparison
from fxlab.comparison.comparison import FirstDifference as FirstDifference
from fxlab.comparison.recorded.compare_runs import compare_runs as compare_runs
from fxlab.comparison.recorded.record_run import record_run as record_run
from fxlab.comparison.recorded.recorded_run import RecordedRun as RecordedRun
from fxlab.comparison.weights_table import compare_weights as compare_weights

__all__ = [
    "Comparison", "FirstDifference", "RecordedRun", "assert_same", "compare", "compare_runs",
    "compare_weights", "record_run",
]  # fmt: skip
