"""Facts about the operators that a graph calls: what they write, alias, draw and return.

They are read from torch's own schemas and tags. `python_functions.py` has what Python adds, and
`exceptions.py` where schemas are silent.
"""

from fxlab.operators.effects import (
    draws_random_numbers,
    may_alias,
    reads_layout,
    returns_number,
    sets_global_state,
    why_not_pure,
    written_arguments,
)
from fxlab.operators.operator import Operator, is_in_place, is_of_python, is_of_torch, operator_of

__all__ = [
    "Operator",
    "draws_random_numbers",
    "is_in_place",
    "is_of_python",
    "is_of_torch",
    "may_alias",
    "operator_of",
    "reads_layout",
    "returns_number",
    "sets_global_state",
    "why_not_pure",
    "written_arguments",
]
