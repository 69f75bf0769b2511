"""Private hooks by which a session's compiler compiles a model, with code or without, and restores all."""

import contextlib
import copy
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.heard_calls import Call, Patches
from fxlab.base.interrupts import RestoringStack
from fxlab.compiler.graphs.held_modules import modules_read
from fxlab.compiler.graphs.python_function import owner_of, plain_function
from fxlab.compiler.recording.hooks import listening
from fxlab.compiler.recording.recorder import Recorder
from fxlab.compiler.story.hooks import hear_story
from fxlab.models.graph_modules.generated_code import protect

OF_AUTOGRAD = ("activation_memory_budget",)
"""Options of AOTAutograd: the share of activations that is kept for the backward pass."""


def values() -> dict[str, Any]:
    """Return all options of Inductor as they are now, and those of AOTAutograd that are taken as well."""
    from torch._functorch import config as of_autograd
    from torch._inductor import config

    return {name: getattr(of_autograd, name) for name in OF_AUTOGRAD} | config.get_config_copy()


def mode_options(mode: str) -> dict[str, Any]:
    """Return the options that a mode of ``torch.compile`` stands for; ``ValueError`` if there is none."""
    known: dict[str, dict[str, Any]] = torch._inductor.list_mode_options()
    known = {"default": {}, **known}
    if mode not in known:
        raise ValueError(f"mode: torch.compile has no mode {mode!r}; it has {', '.join(known)}.")
    return dict(known[mode])


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


def compile_once(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    recorder: Recorder,
    *,
    training: bool,
    options: Mapping[str, Any],
    dynamic: bool | None,
    generates: bool = False,
) -> tuple[Any, list[str]]:
    """Compile a model with Inductor, without generating code unless asked to, and tell a recorder all of it.

    Caches are neither read nor written, and code that Dynamo has compiled for others stays. The graphs that
    Dynamo captures run once, eagerly, on the inputs. Returns the result of the model, computed by them, and
    the parts that the recorder could not hear of, in words.
    """
    with warnings.catch_warnings():
        # Of torch about itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._dynamo.exc import BackendCompilerFailed
        from torch._inductor import compile_fx

    of_autograd = {name: value for name, value in options.items() if name in OF_AUTOGRAD}
    of_inductor = {name: value for name, value in options.items() if name not in OF_AUTOGRAD}

    def backend(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        # Copied first, as the compiler's passes change the graph in place.
        eager = GraphModule(graph_module, protect(copy.deepcopy(graph_module.graph)))
        inner = compile_fx.compile_fx_inner if generates else _without_code
        code: Any = compile_fx.compile_fx(
            graph_module, example_inputs, inner_compile=inner, config_patches=of_inductor or None
        )
        if generates:
            recorder.generated(code)
        recording = recorder.recordings[-1]  # later graphs may begin before this one runs once more

        def run(*values: Any) -> Any:
            recording.note_values(values)
            return eager(*values)

        return run

    def captured(call: Call) -> Any:
        graph_module = call.given(1, GraphModule)
        recorder.read_modules(modules_read(call.given(0), graph_module), graph_module)
        return call()

    gradients = torch.enable_grad() if training else torch.no_grad()
    with RestoringStack(caches_kept(), gradients) as stack:
        remarks = stack.enter_context(listening(recorder))
        patches = Patches(stack)
        hear_story(patches, recorder.story)
        place = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"
        patches.around(place, captured, "Modules that a graph reads are not known")
        if training:
            lost = "The backward graph is not seen, as it is compiled when it first runs"
            patches.setting("torch._functorch.config", lost=lost, force_non_lazy_backward_lowering=True)
        if of_autograd:
            lost = f"{', '.join(of_autograd)} is left as it was"
            patches.setting("torch._functorch.config", lost=lost, **of_autograd)
        try:
            result = torch.compile(fresh(model), backend=backend, dynamic=dynamic)(*args, **kwargs)
        except BackendCompilerFailed as error:
            # Dynamo's wrapper only says that a backend has failed.
            raise error.inner_exception from None
        remarks += patches.remarks
    return result, remarks


def unwrapped(model: Any) -> Any:
    """Return the module or function that ``torch.compile`` has wrapped, if it has wrapped one."""
    if isinstance(model, nn.Module):
        return getattr(model, "_orig_mod", model)
    return getattr(model, "_torchdynamo_orig_callable", model)


def fresh(model: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a copy of a function's code, of which Dynamo has decided nothing yet."""
    if not isinstance(model, nn.Module):
        own = plain_function(model)
        code = own.__code__.replace()
        copied = types.FunctionType(code, own.__globals__, own.__name__, own.__defaults__, own.__closure__)
        copied.__kwdefaults__ = own.__kwdefaults__
        owner = owner_of(model)
        return copied if owner is None else types.MethodType(copied, owner)

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return types.FunctionType(
        call.__code__.replace(), globals(), model.__class__.__name__, None, call.__closure__
    )


def _without_code(graph_module: GraphModule, example_inputs: Sequence[Any], **known: Any) -> Any:
    """Do Inductor's work on a graph up to the generation of code."""
    from torch._inductor import compile_fx
    from torch._inductor.virtualized import V
    from torch.utils._python_dispatch import _disable_current_modes

    # The steps of Inductor's `codegen_and_compile` before the lowering, in their order.
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

    # The mark says that it takes one list of arguments; AOTAutograd wraps functions without it.
    no_code._boxed_call = True  # type: ignore[attr-defined]
    return no_code


def _if_there(module: Any, name: str, graph_module: GraphModule) -> None:
    function = getattr(module, name, None)
    if function is not None:
        function(graph_module)


@contextmanager
def caches_kept() -> Iterator[None]:
    """Compile again, and leave nothing behind: no entries of caches, counters or observed sizes."""
    from torch._dynamo import config, convert_frame, output_graph, utils

    entries: dict[types.CodeType, list[Any]] = {}

    def note(code: types.CodeType, new_code: types.CodeType) -> None:
        entries.setdefault(code, cache_entries(code))  # those before one more is added

    with RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._functorch.config", enable_autograd_cache=False)
        # Compiles of the same code by others count towards the limit.
        limit = int(getattr(config, "recompile_limit", 8)) + 64
        patches.setting("torch._dynamo.config", suppress_errors=False, recompile_limit=limit)
        with contextlib.suppress(ImportError, AttributeError):
            profile = import_module("torch._dynamo.pgo")
            observed = copy.deepcopy(profile._CODE_STATE)
            stack.enter_context(mock.patch.object(profile, "_CODE_STATE", observed))
        counted = {name: counter.copy() for name, counter in utils.counters.items()}
        reasons = getattr(output_graph, "graph_break_reasons", [])
        known = len(reasons)
        hook = convert_frame.register_bytecode_hook(note)
        try:
            yield
        finally:
            hook.remove()
            _remove_entries_besides(entries)
            del reasons[known:]
            utils.counters.clear()
            utils.counters.update(counted)


def _remove_entries_besides(known: Mapping[types.CodeType, list[Any]]) -> None:
    """Remove the entries that Dynamo's cache has for code, except for the known ones."""
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    for code, before in known.items():
        if not before:
            # Torch removes all entries of a code object at once, or marks a single one as invalid.
            torch._C._dynamo.eval_frame.reset_code(code)
            continue
        managers = {id(entry.guard_manager) for entry in before}
        for entry in cache_entries(code):
            state = getattr(entry.guard_manager, "extra_state", None)
            if id(entry.guard_manager) not in managers and state is not None:
                state.invalidate(entry, DeletedGuardManagerWrapper("it was compiled to be looked at"))


def cache_entries(code: types.CodeType) -> list[Any]:
    """Return Dynamo's compiled entries of a function, if this torch tells."""
    listed = getattr(torch._C._dynamo.eval_frame, "_debug_get_cache_entry_list", None)
    return [] if listed is None else list(listed(code))


@contextmanager
def generating() -> Iterator[None]:
    """Let Inductor generate code again: no graph is read from its caches, only compiled kernels are."""
    with PROCESS_LOCK, RestoringStack() as stack:
        patches = Patches(stack)
        patches.setting("torch._inductor.config", fx_graph_cache=False, fx_graph_remote_cache=False)
        yield


def why_no_code(device_types: set[str]) -> str:
    """Return why Inductor can generate no code for some devices; empty if nothing is known against it."""
    if "cpu" not in device_types:
        return ""
    try:
        import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception as error:
        words = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"there is no C++ compiler ({words}); install g++ or clang, or set CXX"
    return ""
