"""Reads of a truth value that decide nothing, as ``0.0 if not self.training else self.p`` where p is 0."""

from __future__ import annotations

import bisect
import dis
import functools
import inspect
import operator
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

_PLAIN = bool, int, float, str
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_DO_NOTHING = "CACHE", "NOP", "NOT_TAKEN", "TO_BOOL"


def decides_nothing(frame: FrameType) -> bool:
    """Tell whether a frame that reads an attribute goes on in the same way if that is true and if it is not.

    Both ways are followed through the frame's instructions, as long as these only look values up, and compare
    plain ones and jump by them. They go on in the same way if they meet with the same values.
    """
    return any(all(_is_same(*pair) for pair in waiting) for waiting in _meetings(frame))


def decides_a_number(frame: FrameType) -> bool:
    """Tell whether such a frame goes on in the same way with another number, which tells modes apart."""

    def are_alike(one: Any, other: Any) -> bool:
        return _is_same(one, other) or {type(one), type(other)} <= {int, float}

    return any(all(are_alike(*pair) for pair in waiting) for waiting in _meetings(frame))


def _meetings(frame: FrameType) -> list[list[tuple[Any, Any]]]:
    """Return, for each instruction that both ways come to, the pairs of values that wait for their use."""
    instructions, offsets = _instructions(frame.f_code)
    read = bisect.bisect_right(offsets, frame.f_lasti) - 1  # some Pythons point behind it, into its cache
    if instructions[read].opname != "LOAD_ATTR":
        return []
    one, other = (dict(_way(frame, offsets[read + 1], value)) for value in (False, True))
    met = (at for at in one if at in other and len(one[at]) == len(other[at]))
    return [[*zip(one[at], other[at], strict=True)] for at in met]


@functools.lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> tuple[list[dis.Instruction], list[int]]:
    found = list(dis.get_instructions(code))
    return found, [instruction.offset for instruction in found]


def _way(frame: FrameType, at: int, value: bool) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the offsets of the instructions that a value leads to, and the values that wait for their use."""
    instructions, offsets = _instructions(frame.f_code)
    variables, waiting = frame.f_locals, [value]
    for _ in instructions:  # of which a loop would not end
        yield at, tuple(waiting)
        index = bisect.bisect_left(offsets, at)
        try:
            jump = _follow(instructions[index], waiting, variables)
        except Exception:  # attributes of the model's own objects may raise anything
            return
        at = offsets[index + 1] if jump is None else jump


def _follow(instruction: dis.Instruction, waiting: list[Any], variables: Mapping[str, Any]) -> int | None:
    """Do what an instruction does, and return where it jumps; raise if it may do more than that."""
    name, given = instruction.opname, instruction.argval
    if name in _DO_NOTHING:
        return None
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        waiting.append(given)
    elif name in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"):
        waiting.append(variables[given])
    elif name == "LOAD_ATTR":
        owner = waiting.pop()
        if hasattr(inspect.getattr_static(type(owner), given, None), "__get__"):
            raise NotImplementedError("a property runs code")
        waiting.append(getattr(owner, given))
    elif name == "COMPARE_OP":
        right, left = _plain(waiting.pop()), _plain(waiting.pop())
        waiting.append(_COMPARED[given](left, right))
    elif name == "IS_OP":
        right, left = waiting.pop(), waiting.pop()
        waiting.append((left is right) is not bool(instruction.arg))
    elif name == "UNARY_NOT":
        waiting.append(not _plain(waiting.pop()))
    elif name == "JUMP_FORWARD":
        return int(given)
    elif name.startswith("POP_JUMP") and name.endswith(("IF_TRUE", "IF_FALSE")):
        return int(given) if bool(_plain(waiting.pop())) is name.endswith("IF_TRUE") else None
    else:
        raise NotImplementedError(name)
    return None


def _plain(value: Any) -> Any:
    if type(value) not in _PLAIN:
        raise NotImplementedError("the value runs code of its own")
    return value


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _PLAIN and repr(one) == repr(other))
