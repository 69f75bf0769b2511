"""Recorded runs, also of another process or library: one is a file, and two are compared as models are."""

from fxlab.comparison.recorded.compare_recorded import compare_runs as compare_runs
from fxlab.comparison.recorded.record_run import record_run as record_run
from fxlab.comparison.recorded.recorded_run import RecordedRun as RecordedRun

__all__ = ["RecordedRun", "compare_runs", "record_run"]
