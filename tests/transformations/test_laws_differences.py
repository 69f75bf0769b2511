"""Node differences find no mistake in what a pass has rewritten, in any dialect."""

from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from strategies import recipes
from test_laws import PASSES, pytestmark

from fxlab import (
    ChangeTrueDivToMulByInverse,
    EliminateCommonSubexpressions,
    RemoveDeadCode,
    first_divergence,
    verdict,
)
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.validation.verdicts.judgement import Judgement

__all__ = ["pytestmark"]

EXAMPLES = 15 if settings.get_current_profile_name() == "default" else settings.default.max_examples
OFTEN = (ChangeTrueDivToMulByInverse, EliminateCommonSubexpressions, RemoveDeadCode)
"""The passes that change no layer."""


@settings(max_examples=EXAMPLES)
@given(recipes(), st.data())
def test_no_node_of_what_a_pass_has_rewritten_is_taken_for_a_mistake(recipe, data):
    gm, inputs = recipe.trace(recipe.build()), (recipe.input(),)
    matching = [pass_ for pass_ in PASSES if pass_.explain(gm).matched.any()]
    layers = [pass_ for pass_ in matching if not isinstance(pass_, OFTEN)]
    assume(matching)
    changed = data.draw(st.sampled_from(layers or matching))(share_tensors_copy(gm))
    try:
        agrees = verdict(gm, changed, inputs).agrees
    except ValueError:  # it draws random numbers
        reject()
    if agrees:
        found = first_divergence(gm, changed, inputs)
        assert found is None or is_rounding(found.judgement), f"{found}\n{gm.code}\n{changed.code}"


def is_rounding(judgement: Judgement) -> bool:
    """Tell whether a difference may be one of rounding.

    Of a few numbers, rounded twice as two factors are folded, the error may be larger than the rule allows.
    """
    errors = judgement.errors
    return errors is not None and errors.function <= 16 * errors.new_values + 1e-12
