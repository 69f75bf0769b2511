"""Modules whose mode, training or evaluation, the Python of a model reads while it is recorded.

A read decides nothing where both answers lead to the same, as ``0 if not self.training else p`` for p = 0.
"""

from __future__ import annotations

import bisect
import dis
import functools
import inspect
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.base.exchanged import instead, patched_functions
from fxlab.models.graph_modules.parts import Mode, RequireModes, first_compute, put_requirement
from fxlab.tracing.report import Finding, Found
from fxlab.values.nested import REFUSAL

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


class ModeReads:
    """Notes reads of ``training``, which a graph does not repeat when it runs.

    ``paths``: those of the modules. ``place``: returns ``file:line`` of the model's code that is running.
    ``places``: the line of the first read, by the path of the module. ``modes``: whether each module is in
    training mode when the run begins. ``gives_numbers``: whether one gives another number in the other mode.
    """

    def __init__(self, paths: Mapping[nn.Module, str], place: Callable[[], str]) -> None:
        self.modes = {path: vars(module).get("training", True) for module, path in paths.items()}
        self.places: dict[str, str] = {}
        self.gives_numbers = False
        self._place = place
        self._paths = paths
        self._is_ignored = False
        self._stand_for: nn.Module | None = None
        self._written: set[nn.Module] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        thread = threading.get_ident()

        def read(module: nn.Module) -> Any:
            if "training" not in vars(module):  # a scripted module looks elsewhere then
                raise AttributeError("training")
            if not self._is_ignored and threading.get_ident() == thread:
                self._note(module, sys._getframe(1))
            return vars(module)["training"]

        def write(module: nn.Module, value: Any) -> None:
            if threading.get_ident() == thread:
                self._written.add(module)
            vars(module)["training"] = value

        def delete(module: nn.Module) -> None:
            del vars(module)["training"]

        with patched_functions(nn.Module, {"training": instead(property(read, write, delete))}):
            yield

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Note nothing for a while: modules that are one node read their mode again when the graph runs."""
        before, self._is_ignored = self._is_ignored, True
        try:
            yield
        finally:
            self._is_ignored = before

    @contextmanager
    def standing_for(self, module: nn.Module) -> Iterator[None]:
        """Take reads of an empty module of the same class for reads of this one.

        The modules that it calls read their mode again when the graph runs.
        """
        self._stand_for = module
        try:
            yield
        finally:
            self._stand_for = None

    def is_set(self, module: nn.Module) -> bool:
        """Tell whether the model has set the mode of a module, or of one inside, since it runs."""
        return bool(self._written) and not self._written.isdisjoint(module.modules())

    def end(self) -> None:
        """Release the model."""
        self._paths = {}
        self._written.clear()

    def _note(self, module: nn.Module, reader: FrameType) -> None:
        if self._stand_for is not None:
            if module in self._paths or type(module) is not type(self._stand_for):
                return
            module = self._stand_for
        path = self._paths.get(module)
        # A mode that the model sets by itself is no one else's, nor that of a module which it makes.
        if path is None or module in self._written or path in self.places or decides_nothing(reader):
            return
        self.places[path] = self._place()
        self.gives_numbers = self.gives_numbers or decides_a_number(reader)

    @property
    def modes_read(self) -> set[bool]:
        """The modes in which modules were found to be."""
        return {self.modes[path] for path in self.places}


def set_modes(model: nn.Module, training: bool) -> None:
    """Put all modules in a mode, as a graph module does with those that it has.

    A ``train`` of the model's own may leave some out.
    """
    for module in model.modules():
        vars(module)["training"] = training


def require_modes(graph_module: GraphModule, model: nn.Module, reads: ModeReads) -> list[Finding]:
    """Make a graph refuse other modes than those that the model has read, and report them."""
    required: list[tuple[str, nn.Module, bool]] = []
    for path in reads.places:
        module, training = _find(graph_module, path), reads.modes[path]
        if path and module is not None and module is _find(model, path):
            required.append((path, module, training))
            continue
        mode = Mode(training)
        if path and module is not None:
            module.add_module("mode", mode)
        required.append((path or "the model", mode, training))
    places = list(dict.fromkeys(reads.places.values()))
    advice = f"The model's Python reads its mode at {places[0]}: trace it in the mode in which it is to run."
    check = put_requirement(graph_module, RequireModes(required, REFUSAL, advice))
    with graph_module.graph.inserting_before(first_compute(graph_module.graph)):
        graph_module.graph.call_module(check)
    words = {True: "training mode", False: "evaluation mode"}
    read_at = {place: path for path, place in reversed(reads.places.items())}
    return [
        Found.MODE(read_at[place] or "the model", place, mode=words[reads.modes[read_at[place]]])
        for place in places
    ]


def _find(root: nn.Module, path: str) -> nn.Module | None:
    try:
        return root.get_submodule(path)
    except AttributeError:
        return None
