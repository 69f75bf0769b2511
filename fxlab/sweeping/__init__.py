"""Many models, each with many stacks of passes, judged on data sets."""

from fxlab.sweeping.sweep import Sweep, sweep
from fxlab.sweeping.swept_cell import SweptCell

__all__ = ["Sweep", "SweptCell", "sweep"]
