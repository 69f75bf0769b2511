"""Compiles a model for its stages: the function that makes sessions of it."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fxlab.base.checks import require_bool, type_error
from fxlab.compiler.compiling.compiler import Compiler
from fxlab.compiler.compiling.hooks import mode_options, unwrapped, values
from fxlab.compiler.compiling.stack import stacks_of
from fxlab.compiler.scripts.record import linked
from fxlab.compiler.sessions.compile_session import CompileSession
from fxlab.models.running.running import Inputs, given_inputs


def compile_session(
    model: Callable[..., Any],
    inputs: Inputs | None = None,
    *,
    training: bool = False,
    backend: str = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> CompileSession:
    """Compile a model with ``torch.compile``'s Inductor, and record every pass over its graphs.

    No code is generated, so no C++ compiler and no GPU is needed. The model, all other state that its code
    reaches (an optimizer, closures, globals) and the caches of torch are left unchanged. Each pass that has
    changed the graph is a stage of the session, under the compiler's own name; it runs on the inputs with the
    model's own parameters, is judged, and is switched off by compiling again without it.

    Parameters
    ----------
    model
        A module, or a function as ``torch.compile`` takes one: the modules that it reads (of its object, its
        closure, its globals or its arguments) keep their names.
    inputs
        Its arguments: keyword arguments (a mapping), positional arguments (a tuple) or one tensor. For a
        model of transformers they are made from its configuration.
    training
        Whether gradients are compiled as well. A model that takes derivatives itself always has them.
    backend
        The only one whose passes are recorded.
    mode
        A set of options by name, as for ``torch.compile(mode=...)``.
    options
        Settings of Inductor, as for ``torch.compile(options=...)``, and AOTAutograd's
        ``activation_memory_budget``.
    dynamic
        Whether sizes are symbols, as for ``torch.compile(dynamic=...)``.

    Returns
    -------
    CompileSession
        The session of the first graph.

    Raises
    ------
    TypeError
        If ``model`` is neither or cannot be called with ``inputs``, ``training`` is not a bool, ``options``
        no mapping or given with a ``mode``, or ``dynamic`` neither a bool nor ``None``.
    ValueError
        If Inductor has no such option or mode, or Dynamo captures nothing.
    RuntimeError
        If the compiler fails. A pass that raises is left out, if that can be; ``remarks`` say so.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Softmax(-1)).eval()
    >>> session = compile_session(model, torch.ones(2, 4))
    >>> [pass_.name for pass_ in session.passes]
    ['AOTAutograd', 'joint/remove_noop_ops']
    >>> print(session.changes("joint/remove_noop_ops"))
    1 clone removed
    >>> _ = session.revert("joint/remove_noop_ops")
    >>> session.verdict().agrees
    True
    """
    if not callable(model) or isinstance(model, type):
        advice = "Give session.original, and session.inputs." if hasattr(model, "graph_module") else ""
        raise type_error("model", "a torch.nn.Module or a function", model, advice)
    require_bool(training, "training")
    if not isinstance(dynamic, bool | None):
        raise type_error("dynamic", "True, False or None", dynamic)
    if backend != "inductor":
        raise ValueError(
            f"backend: expected 'inductor', whose passes are recorded, got {backend!r}. "
            "fxlab.compiler.record_compile() notes those of any backend; fxlab.Capture keeps the graphs."
        )
    if options is not None and not isinstance(options, Mapping):
        raise type_error("options", "a mapping of Inductor's settings", options)
    if mode is not None:
        if options is not None:
            raise TypeError("mode: torch.compile takes options or a mode, not both. Give one of them.")
        options = mode_options(mode)
    model = unwrapped(model)
    inputs = given_inputs(inputs)
    unknown = sorted({name.replace("-", "_") for name in options or ()} - {*values()})
    if unknown:
        raise ValueError(
            f"options: Inductor has no setting {unknown[0]!r}; see torch._inductor.list_options()."
        )
    if inputs is None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                "inputs: expected what the function is called with, as a tuple or by name. What a run of "
                "yours compiles is recorded by `with fxlab.compiler.record_compile() as record:`."
            )
        from fxlab.tracing.inputs.example_inputs import example_inputs

        inputs = example_inputs(model)
    compiler = Compiler(model, inputs, training=training, options=options or {}, dynamic=dynamic)
    if not compiler.frames:
        why = compiler.first.recorder.story.why_no_graph() or "Does it compute anything with torch?"
        raise ValueError(f"model: Dynamo has captured no graph of it. {why}")
    graphs = {name: CompileSession(stack) for name, stack in stacks_of(compiler).items()}
    linked(graphs, compiler.remarks)
    return next(iter(graphs.values()))
