"""The handler of what torch hides from modes: autograd's functions, ``vmap``, regions with gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Node
from torch.utils.checkpoint import CheckpointFunction

from fxlab.base.exchanged import Make, exchanged_code, instead, patched_functions
from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import pytree
from fxlab.tracing.model_code.model_files import exchanged_in, files_of
from fxlab.tracing.recording.bodies import (
    DERIVATIVES,
    JVP,
    LINEAR,
    LINEARIZE,
    Applied,
    DerivativeBody,
    FlexAttention,
    Given,
    RecordedBody,
    VmapBody,
    arguments_of,
    indexed_by_tensors,
)
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import AutogradFunction, Call, CheckpointOutput
from fxlab.tracing.report import Found, Obstacle, TraceError
from fxlab.tracing.torch_private import TransformGetItemToIndex, apis, eager_transforms


@contextmanager
def autograd_functions_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of ``torch.autograd.Function.apply``, also where it is held as a value.

    Since torch 2.15 it is written in C: one that is held is heard where it makes its context, too late for
    a node, so that the calls of its forward are recorded.
    """

    def call(_: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        function, *given = args
        apply = partial(original, function)
        return _apply(run, function, apply, (*given,), kwargs) if run.is_seen() else apply(*given, **kwargs)

    def begin(context: BackwardCFunction) -> None:
        if run.is_seen():
            run.recording.note(Found.OWN_BACKWARD, type(context).__name__.removesuffix("Backward"))

    apply: Any = vars(Function)["apply"]
    if isinstance(apply, classmethod):
        with exchanged_code(apply.__func__, call):  # type: ignore[arg-type]
            yield
        return

    def in_c(function: type[Function], *args: Any, **kwargs: Any) -> Any:
        return apply.__get__(None, function)(*args, **kwargs)

    heard = instead(lambda *args, **kwargs: call(None, in_c, args, kwargs))
    makes = {"__init__": instead(begin)}
    with patched_functions(Function, {"apply": heard}), patched_functions(BackwardCFunction, makes):
        yield


def _apply(
    run: RecordingState,
    function: type[Function],
    apply: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Any,
) -> Any:
    if function is CheckpointFunction and torch.is_grad_enabled():
        run.recording.note(Found.SAVED_TENSORS, "checkpoint")
        # The argument between is the checkpoint's flag that keeps the state of random generators.
        return _checkpointed(run, args[0], args[2:])
    try:
        run.recording.argument((args, kwargs))
    except TraceError:
        # A node cannot hold its arguments, so the calls of its forward are recorded in its place. A custom
        # operator that has a backward is recorded itself.
        if not function.__module__.startswith("torch._library"):
            run.recording.note(Found.OWN_BACKWARD, function.__name__)
        return apply(*args, **kwargs)
    call = Call("call_function", AutogradFunction(function), args, kwargs)
    return run.recorded_whole(call, lambda: apply(*args, **kwargs), True)  # it may write what it likes


def _checkpointed(run: RecordingState, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Record the function that a reentrant checkpoint runs without gradient, and again in its backward."""
    result = function(*inputs)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]

    def cut(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        call = Call("call_function", CheckpointOutput(), (value, *given), {})
        return run.recorded_whole(call, lambda: call.target(*call.args), False, is_of_torch=True)

    return tuple(map(cut, result)) if isinstance(result, tuple) else cut(result)


@contextmanager
def saved_tensors_seen(run: RecordingState) -> Iterator[None]:
    """Report what a model does with the tensors that are saved for its backward pass, which saves nothing."""
    passed_over: list[saved_tensors_hooks] = []

    def enter(original: Callable[..., Any], hooks: saved_tensors_hooks) -> None:
        if run.is_seen():
            # Torch's own give back the tensors that were saved; those of a model may give others.
            is_of_torch = str(getattr(hooks.pack_hook, "__module__", "")).startswith("torch.")
            found = Found.SAVED_TENSORS if is_of_torch else Found.BACKWARD_HOOKS
            run.recording.note(found, type(hooks).__name__.strip("_"))
            passed_over.append(hooks)
        else:
            original(hooks)

    def leave(original: Callable[..., Any], hooks: saved_tensors_hooks, *error: object) -> None:
        if passed_over and passed_over[-1] is hooks:
            passed_over.pop()
        else:
            original(hooks, *error)

    makes = {"__enter__": partial(partial, enter), "__exit__": partial(partial, leave)}
    with patched_functions(saved_tensors_hooks, makes):
        yield


@contextmanager
def vmap_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of ``torch.vmap``, and record the mapped function as a separate graph."""

    def call(
        original: Callable[..., Any],
        function: Callable[..., Any],
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunk: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not run.is_seen():
            return original(function, in_dims, out_dims, randomness, chunk, *args, **kwargs)
        body = VmapBody(function, in_dims, args)
        result = _followed(
            run, body, lambda f: original(f, in_dims, out_dims, randomness, None, *args, **kwargs)
        )
        # Mapped without chunks above, as each chunk would record the body once more.
        node = Call("call_function", body.target(out_dims, randomness), tuple(body.given), {})
        return run.recorded(node, result, False)

    with patched_functions(apis, {"vmap_impl": lambda original: partial(call, original)}):
        yield


@contextmanager
def derivatives_refused(run: RecordingState) -> Iterator[None]:
    """Refuse the derivatives of ``torch.func`` that are not called by their names there."""

    def nested(original: Any) -> Any:
        if not run.is_seen():
            return original()
        called = "a derivative of torch.func that is not called by its name there (vjp)"
        raise Obstacle.HIDDEN_BY_TORCH(called=called)

    # Functions that all derivatives go through.
    names = "grad_increment_nesting", "jvp_increment_nesting"
    with patched_functions(
        eager_transforms, dict.fromkeys(names, lambda original: partial(nested, original))
    ):
        yield


@contextmanager
def derivatives_seen(run: RecordingState) -> Iterator[None]:
    """Intercept derivatives of ``torch.func``, and record the differentiated function."""

    def make(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def build(*build_args: Any, **build_kwargs: Any) -> Callable[..., Any]:
            options = signature(original).bind(*build_args, **build_kwargs).arguments
            function = options.pop(next(iter(options)))

            def call(*args: Any, **kwargs: Any) -> Any:
                if not run.is_seen():
                    return original(function, **options)(*args, **kwargs)
                body = DerivativeBody(function, args, kwargs)
                return derived(name, options, body, lambda f: original(f, **options)(*args, **kwargs))

            return call

        return build

    def jvp(original: Callable[..., Any], function: Any, primals: Any, tangents: Any, **options: Any) -> Any:
        if not run.is_seen():
            return original(function, primals, tangents, **options)
        body = DerivativeBody(function, (primals, tangents), {})
        return derived(JVP, options, body, lambda f: original(f, primals, tangents, **options))

    def linear(name: str, original: Callable[..., Any], function: Any, *primals: Any, **options: Any) -> Any:
        if not run.is_seen():
            return original(function, *primals, **options)
        body = DerivativeBody(function, primals, {})
        take = partial(_linearized, function) if name == LINEARIZE else original
        output, apply, *others = _followed(run, body, lambda f: take(f, *primals, **options))
        derivative = body.target(name, options)
        node = Call("call_function", derivative, tuple(body.given), {})
        output, *others = run.recorded(node, (output, *others), False)

        def applied(*vectors: Any, **settings: Any) -> Any:
            if not run.is_seen():
                return apply(*vectors, **settings)
            with run.unseen():
                result = apply(*vectors, **settings)
            given = [leaf for leaf in pytree.tree_leaves(vectors) if isinstance(leaf, torch.Tensor)]
            shape = pytree.tree_map_only(torch.Tensor, lambda _: Given.TENSOR, vectors)
            target = Applied(derivative, shape)
            return run.recorded(Call("call_function", target, (*body.given, *given), {}), result, False)

        return (output, applied, *others)

    def derived(name: str, options: Any, body: DerivativeBody, call: Callable[..., Any]) -> Any:
        result = _followed(run, body, call)
        node = Call("call_function", body.target(name, options), tuple(body.given), {})
        return run.recorded(node, result, False)

    makes: dict[str, Make] = {name: partial(make, name) for name in DERIVATIVES}
    makes[JVP] = partial(partial, jvp)
    makes |= {name: partial(partial, linear, name) for name in LINEAR}
    with _wherever_imported(run, torch.func, makes):
        yield


def _linearized(
    function: Callable[..., Any], recorded: Callable[..., Any], *primals: Any
) -> tuple[Any, Callable[..., Any]]:
    """Do as ``torch.func.linearize``, which records a graph itself, and cannot while one is recorded."""
    inside = pytree.tree_map_only(torch.Tensor, torch.ops.aten.alias, primals)
    return recorded(*inside), lambda *tangents: torch.func.jvp(function, primals, tangents)[1]


@contextmanager
def _wherever_imported(run: RecordingState, owner: ModuleType, makes: Mapping[str, Make]) -> Iterator[None]:
    """Exchange functions of a module of torch, also where the model's files have imported them by name."""
    by_function = {id(getattr(owner, name)): make for name, make in makes.items()}
    with RestoringStack(*exchanged_in(files_of(run.model), by_function), patched_functions(owner, makes)):
        yield


def _followed(run: RecordingState, body: RecordedBody, call: Callable[[Callable[..., Any]], Any]) -> Any:
    """Give a function to torch, and record its calls, but nothing that torch does around it."""
    recording = run.recording
    recording.bodies.append(body)
    try:
        recorded = body.recorded(recording.nodes.__setitem__, recording.node_of_output)
        with run.unseen():
            return call(run.seen(recorded))
    finally:
        recording.bodies.pop()
        recording.forget_symbols_of(body.graph)


@contextmanager
def flex_attention_seen(run: RecordingState) -> Iterator[None]:
    """Intercept calls of FlexAttention, and record its functions as separate graphs."""
    module = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None:  # nobody can call it
        yield
        return

    def call(_: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        if not run.is_seen():
            return original(*args, **kwargs)
        given = signature(original).bind(*args, **kwargs).arguments
        query, mask = given["query"], given.get("block_mask")
        functions = {"score_mod": given.get("score_mod"), "mask_mod": getattr(mask, "mask_mod", None)}
        bodies = {name: RecordedBody(f) for name, f in functions.items() if f is not None}
        for name, body in bodies.items():
            with run.unseen():
                numbers = arguments_of(name, query)
            # As torch does around them: an index by a scalar tensor would be read as a plain number.
            with TransformGetItemToIndex():
                _followed(run, body, partial(lambda given, called: called(*given), numbers))
            indexed_by_tensors(body.graph)
        try:
            # FlexAttention compiles itself unless the stance forbids it.
            with run.unseen(), torch.compiler.set_stance("force_eager"):
                result = original(*args, **kwargs)
        except NotImplementedError:  # of gradients on a CPU, after which a model may do something else
            run.setting_reads.hold_gradients()
            raise
        graphs = {name: body.module(name) for name, body in bodies.items()}
        tensors = [given.pop(name) for name in ("query", "key", "value")]
        options = {name: v for name, v in given.items() if name not in ("score_mod", "block_mask")}
        blocks = None if mask is None else {name: v for name, v in vars(mask).items() if name != "mask_mod"}
        others = {name: tuple(body.given) for name, body in bodies.items()}
        target = FlexAttention(graphs, options)
        return run.recorded(Call("call_function", target, (*tensors, blocks, others), {}), result, False)

    with exchanged_code(module.flex_attention, call):
        yield


_is_on = torch.is_grad_enabled  # another stands under this name while a model is recorded


@contextmanager
def gradients_turned_on_seen(run: RecordingState) -> Iterator[None]:
    """Turn gradients on in the graph where the model does, and restore the mode after that.

    A graph is recorded with gradients on, and may run without them. Regions without gradients need no such
    nodes, since their results are detached.
    """
    inside: list[tuple[Any, Node | None]] = []

    def entered(enter: Callable[..., Any], region: Any) -> None:
        enter(region)
        if run.is_seen() and getattr(region, "mode", True):
            before = None if inside else _recorded(run, _is_on)
            inside.append((region, before))
            if before is not None:
                _recorded(run, torch.set_grad_enabled, True)

    def left(leave: Callable[..., Any], region: Any, *error: Any) -> None:
        leave(region, *error)
        if inside and inside[-1][0] is region:
            _, before = inside.pop()
            if before is not None:
                _recorded(run, torch.set_grad_enabled, before)

    makes: dict[str, Make] = {
        "__enter__": lambda enter: partial(entered, enter),
        "__exit__": lambda leave: partial(left, leave),
    }
    with patched_functions(torch.enable_grad, makes), patched_functions(torch.set_grad_enabled, makes):
        yield


def _recorded(run: RecordingState, function: Callable[..., Any], *args: Any) -> Node:
    run.conditions.hold_decisions()
    with run.unseen():
        run.recording.add(Call("call_function", function, args, {}), None, False, impure=True)
    return run.recording.latest
