"""GraphModule -> GraphModule: marked, exact, and reversible."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.transformations.base import ReversibleTransformation as ReversibleTransformation
    from fxlab.transformations.base import Transformation as Transformation
    from fxlab.transformations.composition import compose as compose
    from fxlab.transformations.foreign.from_callable import from_callable as from_callable
    from fxlab.transformations.registry import available as available
    from fxlab.transformations.registry import offered as offered
    from fxlab.transformations.rewriting.rewrite_pass import CandidatePass as CandidatePass
    from fxlab.transformations.rewriting.rewrite_pass import RewritePass as RewritePass
else:
    __all__, __getattr__ = on_first_use(__name__)
