"""Model in, ``GraphModule`` out: one run of the model is recorded."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.tracing.dynamo.capture import CapturedGraph as CapturedGraph
    from fxlab.tracing.dynamo.graph_break import GraphBreak as GraphBreak
    from fxlab.tracing.report import TraceError as TraceError
    from fxlab.tracing.report import TraceReport as TraceReport
    from fxlab.tracing.report import TraceWarning as TraceWarning
else:
    __all__, __getattr__ = on_first_use(__name__)
