"""Facts about the operators that a graph calls: what they write, alias, draw, compute and return.

They are read from torch's own schemas and tags. `python_functions.py` has what Python adds, and
`exceptions.py` and `result_tables.py` where schemas are silent. The same questions are answered for torch's
functions and methods, its modules, and ``aten`` overloads.
"""

from fxlab.operators.autocast import is_lowered_by_autocast
from fxlab.operators.effects import (
    argument,
    argument_of,
    describes,
    draws_random_numbers,
    may_alias,
    reads_layout,
    returns_number,
    sets_global_state,
    why_not_pure,
    written_arguments,
    written_values,
)
from fxlab.operators.modules import function_of, operator_called
from fxlab.operators.operator import (
    Operator,
    computes,
    is_in_place,
    is_of_python,
    is_of_torch,
    operator_for,
    operator_of,
)
from fxlab.operators.products import multiplies_no_matrices
from fxlab.operators.results import (
    casts,
    filled_with,
    moves_elements,
    reshapes,
    rounds,
    takes_any_strides,
    takes_steps,
    told_dtype,
)

__all__ = [
    "Operator",
    "argument",
    "argument_of",
    "casts",
    "computes",
    "describes",
    "draws_random_numbers",
    "filled_with",
    "function_of",
    "is_in_place",
    "is_lowered_by_autocast",
    "is_of_python",
    "is_of_torch",
    "may_alias",
    "moves_elements",
    "multiplies_no_matrices",
    "operator_called",
    "operator_for",
    "operator_of",
    "reads_layout",
    "reshapes",
    "returns_number",
    "rounds",
    "sets_global_state",
    "takes_any_strides",
    "takes_steps",
    "told_dtype",
    "why_not_pure",
    "written_arguments",
    "written_values",
]
