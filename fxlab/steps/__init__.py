"""Training steps as graphs: forward, loss, backward and the optimizer's update."""

from typing import TYPE_CHECKING

from fxlab.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.steps.loop import StepLoop as StepLoop
    from fxlab.steps.several import StepsCompared as StepsCompared
    from fxlab.steps.traced_step import trace_step as trace_step
else:
    __all__, __getattr__ = on_first_use(__name__)
