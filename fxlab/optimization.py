"""All passes, where ``optimum.fx`` has them: ``from fxlab.optimization import MergeLinears, compose``."""

from typing import TYPE_CHECKING

from fxlab.transformations.base import ReversibleTransformation as ReversibleTransformation
from fxlab.transformations.base import Transformation as Transformation
from fxlab.transformations.composition import compose as compose

if TYPE_CHECKING:  # the names of passes are those of the stub
    from fxlab import *  # noqa: F403
else:
    from fxlab.transformations.passes import *  # noqa: F403
