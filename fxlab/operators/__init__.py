"""Facts about the operators that a graph calls: writes, aliases, random draws, computation and results.

They are read from torch's own schemas and tags. `python_functions.py` adds the functions of Python;
`operator.py` and `results.py` add the facts on which schemas are silent. The same questions are answered
for torch's functions and methods, its modules, and ``aten`` overloads.
"""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.operators.effects import argument as argument
    from fxlab.operators.effects import argument_of as argument_of
    from fxlab.operators.effects import describes as describes
    from fxlab.operators.effects import draws_random_numbers as draws_random_numbers
    from fxlab.operators.effects import may_alias as may_alias
    from fxlab.operators.effects import reads_layout as reads_layout
    from fxlab.operators.effects import returns_number as returns_number
    from fxlab.operators.effects import sets_global_state as sets_global_state
    from fxlab.operators.effects import why_not_pure as why_not_pure
    from fxlab.operators.effects import written_arguments as written_arguments
    from fxlab.operators.effects import written_values as written_values
    from fxlab.operators.operator import Operator as Operator
    from fxlab.operators.operator import computed_by as computed_by
    from fxlab.operators.operator import computes as computes
    from fxlab.operators.operator import function_of as function_of
    from fxlab.operators.operator import is_aten as is_aten
    from fxlab.operators.operator import is_in_place as is_in_place
    from fxlab.operators.operator import is_of_python as is_of_python
    from fxlab.operators.operator import operator_called as operator_called
    from fxlab.operators.operator import operator_for as operator_for
    from fxlab.operators.operator import operator_of as operator_of
    from fxlab.operators.results import casts as casts
    from fxlab.operators.results import filled_with as filled_with
    from fxlab.operators.results import is_lowered_by_autocast as is_lowered_by_autocast
    from fxlab.operators.results import moves_elements as moves_elements
    from fxlab.operators.results import rounds as rounds
    from fxlab.operators.results import takes_any_strides as takes_any_strides
    from fxlab.operators.results import takes_steps as takes_steps
    from fxlab.operators.results import told_dtype as told_dtype
else:
    __all__, __getattr__ = on_first_use(__name__)
