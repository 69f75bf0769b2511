"""Conditions on sizes are computed by Python, with the answers that sympy would give."""

import operator

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from fxlab.tracing.shapes.symbolic_sizes import holds
from fxlab.tracing.torch_private import functions

ONE, OTHER, UNKNOWN = SYMBOLS = sympy.symbols("s0 s1 s2", integer=True, positive=True)
OF_TWO = (operator.add, operator.mul, functions.Max, functions.Min)
OF_A_NUMBER = (functions.FloorDiv, functions.Mod, functions.PythonMod)


def expressions(symbols):
    small = st.integers(1, 9)
    return st.recursive(
        st.sampled_from(symbols) | small.map(sympy.Integer),
        lambda parts: (
            st.builds(lambda of, a, b: of(a, b), st.sampled_from(OF_TWO), parts, parts)
            | st.builds(lambda of, a, b: of(a, sympy.Integer(b)), st.sampled_from(OF_A_NUMBER), parts, small)
        ),
        max_leaves=6,
    )


def conditions(symbols):
    relations = st.sampled_from((sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge))
    parts = expressions(symbols)
    return st.builds(lambda relation, a, b: relation(a, b), relations, parts, parts)


@given(conditions(SYMBOLS), st.integers(1, 50), st.integers(1, 50))
def test_a_size_that_is_not_known_is_for_sympy_to_decide(condition, one, other):
    values = {ONE: one, OTHER: other}
    assert holds(condition, values) == (sympy.sympify(condition).subs(values) is not sympy.false)


@pytest.mark.parametrize("kind", OF_A_NUMBER)
def test_what_divides_by_zero_does_not_hold(kind):
    assert not holds(sympy.Ne(kind(ONE, OTHER), 7), {ONE: 3, OTHER: 0})


@pytest.mark.parametrize(
    "part",
    [
        functions.ModularIndexing(ONE, 3, 4),
        functions.IsNonOverlappingAndDenseIndicator(ONE, OTHER, OTHER, 1),
        sympy.Piecewise((ONE, ONE > OTHER), (OTHER, True)),
        functions.Where(ONE > OTHER, ONE, OTHER),
    ],
    ids=str,
)
@pytest.mark.parametrize("number", range(8))
def test_a_function_that_python_has_not_is_for_sympy_to_compute(part, number):
    values = {ONE: 7, OTHER: 5}
    assert holds(sympy.Eq(part, number), values) == (part.subs(values) == number)


def test_what_divides_by_zero_beside_a_size_that_is_not_known_does_not_hold():
    condition = sympy.Ne(functions.FloorDiv(ONE, OTHER) + UNKNOWN, 7)
    assert not holds(condition, {ONE: 3, OTHER: 0})
