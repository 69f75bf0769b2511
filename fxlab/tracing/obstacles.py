"""Obstacles to a trace, as stable codes, and words in one table."""

from __future__ import annotations

from enum import unique

from fxlab.base.reasons import Coded
from fxlab.tracing.report import TraceError

_ADVICE = "Name the module that does this in leaf_modules."


@unique
class Obstacle(Coded):
    """Why a model could not be recorded: the name of each is its code, in kebab case, the value its words.

    Calling one with the details that its words name makes a :class:`TraceError`.

    Examples
    --------
    >>> error = Obstacle.MEMORY_READ(called="data_ptr")
    >>> error, error.code
    (TraceError('The model reads memory (data_ptr), which only real inputs have'), 'memory-read')
    """

    # The model
    MODEL_RAISES = "{model} itself raises {error} on these inputs: {message}"
    MODEL_DOES_NOT_RUN = "The model does not run on these inputs"
    OFFLOADED = (
        "{model} has weights on the meta device and modules whose forward was exchanged, as accelerate does "
        "to load weights when they are used. Trace it before its weights are moved away, or after "
        "accelerate.hooks.remove_hook_from_submodules(model)."
    )
    UNTRACEABLE = (
        "{model} could not be traced. Run on {rung}, it raised {error}: {message}\n"
        "A module that cannot be recorded can be named in leaf_modules; dynamic=False makes sizes numbers."
    )

    # Calls that cannot be recorded
    HIDDEN_BY_TORCH = (
        f"The model uses {{called}}. Torch hides what is computed inside, so it cannot be recorded. {_ADVICE}"
    )
    HIDDEN_OPERATOR = (
        "{called} is called by what torch does not show (a compiled or a scripted function), at {where}. "
        f"{_ADVICE}"
    )
    HIDDEN_TENSOR = (
        "A tensor was made by a call that torch does not show (in another thread, in the memory of numpy, "
        f"inside torch.vmap, a compiled or a scripted function), at {{where}}. {_ADVICE}"
    )
    HIDDEN_NUMBER = "A number was read out of a tensor by a call that torch does not show, at {where}"
    OTHER_THREAD = f"The model computes in another thread, which cannot be followed, at {{where}}. {_ADVICE}"
    COLLECTIVE_GOES_ON = (
        "{called} returns before the collective is over (async_op=True), at {where}, and a graph cannot hold "
        f"what it returns. Wait in the call (async_op=False). {_ADVICE}"
    )
    NESTED_TENSOR = f"The model makes a nested tensor, which cannot be recorded. {_ADVICE}"
    CAUGHT_ERROR = "The model may go on after {called} has raised, which a graph cannot check"
    UNUSUAL_ARGUMENT = f"A call takes a {{type}}, which a graph cannot hold, at {{where}}. {_ADVICE}"
    UNUSUAL_RESULT = "{called} gives a {type}, which a graph cannot check"
    BACKWARD = (
        "The model calls backward(), which leaves gradients in tensors, where a graph cannot read them. "
        "torch.autograd.grad, which returns them, can be recorded. Give a training step by its parts: "
        "fxlab.trace_step(model, batch, loss=loss, optimizer=optimizer)."
    )
    READ_IN_VMAP = (
        "A function that is given to torch, such as to torch.vmap, reads data, which a graph cannot "
        f"check there, at {{where}}. {_ADVICE}"
    )
    FUNCTION_GIVEN = (
        f"A function that is given to torch's {{operator}} {{reason}}, which torch refuses as well. {_ADVICE}"
    )
    NUMBER_CARRIED = (
        "A number that torch's {operator} carries is decided on, or the model has to run on real inputs; a "
        f"graph would hold for that number alone. Carry a tensor with the number. {_ADVICE}"
    )
    TEXT_OF_SIZE = "A text with a size in it, {text!r}, is returned or given to a call, at {where}"
    SEEDS = (
        "The model seeds torch's random number generators ({called}, at {where}) and draws from them; its "
        "graph would draw without seeding. Seed them before the call, or give the model the random numbers."
    )
    GENERATOR = (
        "The model goes on with {called}, at {where}, which cannot be copied, and gives each run "
        "other values. Give the model the values as inputs."
    )
    WRITTEN_UNSEEN = "Something else than torch, numpy maybe, writes into a tensor of the model"

    # Properties that only real inputs have
    MEMORY_READ = "The model reads memory ({called}), which only real inputs have"
    SPARSE_PARTS_READ = "The model reads parts of a sparse tensor ({called}), which only real inputs have"
    ADDRESS_READ = "The model reads where a storage begins (data_ptr), which only real inputs tell"
    DERIVATIVE_OF_DATA = "Derivatives that may be None, in batches or decided on need real inputs"

    # The graph
    INPUTS_REFUSED = "The graph refuses the inputs that it was made of: {error}"
    WOULD_BE_REFUSED = "The graph would refuse its inputs: it is right for {condition} only"
    DECIDED_OUTSIDE = "The model itself {reason}"
    NO_PART = "There is no part that would hold for more if it stayed whole"
    TOO_MANY_PARTS = "After {runs} runs there are still parts that cannot be followed"

    def __call__(self, **details: object) -> TraceError:
        """Return the error that says so."""
        error = TraceError(self.value.format(**details))
        error.code = self.code
        return error
