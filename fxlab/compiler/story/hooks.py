"""Private hooks of Dynamo that report compiles, recompiles, graph breaks and skips to the story."""

import os
import re
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fxlab.base.heard_calls import Call, Patches, attribute_of
from fxlab.compiler.story.story import (
    BREAK,
    COMPILE,
    ERROR,
    LIMIT,
    RECOMPILE,
    SKIP,
    Event,
    Story,
    function_name,
    told,
)

_LIMIT = "recompile limit"
_NUMBER = re.compile(r"^\d+/\d+: ")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in .+\n(.*)', re.MULTILINE)
_COMMENT = re.compile(r"\s{2,}# (?P<code>.*?)  # (?P<file>\S+):(?P<line>\d+) in ", re.DOTALL)
_AFTER_A_GUARD = re.compile(r"\s{2,}# .*| \(HINT: [^)]*\)\s*$|\nUser stack trace:.*", re.DOTALL)
_VARIABLE = re.compile(r"\b[LG]\[(['\"])(\w+)\1\]")
_WRAPPERS = os.path.join("_dynamo", "external_utils.py")
"""The file of functions by which torch calls a function that it was given to compile."""
_SKIPS = "Dynamo decided to skip the frame while tracing: "
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


def current_compile() -> str:
    """Return Dynamo's number of the compile that is going on in this thread; empty if there is none."""
    context = getattr(torch._guards, "CompileContext", None)
    number = None if context is None else context.current_compile_id()
    return "" if number is None else str(number)


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
        if made is None:
            reason = _first_line(str(getattr(result, "skip_reason", None) or "Dynamo does not compile it"))
            about = number, function, SKIP, reason.removeprefix(_SKIPS)
            self._story.events.append(Event(*about, file=event.file, line=event.line))
        return result

    def recompiled(self, call: Call) -> Any:
        """Hear why no earlier compile of a function fits."""
        entries, code = call.given(0), attribute_of(call.given(1), "f_code")
        reasons = call()
        event = self._compile_of(current_compile())
        if event is not None:
            event.kind = RECOMPILE
            known = [*(reasons or ())]
            failed = [*dict.fromkeys(map(_guard_in, known))] or ["unknown"]
            event.reason = f"a guard failed: {failed[0]} (compile {len(entries) + 1} of {event.function})"
            event.explanation = f"Earlier compiles: {'; '.join(failed[1:])}." if failed[1:] else ""
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
    found = _COMMENT.search(reason)
    if found is None:
        return {}
    return {"file": found["file"], "line": int(found["line"]), "code": found["code"].strip()}


def _guard_in(reason: str) -> str:
    """Return the guard that has failed, in the names of the function."""
    return _VARIABLE.sub(r"\2", _AFTER_A_GUARD.sub("", _NUMBER.sub("", reason))).strip()


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


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
