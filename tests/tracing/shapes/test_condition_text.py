import math

import pytest
import sympy
from sympy import And, Eq, Ne, Not, Or, Symbol
from torch.utils._sympy import functions

from fxlab.tracing.shapes.symbolic_sizes import condition_text

LENGTH, BATCH = (Symbol(name, integer=True, positive=True) for name in ("s0", "s1"))
NAMES = {LENGTH: "length", BATCH: "batch"}
REMAINDER = functions.PythonMod(LENGTH + 3, 4)
TEXTS = {
    "length == batch": Eq(LENGTH, BATCH),
    "length != 3": Ne(LENGTH, 3),
    "2*length - 3 <= batch": 2 * LENGTH - 3 <= BATCH,
    "(length // 4) + 1": functions.FloorDiv(LENGTH, 4) + 1,
    "(length + 3) % 4 == 2": Eq(REMAINDER, 2),
    "3*((length + 3) % 4)": 3 * REMAINDER,
    "length % 3 == 1": Eq(sympy.Mod(LENGTH, 3), 1),
    "int(length / 4)": functions.TruncToInt(functions.IntTrueDiv(LENGTH, 4)),
    "max(4, length)": functions.Max(LENGTH, 4),
    "sqrt(length)": functions.OpaqueUnaryFn_sqrt(LENGTH),
    "length > 3 and batch < 2": And(LENGTH > 3, BATCH < 2, evaluate=False),
    "batch == 1 or length > 3": Or(Eq(BATCH, 1), LENGTH > 3, evaluate=False),
    "not (length == 1 and batch > 2)": Not(And(Eq(LENGTH, 1), BATCH > 2, evaluate=False), evaluate=False),
}


@pytest.mark.parametrize("text", TEXTS)
def test_operators_are_written_as_in_python_and_mean_the_same(text):
    written = condition_text(TEXTS[text], NAMES)
    assert sorted(written.split()) == sorted(text.split())  # sympy chooses the order in sums and conditions
    for length in range(1, 12):
        for batch in range(1, 4):
            values = {"length": length, "batch": batch, "sqrt": math.sqrt}
            assert eval(written, values) == TEXTS[text].subs({LENGTH: length, BATCH: batch})
