"""Model in, ``GraphModule`` out: one run of the model is recorded."""

from fxlab.tracing.from_exported import from_exported
from fxlab.tracing.inputs.example_inputs import example_inputs
from fxlab.tracing.report import TraceError, TraceReport, TraceWarning
from fxlab.tracing.symbolic_trace import symbolic_trace

__all__ = ["TraceError", "TraceReport", "TraceWarning", "example_inputs", "from_exported", "symbolic_trace"]
