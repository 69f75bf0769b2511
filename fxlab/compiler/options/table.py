"""Options of Inductor by name: which there are, and whether a value is one of theirs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlab.checks import described
from fxlab.compiler.options.hooks import options_of_passes, values

if TYPE_CHECKING:
    import pandas as pd


def check_option(name: object, value: object) -> str:
    """Return the name of an option as Inductor writes it.

    Raises TypeError if the name is no text, or the value of another type than the option's; ValueError if
    there is no such option, or it is no switch.
    """
    if not isinstance(name, str):
        raise TypeError(f"name: expected the name of an option of Inductor, got {described(name)}.")
    known, name = values(), name.replace("-", "_")
    if name not in known:
        close = difflib.get_close_matches(name, known)
        hint = f"Did you mean {close[0]!r}?" if close else "torch._inductor.list_options() has their names."
        raise ValueError(f"name: Inductor has no option {name!r}. {hint}")
    if name in (found := options_of_passes()) and (why := found[name].fixed):
        raise ValueError(f"name: {name} cannot be switched here. {why}.")
    now = known[name]
    if isinstance(now, bool) and not isinstance(value, bool):
        raise TypeError(f"value: {name} is True or False, got {described(value)}.")
    if isinstance(now, dict | list | str) and not isinstance(value, type(now)):
        raise TypeError(f"value: expected a {type(now).__name__} for {name}, got {described(value)}.")
    return name


def options_table(given: Mapping[str, Any], changed: Mapping[str, Any]) -> pd.DataFrame:
    """List the options of on and off that passes read; see :meth:`fxlab.CompileSession.options`."""
    import pandas as pd

    known = values() | {**given}
    rows = [
        (name, {**known, **changed}[name], known[name], *about)
        for name, option in options_of_passes().items()
        for about in [(", ".join(option.phases), option.place, option.description, option.fixed)]
    ]
    rows += [
        (name, changed[name], known[name], "", "", "", "") for name in changed.keys() - {r[0] for r in rows}
    ]
    columns = ["option", "value", "at_first", "phases", "place", "description", "fixed"]
    return pd.DataFrame(rows, columns=columns, dtype=object).set_index("option")
