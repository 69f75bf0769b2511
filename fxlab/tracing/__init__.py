"""Model in, ``GraphModule`` out: one run of the model is recorded."""

from fxlab.tracing.dynamo.capture import Capture, CapturedGraph
from fxlab.tracing.dynamo.hooks import GraphBreak
from fxlab.tracing.exported.from_exported import from_exported
from fxlab.tracing.inputs.example_inputs import example_inputs
from fxlab.tracing.report import TraceError, TraceReport, TraceWarning
from fxlab.tracing.symbolic_trace import symbolic_trace

__all__ = [
    "Capture", "CapturedGraph", "GraphBreak", "TraceError", "TraceReport", "TraceWarning",
    "example_inputs", "from_exported", "symbolic_trace",
]  # fmt: skip
