"""Patterns of torch's matcher as expressions of operators and inputs; all private parts are read here."""

from collections.abc import Iterator
from typing import Any

import torch

from fxlab.operators.node_info import function_text


def parts_of(pattern: Any) -> Iterator[Any]:
    """Yield the parts of a pattern, each once, inputs first."""
    seen: set[int] = set()

    def walk(part: Any) -> Iterator[Any]:
        if id(part) in seen or not _is_part(part):
            return
        seen.add(id(part))
        inner = [getattr(part, name, None) for name in ("pattern", "inner_pattern")]
        flat = getattr(part, "flat_args_kwargs", ((),))[0]
        for other in (*flat, *getattr(part, "outputs", ()), *inner):
            yield from walk(other)
        yield part

    yield from walk(pattern)


def is_operator(part: Any) -> bool:
    """Tell whether a part of a pattern matches a call; some that match any value have users too."""
    return hasattr(part, "users") and hasattr(part, "fns")


def names_of(pattern: Any) -> tuple[str, ...]:
    """Return the operators of a part of a pattern, any of which matches."""
    functions = [*getattr(pattern, "fns", ())]
    packets = {id(function) for function in functions if isinstance(function, torch._ops.OpOverloadPacket)}
    names = (
        function if isinstance(function, str) else function_text(function)
        for function in functions
        if id(getattr(function, "overloadpacket", None)) not in packets
    )
    return tuple(dict.fromkeys(names))


def _is_part(value: Any) -> bool:
    return hasattr(value, "pattern_eq")
