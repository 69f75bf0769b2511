"""The private hooks of Dynamo by which the story of a function is heard; all in this file."""

import os
import re
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from fxlab.base.heard_calls import Call, Patches, attribute_of
from fxlab.compiler.story.guard_words import Guard, named
from fxlab.compiler.story.story import (
    BREAK,
    COMPILE,
    DISCARD,
    ERROR,
    LIMIT,
    RECOMPILE,
    SKIP,
    SPECIALISE,
    SYMBOL,
    Event,
    Story,
    function_name,
    told,
)

_LIMIT = "recompile limit"
_NUMBER = re.compile(r"^\d+/\d+: ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in .+\n(.*)', re.MULTILINE)
_PLACE = re.compile(r"(.*?)\s*# (\S+):(\d+) in ", re.DOTALL)
_WRAPPERS = os.path.join("_dynamo", "external_utils.py")
"""The file of functions by which torch calls a function that it was given to compile."""
_SKIPS = "Dynamo decided to skip the frame while tracing: "
_LONG = 12
"""Digits of a bound that says nothing."""
_FRAMES = "torch._dynamo.convert_frame"


def hear_story(patches: Patches, story: Story, of_other_thread: Callable[[str], None] | None = None) -> None:
    """Write down Dynamo's events of functions, in any thread; compiles of other threads are reported too."""
    heard = _StoryHeard(story, of_other_thread)
    patches.around(f"{_FRAMES}:_compile", heard.compiled, "Compiles and recompiles are not told")
    lost = "Reasons of recompiles are not told"
    patches.around(f"{_FRAMES}:get_and_maybe_log_recompilation_reasons", heard.recompiled, lost)
    patches.around(f"{_FRAMES}:format_error_msg", heard.skipped, "Skipped functions are not told")
    place = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break"
    patches.around(place, heard.broken, "Reasons of graph breaks are not told")
    place = "torch._dynamo.exc:RestartAnalysis.__init__"
    patches.around(place, heard.restarted, "Captures that are thrown away are not told")
    place = "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement"
    patches.around(place, heard.replaced, "Specialised sizes are not told")


def current_compile() -> str:
    """Return Dynamo's number of the compile that is going on in this thread; empty if there is none."""
    context = getattr(torch._guards, "CompileContext", None)
    number = None if context is None else context.current_compile_id()
    return "" if number is None else str(number)


def hear_symbols(story: Story, output: Any) -> None:
    """Note the symbolic sizes of a graph that Dynamo has captured, and the conditions on them."""
    environment = getattr(output, "shape_env", None)
    number = current_compile()
    known_names = (event.function for event in story.events if event.compile == number)
    function = next(known_names, "") or _name_of(getattr(output, "root_tx", None))
    sources = getattr(environment, "var_to_sources", None) or {}
    ranges = getattr(environment, "var_to_range", None) or {}
    replaced = getattr(environment, "replacements", None) or {}
    names = {str(symbol): named(_text(known[0])) for symbol, known in sources.items() if known}
    for symbol in sources:
        if symbol not in replaced and str(symbol) in names:
            words = ", ".join(filter(None, (f"{symbol} is {names[str(symbol)]}", _range(ranges.get(symbol)))))
            story.events.append(Event(number, function, SYMBOL, words))
    for guard in getattr(environment, "guards", None) or ():
        expression = getattr(guard, "expr", None)
        symbols = getattr(expression, "free_symbols", ())
        if symbols and not any(symbol in replaced for symbol in symbols):
            words = f"the graph is for {_condition(expression, names)}"
            text = str(getattr(getattr(guard, "sloc", None), "maybe_user_loc", "") or "")
            place = _place_in_words(text, getattr(getattr(output, "root_tx", None), "f_code", None))
            story.events.append(Event(number, function, SYMBOL, words, **place))


class _StoryHeard:
    """Hears of Dynamo's events of functions."""

    def __init__(self, story: Story, of_other_thread: Callable[[str], None] | None) -> None:
        self._story, self._of_other_thread = story, of_other_thread
        self._thread = threading.get_ident()
        self._failed: dict[int, Event] = {}
        """Compiles that have raised, by the ``id`` of the error, which may be suppressed."""
        self._broken: dict[int, Event] = {}
        """Graph breaks by the ``id`` of their error, for which the whole function may be left to Python."""

    def compiled(self, call: Call) -> Any:
        """Hear of a compile of a function."""
        code, number = call.given("code", types.CodeType), str(call.given("compile_id"))
        code, function = _asked_for(code, call.given("locals"))
        if threading.get_ident() != self._thread and self._of_other_thread is not None:
            self._of_other_thread(f"{function} ({code.co_filename}:{code.co_firstlineno})")
        event = Event(number, function, COMPILE, file=code.co_filename, line=code.co_firstlineno)
        self._story.events.append(event)
        started = time.perf_counter()
        try:
            result = call()
        except Exception as error:
            self._note_error(event, error)
            raise
        finally:
            event.seconds = time.perf_counter() - started
        made = getattr(result, "guarded_code", None)
        root = getattr(getattr(made, "guard_manager", None), "root", None)
        self._story.guards[number] = [Guard.of(part) for part in dict.fromkeys(_guards_below(root))]
        if made is None:
            reason = _first_line(str(getattr(result, "skip_reason", None) or "Dynamo does not compile it"))
            about = number, function, SKIP, reason.removeprefix(_SKIPS)
            self._story.events.append(Event(*about, file=event.file, line=event.line))
        return result

    def recompiled(self, call: Call) -> Any:
        """Hear why no earlier compile of a function fits."""
        entries, frame = call.given(0), call.given(1)
        local, code = attribute_of(frame, "f_locals"), attribute_of(frame, "f_code")
        reasons = call()
        event = self._compile_of(current_compile())
        if event is not None:
            event.kind = RECOMPILE
            known = list(reasons or ())
            texts = (_NUMBER.sub("", reason).partition("\nUser stack trace:")[0] for reason in known)
            around = getattr(frame, "f_globals", {})
            words = list(dict.fromkeys(Guard.of(text).failed(local, around) for text in texts))
            event.reason = (
                f"{words[0] if words else 'unknown'} (compile {len(entries) + 1} of {event.function})"
            )
            event.explanation = f"Earlier compiles: {'; '.join(words[1:])}." if words[1:] else ""
            place = _place_in(known[0]) if known else {}
            if code.co_filename.endswith(place.get("file", code.co_filename)):
                place = {**place, "file": code.co_filename}  # long names are shortened
            vars(event).update(place)
        return reasons

    def broken(self, call: Call) -> Any:
        """Hear of a graph break, with Dynamo's own reason."""
        translator, error = call.given(0), call.given("exc")
        if not getattr(error, "logged", False):
            event = self._broken[id(error)] = self._of_error(BREAK, error, _name_of(translator))
            self._story.events.append(event)
        return call()

    def skipped(self, call: Call) -> Any:
        """Hear of a function that runs as it is after its compile has failed."""
        error, code = call.given(0), call.given(1, types.CodeType)
        event = self._failed.pop(id(error), None)
        kind = LIMIT if _is_limit(error) else SKIP
        if event is not None:
            event.kind = kind
        else:
            self._story.events.append(self._of_error(kind, error, function_name(code.co_name)))
        return call()

    def restarted(self, call: Call) -> Any:
        """Hear of a capture that is begun again; after a graph break that is part of the break."""
        error, result = call.given(0), call()
        event = self._compile_of(current_compile())
        if event is not None and not type(error).__name__.startswith("Speculation"):
            reason = str(getattr(error, "restart_reason", None) or type(error).__name__)
            place = _frame_of(_user_stack())
            words = f"captured again: {_first_line(reason)}"
            self._story.events.append(Event(event.compile, event.function, DISCARD, words, **place))
        return result

    def replaced(self, call: Call) -> Any:
        """Hear of a symbolic size that becomes a number."""
        environment, symbol, value = call.given(0), call.given(1), call.given(2)
        known = getattr(environment, "replacements", {}).get(symbol)
        result = call()
        number = current_compile()
        is_new = known is None and getattr(value, "is_number", False)
        if number and is_new and symbol in getattr(environment, "replacements", {}):
            source = next(iter(getattr(environment, "var_to_sources", {}).get(symbol) or ()), None)
            name = named(_text(source)) if source is not None else str(symbol)
            event = self._compile_of(number)
            place = _frame_of(_user_stack())
            reason = f"{name} ({symbol}) is taken for {value}"
            function = event.function if event is not None else ""
            self._story.events.append(Event(number, function, SPECIALISE, reason, **place))
        return result

    def _note_error(self, event: Event, error: Exception) -> None:
        """Write down an error of a compile, which is raised unless it is suppressed."""
        kind = LIMIT if _is_limit(error) else ERROR
        found = self._broken.pop(id(error), None)
        if found is None:
            found = self._of_error(kind, error, event.function)
            self._story.events.append(found)
        found.compile, found.kind = event.compile, kind
        self._failed[id(error)] = found

    def _of_error(self, kind: str, error: Any, function: str) -> Event:
        error = getattr(error, "inner_exception", None) or error
        message = str(getattr(error, "msg", "") or error)
        if not hasattr(error, "real_stack"):
            return Event(current_compile(), function, kind, f"{type(error).__name__}: {_first_line(message)}")
        if cause := getattr(error, "__cause__", None) if _is_limit(error) else None:
            message = str(getattr(cause, "msg", "") or message)
        stack = error.real_stack or _user_stack()
        words: dict[str, Any] = told(message)
        return Event(current_compile(), function, kind, **words, **_frame_of(stack))

    def _compile_of(self, number: str) -> Event | None:
        events = reversed(self._story.events)
        return next((e for e in events if e.compile == number and e.kind in (COMPILE, RECOMPILE)), None)


def _asked_for(code: types.CodeType, local: Any) -> tuple[types.CodeType, str]:
    """Return the code that torch calls for another function, and the name of that function."""
    is_wrapper = code.co_filename.endswith(_WRAPPERS) and "fn" in code.co_freevars
    given = local["fn"] if is_wrapper else None
    if isinstance(given, nn.Module):
        # Torch compiles a wrapper that calls the module; a person knows its `forward`.
        given = given.forward
    own = getattr(getattr(given, "__func__", given), "__code__", None)
    if not isinstance(own, types.CodeType):
        return code, function_name(code.co_name)
    owner = getattr(given, "__self__", None)
    return own, function_name(own.co_name) if owner is None else type(owner).__name__


def _place_in(reason: str) -> dict[str, Any]:
    """Return file, line and code of the line because of which a guard is there."""
    frames = _FRAME.findall(reason)
    if frames:
        file, line, code = frames[-1]
        return {"file": file, "line": int(line), "code": code.strip()}
    guard = Guard.of(_NUMBER.sub("", reason))
    return {"file": guard.file, "line": guard.line, "code": guard.code} if guard.file else {}


def _is_limit(error: Any) -> bool:
    cause = getattr(error, "__cause__", None)
    return any(_LIMIT in str(getattr(one, "gb_type", "")) for one in (error, cause))


def _user_stack() -> Any:
    context = getattr(torch._guards, "TracingContext", None)
    # The person's frames, not the compiler's.
    return None if context is None else context.extract_stack()


def _frame_of(stack: Any) -> dict[str, Any]:
    """Return file, line and code of the innermost frame of a stack."""
    frames = list(stack or ())
    if not frames:
        return {}
    last = frames[-1]
    return {"file": last.filename, "line": last.lineno or 0, "code": (last.line or "").strip()}


def _name_of(translator: Any) -> str:
    while getattr(translator, "parent", None) is not None:
        translator = translator.parent
    code = getattr(translator, "f_code", None)
    return function_name(code.co_name) if code is not None else ""


def _text(source: Any) -> str:
    # A property in newer releases of torch, a method in older ones.
    name = source.name
    return str(name() if callable(name) else name)


def _range(limits: Any) -> str:
    if limits is None:
        return ""
    lower, upper = str(limits.lower), str(limits.upper)
    words = ["" if "oo" in lower else f"at least {lower}"]
    words.append("" if "oo" in upper or len(upper) > _LONG else f"at most {upper}")
    return ", ".join(filter(None, words))


def _condition(expression: Any, names: Mapping[str, str]) -> str:
    """Write a condition on symbols in the names of the function."""
    sides = (getattr(expression, "lhs", None), getattr(expression, "rhs", None))
    operator = getattr(expression, "rel_op", None)
    text = f"{sides[0]} {operator} {sides[1]}" if operator is not None else str(expression)
    return re.sub(r"\b[a-z]+\d+\b", lambda found: names.get(found[0], found[0]), text)


def _place_in_words(text: str, code: Any) -> dict[str, Any]:
    found = _PLACE.match(text)
    if found is None:
        return {}
    known = str(getattr(code, "co_filename", ""))  # Dynamo shortens long names
    file = known if known.endswith(found[2]) else found[2]
    return {"file": file, "line": int(found[3]), "code": found[1].strip()}


def _guards_below(manager: Any) -> Iterator[str]:
    """Yield the guards of a guard manager with their comments."""
    if manager is None:
        return
    for guard in attribute_of(manager, "get_leaf_guards")():
        yield from map(str, guard.verbose_code_parts())
    for child in attribute_of(manager, "get_child_managers")():
        yield from _guards_below(child)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
