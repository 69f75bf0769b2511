"""The laws of ``test_laws.py`` on graphs that went through ``torch.export``, also decomposed.

To export a module takes longer than all else, so several laws are tried on each.
"""

import test_laws
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from laws import EXAMPLES, LAWS
from strategies import recipes

pytestmark = test_laws.pytestmark

IS_FUZZ = settings.get_current_profile_name() != "default"
OWN = sorted(LAWS.keys() & vars(test_laws).keys())
"""Other files have laws of their own, which are known once they are imported."""
NAMES = (
    st.permutations(OWN) if IS_FUZZ else st.lists(st.sampled_from(OWN), min_size=1, max_size=4, unique=True)
)
"""The laws that are tried on one graph: all of them where there is time, since to export takes longest."""
GRAPHS = settings.default.max_examples if IS_FUZZ else 2
"""How many graphs there are; the profile ``fuzz`` takes as many as are asked for."""


@settings(max_examples=GRAPHS, phases=(Phase.generate,))  # to shrink one would take minutes
@given(recipes(exported=True), NAMES, st.data())
def test_laws_hold_for_graphs_of_torch_export(recipe, names, data):
    event(recipe.dialect)
    for name in names:
        drawn, statement = LAWS[name]
        statement(recipe, *(data if is_data(each) else data.draw(each) for each in drawn))
        EXAMPLES[f"{name} ({recipe.dialect})"] += 1


def is_data(strategy: st.SearchStrategy) -> bool:
    """Tell whether a law draws by itself while it runs."""
    return type(strategy) is type(st.data())


def test_every_law_is_tried():
    assert len(OWN) == sum(name.startswith("test_") for name in vars(test_laws))
