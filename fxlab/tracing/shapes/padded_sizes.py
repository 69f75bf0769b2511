"""Sizes that are padded to a multiple of a window, in their shortest form.

Models of windows and patches write such a size as ``x + (w - x % w) % w`` or ``x + -x % w``. Torch keeps the
remainders, so windows inside of windows soon make sizes of hundreds of operations, of which nothing is known.
As ``(x + w - 1) // w * w`` they stay short, and are seen to be multiples of the window.
"""

from __future__ import annotations

from typing import Any

import sympy

from fxlab.tracing.torch_private import functions

_REMAINDERS = (functions.Mod, functions.PythonMod)


def padded_size(total: Any) -> Any:
    """Return a sum as a multiple of a window, if it is a number and what that lacks of such a multiple."""
    for term in total.args if isinstance(total, sympy.Add) else ():
        if isinstance(term, _REMAINDERS) and isinstance(term.args[1], sympy.Integer):
            dividend, window = term.args
            size = total - term
            if _is_multiple(_without_remainders(dividend, window) + size, window):
                return window * functions.FloorDiv(size + window - 1, window)
    return total


def _without_remainders(dividend: Any, window: Any) -> Any:
    """Return a number that leaves the same remainder as another, without the remainders in its sum."""
    terms = []
    for term in sympy.Add.make_args(dividend):
        factor, rest = term.as_coeff_Mul()
        is_remainder = isinstance(rest, _REMAINDERS) and rest.args[1] == window
        terms.append(factor * rest.args[0] if is_remainder else term)
    return sympy.Add(*terms)


def _is_multiple(total: Any, window: Any) -> bool:
    return all(factor % window == 0 for factor in total.expand().as_coefficients_dict().values())
