"""All passes, where ``optimum.fx`` has them: ``from fxlab.optimization import MergeLinears, compose``."""

from fxlab.transformations.base import ReversibleTransformation as ReversibleTransformation
from fxlab.transformations.base import Transformation as Transformation
from fxlab.transformations.composition import compose as compose
from fxlab.transformations.passes import *  # noqa: F403
