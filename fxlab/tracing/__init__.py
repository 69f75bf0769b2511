"""Model in, ``GraphModule`` out: one run of the model is recorded."""

from fxlab.tracing.report import TraceError, TraceReport, TraceWarning

__all__ = ["TraceError", "TraceReport", "TraceWarning"]
