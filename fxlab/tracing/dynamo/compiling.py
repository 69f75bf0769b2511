"""Functions that Dynamo compiles for one owner: with guards on every value read, and reasons for the rest.

All private parts of Dynamo by which this is done are in this file.
"""

from __future__ import annotations

import functools
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fxlab.exchanged import exchanged
from fxlab.interrupts import RestoringStack
from fxlab.torch_private import DeviceContext
from fxlab.tracing.dynamo.hooks import graph_break, reasons_noted
from fxlab.tracing.torch_private import needed

if TYPE_CHECKING:
    from torch._dynamo import config
    from torch._dynamo import types as types_of_dynamo
    from torch._dynamo.eval_frame import optimize
    from torch._dynamo.exc import Unsupported, raise_observed_exception
    from torch._dynamo.external_utils import is_compiling
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource, TypeSource
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator
    from torch._dynamo.types import ConvertFrameReturn
    from torch._dynamo.variables import builder
    from torch._dynamo.variables import torch as variables_of_torch
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.functions import SkipFunctionVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable
else:

    def _of_dynamo(name: str) -> Any:
        return needed(f"torch._dynamo.{name}", "as_model compiles a model with it")

    config, types_of_dynamo = _of_dynamo("config"), _of_dynamo("types")
    optimize, Unsupported = _of_dynamo("eval_frame.optimize"), _of_dynamo("exc.Unsupported")
    raise_observed_exception = _of_dynamo("exc.raise_observed_exception")
    is_compiling = _of_dynamo("external_utils.is_compiling")
    GuardBuilder, install_guard = _of_dynamo("guards.GuardBuilder"), _of_dynamo("guards.install_guard")
    AttrSource, TypeSource = _of_dynamo("source.AttrSource"), _of_dynamo("source.TypeSource")
    InliningInstructionTranslator = _of_dynamo("symbolic_convert.InliningInstructionTranslator")
    ConvertFrameReturn = _of_dynamo("types.ConvertFrameReturn")
    builder, variables_of_torch = _of_dynamo("variables.builder"), _of_dynamo("variables.torch")
    ConstDictVariable = _of_dynamo("variables.dicts.ConstDictVariable")
    SkipFunctionVariable = _of_dynamo("variables.functions.SkipFunctionVariable")
    UserDefinedObjectVariable = _of_dynamo("variables.user_defined.UserDefinedObjectVariable")

_TRIES = 2
"""How often a function is tried that Dynamo cannot compile, although it runs."""

_SETTINGS: dict[str, Any] = {
    # Guards that torch leaves out as they are rarely needed.
    "skip_nnmodule_hook_guards": False,
    "skip_no_tensor_aliasing_guards_on_parameters": False,
    "skip_tensor_guards_with_matching_dict_tags": False,
    "skip_guards_on_constant_func_defaults": False,
    "assume_dunder_attributes_remain_unchanged": False,
    "use_recursive_dict_tags_for_guards": False,
    "guard_nn_modules": True,
    # NumPy's own results, not torch's in their place.
    "trace_numpy": False,
    # A counter of a module is followed, and is no reason to compile for each number: `_Conversion.is_held`.
    "allow_unspec_int_on_nn_module": True,
    # Numbers that passes can read, such as an epsilon.
    "specialize_float": True,
    "capture_scalar_outputs": True,
    # How many graphs are compiled of one function before other calls of it run eagerly.
    "recompile_limit": 64,
    "fail_on_recompile_limit_hit": False,
    "error_on_recompile": False,
    "suppress_errors": False,
}
_AS_EAGERLY: dict[Callable[[], bool], bool] = {
    torch.compiler.is_compiling: False,
    is_compiling: False,
}
"""Answers that make code run as it does eagerly, such as looking into a mask, while it is compiled."""

_GUARDED = [
    device.is_current_stream_capturing
    for device in (torch.cuda, torch.xpu)
    if hasattr(device, "is_current_stream_capturing")
]
"""Settings of torch that Dynamo does not know as such: code decides on them, so they are guarded on."""

_ACTIONS: Any = types_of_dynamo


def why_not_compiled() -> str:
    """Tell why Dynamo would not look at a call now, or would mistake another mode for its own."""
    if config.disable:
        return "torch._dynamo.config.disable is set"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode of torch is on"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is applied"
    modes = [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]
    mode = next((mode for mode in modes if not isinstance(mode, DeviceContext)), None)
    return "" if mode is None else f"a mode of torch is on: {type(mode).__name__}"


class CompiledFunction:
    """A function compiled by Dynamo, whose caches, limits and settings nobody else shares.

    Where Dynamo cannot compile, the function's own code runs.

    ``function``: the function. A copy of it is compiled, which Dynamo has not seen before. ``backend``:
    receives the graphs; Dynamo keeps it until it is reset. ``note``: is called with the reason for each piece
    of code that runs eagerly, in the thread that runs it. ``kept``: returns a context that restores what
    Dynamo changes while it compiles: it computes with NumPy arrays that the code writes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        backend: Callable[..., Any],
        note: Callable[[str], None],
        kept: Callable[[], AbstractContextManager[object]],
    ) -> None:
        # Dynamo caches by code object, and writes its graphs into the globals: both are copies.
        own = types.FunctionType(function.__code__.replace(), dict(function.__globals__), function.__name__)
        context: Any = optimize(backend, dynamic=True)
        self._compiles: _Conversion | None = None
        if (callback := getattr(context, "callback", None)) is not None:
            self._compiles = _Conversion(callback._torchdynamo_orig_backend, note, kept)
            callback._torchdynamo_orig_backend = self._compiles
            context.callback = _Callback(callback, self._compiles)
        else:
            note("torch.compile is switched off in this process")
        self._compiled = context(own)

    def __call__(self, *args: Any) -> Any:
        """Run the function."""
        output = self._compiled(*args)
        if self._compiles is not None:
            self._compiles.ran()
        return output


class _Callback:
    """The callback for frames without a graph; it is soon done with those that are known to run eagerly."""

    def __init__(self, callback: Any, conversion: _Conversion) -> None:
        self._torchdynamo_orig_backend, self._conversion = callback, conversion

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        known = self._conversion.known(frame.f_code)
        return known or self._torchdynamo_orig_backend(frame, cache_entry, frame_state)


class _Conversion:
    """Converts frames as Dynamo's own callback does; it is called under Dynamo's lock."""

    def __init__(
        self,
        convert: Any,
        note: Callable[[str], None],
        kept: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._torchdynamo_orig_backend = convert  # the name by which torch finds the backend
        self._convert, self._note, self._kept = convert._inner_convert, note, kept
        self._failed: Counter[types.CodeType] = Counter()
        self._failed_now: list[types.CodeType] = []
        self._full: set[types.CodeType] = set()
        self._numbers: dict[tuple[types.CodeType, str], int] = {}
        self._counting: set[tuple[types.CodeType, str]] = set()

    def is_held(self, code: types.CodeType, name: str, value: int) -> bool:
        """Tell whether an integer of a module is a number in a graph: it is until another one is met.

        As a symbol, each width and count of a model would be one, at three times the time of a compile.
        """
        place = code, name
        if self._numbers.setdefault(place, value) != value:
            self._counting.add(place)
        return place not in self._counting

    def _clone_with_backend(self, backend: object) -> _Conversion:
        """Take no other backend: by one of its own, ``DistributedDataParallel`` would have graphs split."""
        return self

    def ran(self) -> None:
        """Note that a call has run to its end, so that code which did not compile in it has no error."""
        if self._failed_now:
            self._failed.update(self._failed_now)
            self._failed_now = []

    def known(self, code: types.CodeType) -> ConvertFrameReturn | None:
        """Return the action for code that is not tried any more."""
        if code in self._full:
            return _eagerly(recursively=True)
        return _eagerly(recursively=False) if self._failed[code] >= _TRIES else None

    def __call__(
        self, frame: Any, cache_entry: Any, hooks: Any, frame_state: Any, skip: int = 0
    ) -> ConvertFrameReturn:
        code = frame.f_code
        before = {id(reason) for reason in reasons_noted()}
        try:
            with self._kept(), _guarding(functools.partial(self.is_held, code)):
                # One frame more than Dynamo counts on: this one.
                result: ConvertFrameReturn = self._convert(
                    frame, cache_entry, hooks, frame_state, skip=skip + 1
                )
        except Exception as error:  # compiling foreign code may raise anything
            return self._failure(code, error)
        for reason in reasons_noted():
            if id(reason) not in before and (found := graph_break(reason)):
                self._note(str(found))
        return result

    def _failure(self, code: types.CodeType, error: Exception) -> ConvertFrameReturn:
        strategy = getattr(error, "frame_exec_strategy", None)
        if strategy is not None and strategy.cur_action == _ACTIONS.FrameAction.RUN_ONLY:
            limit = _SETTINGS["recompile_limit"]
            self._note(f"{limit} graphs were compiled of {code.co_name}, and none holds for this call")
            self._full.add(code)
            return _eagerly(recursively=True)
        self._note(_words(error, code))
        self._failed_now.append(code)
        return _eagerly(recursively=not isinstance(error, Unsupported))


def _eagerly(*, recursively: bool) -> ConvertFrameReturn:
    """Run a frame eagerly this time, and on request the functions that it calls.

    Dynamo stores nothing about the code, since others may compile it.
    """
    action = _ACTIONS.FrameAction
    within = action.SKIP if recursively else action.DEFAULT
    strategy = _ACTIONS.FrameExecStrategy(action.SKIP, within)
    return ConvertFrameReturn(frame_exec_strategy=strategy, apply_to_code=False)


def _words(error: Exception, code: types.CodeType) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = list(getattr(error, "real_stack", None) or ())
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else code.co_qualname
    return f"{(lines or [type(error).__name__])[0][:200]} ({place})"


@contextmanager
def _guarding(is_held: Callable[[str, int], bool]) -> Iterator[None]:
    """Make Dynamo guard on more than it does by itself, while it compiles one frame.

    ``is_held``: tells whether an integer of a module, by its place, is a number in the graph.
    """

    def holding(is_number: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
        def is_held_there(value: Any, source: Any) -> bool:
            name = source.name() if callable(source.name) else source.name  # a method in older ones
            of_module = "nn_module" in source.guard_source.name.lower()
            return is_number(value, source) or (of_module and is_held(name, value))

        return is_held_there

    with RestoringStack(config.patch(**_known(_SETTINGS))) as stack:
        _exchange(stack, InliningInstructionTranslator, "build_inline_tracer", _guards_method)
        _exchange(stack, ConstDictVariable, "getitem_const_raise_exception_if_absent", _guards_absent_key)
        _exchange(stack, ConstDictVariable, "install_dict_contains_guard", _guards_keys_of_changed)
        for called in (variables_of_torch.TorchInGraphFunctionVariable, SkipFunctionVariable):
            _exchange(stack, called, "call_function", _raises_as_eagerly)
        for known in (
            variables_of_torch.constant_fold_functions,
            variables_of_torch.constant_fold_functions_need_guards,
        ):
            _add(stack, known, _GUARDED)
        stack.enter_context(exchanged(builder, {"is_int_specialization_case": holding}))
        told: Any = variables_of_torch.tracing_state_functions()
        stack.callback(told.update, {function: told[function] for function in _AS_EAGERLY})
        told.update(_AS_EAGERLY)
        yield


def _add(stack: ExitStack, known: Any, functions: Iterable[Any]) -> None:
    for function in functions:
        if function not in known:
            known[function] = None
            stack.callback(known.pop, function)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if hasattr(config, name)}


def _exchange(stack: ExitStack, owner: type, name: str, before: Callable[..., None]) -> None:
    """Call a function before a method of Dynamo, until the stack ends."""
    kept = vars(owner).get(name)
    if kept is None:  # better no graph than one that holds where it should not
        raise RuntimeError(f"this torch has no {owner.__name__}.{name}, so that guards would be missing")
    function = getattr(kept, "__func__", kept)

    def both(*args: Any, **kwargs: Any) -> Any:
        before(*args[:3])
        return function(*args, **kwargs)

    setattr(owner, name, staticmethod(both) if isinstance(kept, staticmethod) else both)
    stack.callback(setattr, owner, name, kept)


def _guards_method(parent: Any, function: Any, args: Any) -> None:
    """Guard on the method that the class of an object has, which Dynamo assumes to stay."""
    owner, called = args[0] if args else None, getattr(function, "fn", None)
    if not isinstance(owner, UserDefinedObjectVariable) or owner.source is None or called is None:
        return
    name = called.__name__
    if getattr(type(owner.value), name, None) is called:
        install_guard(AttrSource(TypeSource(owner.source), name).make_guard(GuardBuilder.CLOSURE_MATCH))


def _guards_absent_key(dictionary: Any, tx: Any, key: Any) -> None:
    """Guard on a key that a dictionary does not have, where the model's code catches the error."""
    if key not in dictionary:
        dictionary.install_dict_contains_guard(tx, [key])


def _guards_keys_of_changed(dictionary: Any, tx: Any, keys: Any) -> None:
    """Guard on the keys of a dictionary that the code has changed, which Dynamo believes it has done."""
    if tx.output.side_effects.is_modified(dictionary):
        dictionary.install_dict_keys_match_guard()


def _raises_as_eagerly(function: Any, tx: Any, args: Any) -> None:
    """Let a setting that this build of torch does not have raise where the code that asks can catch it."""
    if function.value in _GUARDED:
        try:
            function.value()
        except RuntimeError as error:
            raise_observed_exception(RuntimeError, tx, args=[str(error)])
