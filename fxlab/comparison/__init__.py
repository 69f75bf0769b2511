"""Two models of any origin, compared: aligned by their values, with the first place where they part."""

from fxlab.comparison.compare import compare as compare
from fxlab.comparison.comparison import FirstDifference as FirstDifference
from fxlab.comparison.recorded.recorded_run import RecordedRun as RecordedRun

__all__ = ["FirstDifference", "RecordedRun", "compare"]
