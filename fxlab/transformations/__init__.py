"""GraphModule -> GraphModule: marked, exact, and reversible."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.transformations.base import ReversibleTransformation as ReversibleTransformation
    from fxlab.transformations.base import Transformation as Transformation
    from fxlab.transformations.composition import compose as compose
    from fxlab.transformations.foreign.from_callable import from_callable as from_callable
    from fxlab.transformations.patterns.example import pattern_of as pattern_of
    from fxlab.transformations.patterns.from_pattern import find_matches as find_matches
    from fxlab.transformations.patterns.from_pattern import from_pattern as from_pattern
    from fxlab.transformations.patterns.match import Match as Match
    from fxlab.transformations.patterns.pattern import either as either
    from fxlab.transformations.registry import available as available
    from fxlab.transformations.registry import installed as installed
    from fxlab.transformations.registry import offered as offered
    from fxlab.transformations.registry import register as register
    from fxlab.transformations.rewriting.candidate_pass import CandidatePass as CandidatePass
    from fxlab.transformations.rewriting.rewrite_pass import RewritePass as RewritePass
else:
    __all__, __getattr__ = on_first_use(__name__)
