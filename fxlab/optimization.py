"""All passes, where ``optimum.fx`` has them: ``from fxlab.optimization import MergeLinears, compose``."""

from fxlab import ReversibleTransformation as ReversibleTransformation
from fxlab import Transformation as Transformation
from fxlab import compose as compose
from fxlab.transformations.passes import *  # noqa: F403
