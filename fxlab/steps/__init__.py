"""Training steps as graphs: forward, loss, backward and the optimizer's update."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.steps.loop import StepLoop as StepLoop
    from fxlab.steps.loop import StepsCompared as StepsCompared
    from fxlab.steps.loop import as_step as as_step
    from fxlab.steps.loop import compare_steps as compare_steps
    from fxlab.steps.traced_step import trace_step as trace_step
    from fxlab.validation.cost.collectives import collectives as collectives
else:
    __all__, __getattr__ = on_first_use(__name__)
