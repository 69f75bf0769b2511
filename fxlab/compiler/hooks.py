"""The private hooks of torch's compiler: those of its pattern matcher are in ``patterns/asking.py``.

Each is looked up when a compile begins. What this torch does not have is left out, with a remark that says
what cannot be seen without it; borders of phases remain. Patches hold for the whole process while something
is compiled here, and are undone on any way out.
"""

from __future__ import annotations

import copy
import functools
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol
from unittest import mock

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.compiler.patterns.asking import Asking, Hearer, pattern_name
from fxlab.interrupts import RestoringStack

PHASES = ("pre_grad", "joint", "post_grad")
"""The phases of Inductor that run passes over an FX graph, in their order."""
_BORDERS = {phase: f"{phase}_{'graph_' * (phase == 'joint')}passes" for phase in PHASES}

LOCK = threading.RLock()
"""Patches are those of the process, so that one thread compiles at a time."""
SCRIPT_IS_HEARD = threading.Event()
"""Whether a script is listened to, whose compiles are not to be mixed with others."""


class Listener(Hearer, Protocol):
    """What hears of a compile while it goes on, and decides which passes and matches run."""

    def called(self, values: Sequence[Any]) -> None:
        """The graph that was compiled last runs on these values of its placeholders."""

    def begin_phase(self, phase: str, graph_module: GraphModule) -> None:
        """A phase begins with a graph: that of the phase before, or one that was traced anew.

        The first phase is where a graph begins that Dynamo has captured.
        """

    def end_phase(self, phase: str, graph_module: GraphModule) -> None:
        """A phase has left a graph so."""

    def begin_pass(self, name: str, graph_module: GraphModule, *, can_skip: bool) -> bool:
        """Tell whether a pass may run; where ``can_skip`` is false it runs in any case."""

    def end_pass(self, graph_module: GraphModule) -> None:
        """The pass that began last is done, also if it raised or was skipped."""

    def begin_match(self, pattern: str, anchor: Node, nodes: Sequence[Node]) -> bool:
        """Tell whether the nodes that a pattern has matched may be replaced."""

    def end_match(self) -> None:
        """The match that began last is done."""

    def generated(self, code: Callable[..., Any]) -> None:
        """A backend has made this of the graph that Dynamo captured last."""

    def kernels(self, found: Mapping[str, Sequence[str]]) -> None:
        """The nodes, by the kernels that they went into, of the graph whose passes ran last."""


class Patches:
    """Exchanges functions of torch, and notes those that there are not."""

    def __init__(self, stack: RestoringStack) -> None:
        self._stack = stack
        self.remarks: list[str] = []

    def around(self, place: str, make: Callable[[Any], Any], lost: str) -> None:
        """Put a function in place of another one, given as ``module:Class.name``; ``lost`` says why."""
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        try:
            owner: Any = functools.reduce(getattr, outer, import_module(module))
            original = getattr(owner, name)
        except (ImportError, AttributeError):
            self.remarks.append(f"{lost}: this torch ({torch.__version__}) has no {path} in {module}.")
            return
        replacement = functools.wraps(original)(make(original))
        self._stack.enter_context(mock.patch.object(owner, name, replacement))

    def setting(self, place: str, *, lost: str = "", **values: Any) -> None:
        """Change settings of a module of torch, those that it has; ``lost`` says what that is without."""
        config = import_module(place)
        known = {name: value for name, value in values.items() if hasattr(config, name)}
        self._stack.enter_context(config.patch(**known))
        if lost and known.keys() != values.keys():
            missing = ", ".join(values.keys() - known.keys())
            self.remarks.append(f"{lost}: this torch ({torch.__version__}) has no {place}.{missing}.")


@contextmanager
def listening(listener: Listener) -> Iterator[list[str]]:
    """Let a listener hear of all that this thread compiles with Inductor inside.

    Yields
    ------
    list of str
        What it cannot hear of with this torch, in words.
    """
    if SCRIPT_IS_HEARD.is_set():
        raise RuntimeError(
            "Nothing is compiled for a session while record_compile records; do it after its block."
        )
    with LOCK, RestoringStack() as stack:
        patches, around = Patches(stack), _Around(listener)
        for phase in PHASES:
            border = f"torch._inductor.compile_fx:_recursive_{_BORDERS[phase]}"
            make = functools.partial(around.phase, phase)
            patches.around(border, make, f"The passes of {phase} are not seen")
        observer = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
        for name, around_pass in {
            "apply_graph_pass": around.applied_pass,
            "apply_gm_pass": around.applied_pass,
            "__enter__": around.entered_pass,
            "__exit__": around.left_pass,
        }.items():
            patches.around(f"{observer}.{name}", around_pass, "Passes are not told apart")
        matcher, asking = "torch._inductor.pattern_matcher", Asking(listener, lambda: around.is_in_pass)
        lost = "Why patterns do not match is not known"
        patches.around(f"{matcher}:PatternMatcherPass.apply", asking.pass_, lost)
        patches.around(f"{matcher}:MatchContext.match", asking.step, lost)
        patches.around(
            f"{matcher}:PatternMatcherPass.apply", around.pattern_pass, "Passes are not told apart"
        )
        for entry in ("LoweringPatternEntry", "GraphPatternEntry", "ReplacementPatternEntry"):
            patches.around(f"{matcher}:{entry}.apply", around.match, "Matches are not told apart")
        yield patches.remarks


class _Around:
    """Makes what takes the place of torch's functions; only the thread that made it is heard."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._thread = listener, threading.get_ident()
        self._phases = self._passes = 0
        """How many surround what runs now: of nested ones, the outermost counts."""

    @property
    def _is_heard(self) -> bool:
        """Whether passes are told: not those over a graph inside of another."""
        return threading.get_ident() == self._thread and self._phases == 1

    @property
    def is_in_pass(self) -> bool:
        """Whether a pass runs that is told."""
        return self._is_heard and self._passes > 0

    def phase(self, phase: str, original: Any) -> Any:
        def run(graph_module: GraphModule, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(graph_module, *args, **kwargs)
            self._phases += 1
            try:
                if self._is_heard:
                    self._listener.begin_phase(phase, graph_module)
                result = original(graph_module, *args, **kwargs)
                if self._is_heard:
                    self._listener.end_phase(phase, graph_module if result is None else result)
                return result
            finally:
                self._phases -= 1

        return run

    def applied_pass(self, original: Any) -> Any:
        def run(observer: Any, function: Any) -> Any:
            name = pass_name(observer.passname, function)
            with self._one_pass(name, observer.gm) as may_run:
                return original(observer, _as_it_is_now(function)) if may_run else None

        return run

    def pattern_pass(self, original: Any) -> Any:
        def run(patterns: Any, graph: Any) -> Any:
            graph_module: Any = graph.owning_module if isinstance(graph, Graph) else graph
            with self._one_pass(patterns.pass_name or "pattern_matcher", graph_module) as may_run:
                return original(patterns, graph) if may_run else 0

        return run

    def entered_pass(self, original: Any) -> Any:
        def enter(observer: Any) -> Any:
            if self._is_heard:
                self._passes += 1
                if self._passes == 1:
                    self._listener.begin_pass(observer.passname, observer.gm, can_skip=False)
            return original(observer)

        return enter

    def left_pass(self, original: Any) -> Any:
        def leave(observer: Any, *error: Any) -> Any:
            result = original(observer, *error)
            if self._is_heard:
                if self._passes == 1:
                    self._listener.end_pass(observer.gm)
                self._passes -= 1
            return result

        return leave

    @contextmanager
    def _one_pass(self, name: str, graph_module: GraphModule) -> Iterator[bool]:
        """Tell whether a pass may run, which is told to the listener unless it runs inside another."""
        is_told = self._is_heard and not self._passes
        may_run = self._listener.begin_pass(name, graph_module, can_skip=True) if is_told else True
        self._passes += is_told
        try:
            yield may_run
        finally:
            self._passes -= is_told
            if is_told:
                self._listener.end_pass(graph_module)

    def match(self, original: Any) -> Any:
        def run(entry: Any, match: Any, graph: Graph, node: Node) -> None:
            if not self.is_in_pass:
                original(entry, match, graph, node)
                return
            may_apply = self._listener.begin_match(pattern_name(entry), node, tuple(match.nodes))
            try:
                if may_apply:
                    original(entry, match, graph, node)
            finally:
                self._listener.end_match()

        return run


def pass_name(name: str, function: Any) -> str:
    """Return what a pass is called: a user's own by its own name, not by the place that it is put in."""
    if "custom" not in name:
        return name
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        own = getattr(owner, "pass_name", None) or type(owner).__name__
    else:
        own = getattr(function, "__name__", type(function).__name__)
    return name if own == "<lambda>" else str(own)


def _as_it_is_now(function: Any) -> Any:
    """Return the method of a pass of patterns as it is patched now; it may have been taken before."""
    owner: Any = getattr(function, "__self__", None)
    is_apply = hasattr(owner, "patterns") and getattr(function, "__name__", "") == "apply"
    return owner.apply if is_apply else function


def inductor_lowering(target: Any) -> bool:
    """Tell whether the target of a node is a lowering of Inductor, which exists in generated code alone."""
    return hasattr(target, "_inductor_lowering_function")


def root_names(node: Node) -> tuple[str, ...]:
    """Return the nodes of Dynamo's graph that a node was made from, by name."""
    names: dict[str, None] = {}
    for source in node.meta.get("from_node") or ():
        while getattr(source, "from_node", None):
            source = source.from_node[0]
        if getattr(source, "node_info", None) is not None:
            names[str(source.name)] = None
    return tuple(names)


def input_index(descriptor: Any) -> int | None:
    """Return which placeholder of Dynamo's graph one of AOTAutograd's is, as its descriptor says."""
    return descriptor.idx if type(descriptor).__name__ == "PlainAOTInput" else None


def unfrozen(options: Mapping[str, Any], *, training: bool) -> str:
    """Return why ``freezing`` folds no weights although it is asked for; empty if it does, or is not."""
    from torch._inductor import config

    if not options.get("freezing", config.freezing):
        return ""
    if training:
        return "freezing: weights are folded for inference alone, and gradients are compiled here."
    if config.freezing:
        return ""
    return (
        "freezing: no weight is folded, here as by torch.compile: Dynamo does not know the option, and makes "
        "weights inputs of its graph. Set torch._inductor.config.freezing = True instead."
    )


def held_name(descriptor: Any) -> str | None:
    """Return what Dynamo's graph calls the parameter or buffer that one of AOTAutograd's placeholders is."""
    is_held = type(descriptor).__name__ in ("ParamAOTInput", "BufferAOTInput")
    return str(descriptor.target) if is_held else None


def output_index(descriptor: Any) -> int | None:
    """Return which output of Dynamo's graph one of AOTAutograd's is, as its descriptor says."""
    return descriptor.idx if type(descriptor).__name__ == "PlainAOTOutput" else None


def tangent_index(descriptor: Any) -> int | None:
    """Return of which output of Dynamo's graph a placeholder of AOTAutograd's is the gradient."""
    is_tangent = type(descriptor).__name__ == "TangentAOTInput"
    return output_index(descriptor.output) if is_tangent else None


def gradient_index(descriptor: Any) -> int | None:
    """Return of which placeholder of Dynamo's graph an output of AOTAutograd's is the gradient."""
    return input_index(descriptor.grad_of) if type(descriptor).__name__ == "GradAOTOutput" else None


def compile_once(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    listener: Listener,
    *,
    training: bool,
    options: Mapping[str, Any],
    dynamic: bool | None,
    generates: bool = False,
) -> list[str]:
    """Compile a model with Inductor, without generating code unless asked to, and tell a listener all of it.

    Caches are neither read nor written, and what Dynamo has compiled for others stays. The model runs once,
    eagerly, on the inputs.

    Returns
    -------
    list of str
        What the listener could not hear of, in words.
    """
    with warnings.catch_warnings():
        # Of torch about itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._dynamo.exc import BackendCompilerFailed
        from torch._inductor import compile_fx

    def backend(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        eager = GraphModule(graph_module, copy.deepcopy(graph_module.graph))
        inner = compile_fx.compile_fx_inner if generates else _without_code
        code: Any = compile_fx.compile_fx(
            graph_module, example_inputs, inner_compile=inner, config_patches=dict(options) or None
        )
        if generates:
            listener.generated(code)

        def run(*values: Any) -> Any:
            listener.called(values)
            return eager(*values)

        return run

    gradients = torch.enable_grad() if training else torch.no_grad()
    with RestoringStack(_caches_kept(), gradients) as stack:
        remarks = stack.enter_context(listening(listener))
        if training:
            patches = Patches(stack)
            lost = "The backward graph is not seen, as it is compiled when it first runs"
            patches.setting("torch._functorch.config", lost=lost, force_non_lazy_backward_lowering=True)
            remarks += patches.remarks
        try:
            torch.compile(_fresh(model), backend=backend, dynamic=dynamic)(*args, **kwargs)
        except BackendCompilerFailed as error:
            raise error.inner_exception from None
    return remarks


def _fresh(model: nn.Module) -> Callable[..., Any]:
    """Return a function that calls a model, with code of its own, of which Dynamo knows nothing yet.

    What it decides of code, such as that there is nothing in it to compile, it never forgets.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return types.FunctionType(
        call.__code__.replace(), globals(), model.__class__.__name__, None, call.__closure__
    )


def _without_code(graph_module: GraphModule, example_inputs: Sequence[Any], **known: Any) -> Any:
    """Do what Inductor does with a graph before it generates code."""
    from torch._inductor import compile_fx
    from torch._inductor.virtualized import V
    from torch.utils._python_dispatch import _disable_current_modes

    if any(node.op.startswith("call") for node in graph_module.graph.nodes):
        with _disable_current_modes():
            _if_there(compile_fx, "view_to_reshape", graph_module)
            with torch.no_grad():
                fake_mode = compile_fx.fake_tensor_prop(graph_module, example_inputs)
            _if_there(compile_fx, "_recursive_record_original_output_strides", graph_module)
            with V.set_fake_mode(fake_mode):
                is_inference = bool(known.get("is_inference", False))
                compile_fx._recursive_post_grad_passes(graph_module, is_inference=is_inference)

    def no_code(arguments: list[Any]) -> Any:
        raise RuntimeError("This graph was compiled to be looked at, and has no code.")

    no_code._boxed_call = True  # type: ignore[attr-defined]
    return no_code


def _if_there(module: Any, name: str, graph_module: GraphModule) -> None:
    function = getattr(module, name, None)
    if function is not None:
        function(graph_module)


@contextmanager
def _caches_kept() -> Iterator[None]:
    """Compile anew, and leave nothing behind of it: no entries of caches, counters or observed sizes."""
    from torch._dynamo import config, convert_frame, output_graph, utils

    entries = _Entries()
    with RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._functorch.config", enable_autograd_cache=False)
        # What others have compiled of the same code counts towards the limit.
        limit = int(getattr(config, "recompile_limit", 8)) + 64
        patches.setting("torch._dynamo.config", suppress_errors=False, recompile_limit=limit)
        stack.enter_context(_put_back("torch._dynamo.pgo", "_CODE_STATE"))
        counted = {name: counter.copy() for name, counter in utils.counters.items()}
        reasons = getattr(output_graph, "graph_break_reasons", [])
        known = len(reasons)
        hook = convert_frame.register_bytecode_hook(entries.note)
        try:
            yield
        finally:
            hook.remove()
            entries.remove_new()
            del reasons[known:]
            utils.counters.clear()
            utils.counters.update(counted)


@contextmanager
def _put_back(place: str, name: str) -> Iterator[None]:
    """Give a variable of a module of torch the value that it has now, at the end."""
    try:
        module = import_module(place)
        value = copy.deepcopy(getattr(module, name))
    except (ImportError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        setattr(module, name, value)


class _Entries:
    """The entries of Dynamo's cache of the code that is compiled."""

    def __init__(self) -> None:
        self._known: dict[types.CodeType, list[Any]] = {}

    def note(self, code: types.CodeType, new_code: types.CodeType) -> None:
        """Note the entries that there are, when one more is about to be added."""
        self._known.setdefault(code, _cached(code))

    def remove_new(self) -> None:
        """Remove the entries that were added since."""
        for code, known in self._known.items():
            if not known:
                torch._C._dynamo.eval_frame.reset_code(code)
                continue
            managers = {id(entry.guard_manager) for entry in known}
            for entry in _cached(code):
                if id(entry.guard_manager) not in managers:
                    _remove(entry)


def _cached(code: types.CodeType) -> list[Any]:
    listed = getattr(torch._C._dynamo.eval_frame, "_debug_get_cache_entry_list", None)
    return [] if listed is None else list(listed(code))


def _remove(entry: Any) -> None:
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    manager = entry.guard_manager
    state = getattr(manager, "extra_state", None)
    if state is not None:
        state.invalidate(entry, DeletedGuardManagerWrapper("it was compiled to be looked at"))
