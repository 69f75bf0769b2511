"""The report of a trace: how it was made; findings and obstacles, as stable codes with words in one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import unique

from torch.fx import GraphModule

from fxlab.base.author_frames import stretches
from fxlab.base.first_use import pd
from fxlab.base.reasons import Coded
from fxlab.base.words import error_words


@dataclass(frozen=True)
class Finding:
    """One thing that a trace follows, fixed or checked."""

    kind: str
    """``symbolic size``, ``fixed size``, ``fixed dtype``, ``branch on a size``, ``branch on data``,
    ``requirement``, ``kept whole``, ``module``, ``constant``, ``mode``, ``setting``, ``gradient``,
    ``attribute``, ``state`` or ``check``."""
    what: str
    """The dimension, condition, call or tensor that it is about."""
    detail: str = ""
    """How the trace treats it, in words."""
    where: str = ""
    """``file:line`` of the model's code, where there is one."""
    code: str = ""
    """Tells findings apart within a kind, for programs and tests; it stays when the words are improved."""


@unique
class Found(Coded):
    """The findings: the name of each is its code, in kebab case, the value its kind and its words.

    Calling one with its subject, and the details that its words name, makes a :class:`Finding`.

    Examples
    --------
    >>> Found.FIXED_SIZE("x.shape[0]", size=3)
    Finding(kind='fixed size', what='x.shape[0]', detail='fixed at 3', where='', code='fixed-size')
    """

    # Sizes and dtypes of inputs
    FOLLOWED_SIZE = "symbolic size", ""
    SAME_SIZE = "symbolic size", "same as {other}"
    FIXED_SIZE = "fixed size", "fixed at {size}"
    NEEDLESSLY_FIXED_SIZE = "fixed size", "fixed at {size}, though the model takes other sizes"
    COSTLY_SIZE = (
        "fixed size",
        "fixed at {size}: following it takes too much arithmetic; the model may take other sizes",
    )
    NARROW_SIZE = "fixed size", "fixed at {size}: the model takes few others, as it ties what it makes of it"
    FIXED_DTYPE = "fixed dtype", "fixed at {dtype}: the model's Python reads dtypes"

    # Decisions
    BRANCH_ON_SIZE = "branch on a size", "the branch taken is held"
    SHAPES_OF_BRANCH = "branch on a size", "torch computed the shapes of the branch taken, which is held"
    BRANCH_ON_DATA = "branch on data", "the branch taken is held"
    REQUIREMENT = "requirement", "the model requires it"
    VALUE_READ = "branch on data", "the graph holds for {value!r:.60} only"
    SHAPE_READ = "branch on data", "the graph holds for its shape {shape} only"
    LAYOUT_READ = "branch on data", "the graph holds for tensors that lie in memory alike"
    ERROR_CAUGHT = "branch on data", "the graph holds where it raises {error}"
    ADDRESS_READ = "branch on data", "an address is read, which the graph does not check"
    TEXT_READ = "branch on data", "a text of a tensor, which the graph does not check"

    # Other inputs that the graph holds for
    MODE = "mode", "the graph holds for {mode}"
    SETTING = "setting", "the graph holds for {value}"
    NEEDS_GRADIENTS = "setting", "the graph runs with gradients only, which are off now ({error})"
    GRADIENT_READ = "setting", "the graph holds for a tensor of which this is {value}"
    GRADIENT_READ_BY_TORCH = "setting", "the graph has the kernel that torch chooses for {value!s:.60}"
    OWN_BACKWARD = "gradient", "its own backward is not in the graph"
    SAVED_TENSORS = (
        "saved tensors",
        "the model recomputes or moves the tensors that its backward pass needs, the graph keeps them",
    )
    GRADIENTS_DIFFER = "gradient", "the graph is not the model there: {difference:.200}"
    BACKWARD_HOOKS = "gradient", "its backward hooks are not in the graph"
    CONSTANT_TENSOR = "constant", "{shape} {dtype}, kept with the graph"
    VALUE_OF_STATE = "constant", "its value is held fixed: {value!r:.60}"
    KEPT_WHOLE = "kept whole", "it {reason}"
    MODULE_OF_TORCH = (
        "module",
        "{paths}: whole, a node each, as modules of torch.nn are; a function as leaf_modules opens them",
    )
    COMPILED = "module", "compiled: the graph is of its source, what a compiler makes of that is not compared"
    ATTRIBUTE_CHANGED = "attribute", "is changed when the model runs, not when the graph does"
    INPUT_CHANGED = "state", "the model changes what it holds, the graph does not"
    BUFFER_REPLACED = "state", "the model replaces it by another shape or dtype, the graph does not"
    NUMBER_OF_SYSTEM = (
        "constant",
        "is another number each time; the one that the model's Python read is held fixed",
    )
    FILES_READ = "constant", "reads the file system; the answer that the model's Python got is held fixed"
    DRAWN_BY_PYTHON = "state", "random numbers that the model's Python draws from it are held fixed"
    SEEDS = "state", "the model seeds torch's random number generators, the graph does not"
    SECOND_RUN_DIFFERS = "state", "the model has changed what the graph has not: {difference:.200}"

    # Comparisons with the model
    SAME_BITS = "check", "same bits as the model"
    MODEL_RAISES = "check", "left out: the model raises {error!s:.200}"
    GRAPH_REFUSES = "check", "refused: {error!s:.200}"
    NO_SUCH_INPUTS = "check", "left out: there are no such inputs"
    NOT_COMPARED = "check", "left out, and so is what torch assumes where sizes are not one: {reason}"

    def __call__(self, what: str, where: str = "", **details: object) -> Finding:
        """Return the finding of one thing."""
        kind, words = self.value
        return Finding(kind, what, words.format(**details), where, self.code)


DYNAMIC = "dynamic shapes"
DATA = "dynamic shapes, with data"
WHOLE = "dynamic shapes, parts kept whole"
FIXED = "fixed shapes"
REAL = "real inputs"
EXPORTED = "an exported program"
CAPTURED = "a graph of torch.compile"


class TraceError(RuntimeError):
    """A model could not be recorded. The message names the line of the model and a remedy.

    Examples
    --------
    >>> import torch
    >>> from fxlab import symbolic_trace
    >>> symbolic_trace(torch.nn.Linear(2, 2), torch.ones(3, 5))
    Traceback (most recent call last):
        ...
    fxlab.tracing.report.TraceError: Linear itself raises RuntimeError on these inputs: ...
    """

    code = "other"
    """Tells causes apart, for programs and tests; it stays when the words are improved."""
    graph_module: GraphModule | None = None
    """Of a model that itself raises, the graph up to the call that failed, which is its last node."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the last lines of model and person, then the words."""
        groups = [group.text for group in stretches(self) if group.is_author and group.frames]
        return [*groups[-8:], error_words(self), *getattr(self, "__notes__", ())]


class TraceWarning(UserWarning):
    """A trace is right, but specialised: a size or a branch was fixed.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> from fxlab import symbolic_trace
    >>> class SumOfRows(torch.nn.Module):
    ...     def forward(self, x):
    ...         total = 0
    ...         for row in x:
    ...             total = total + row
    ...         return total
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     traced = symbolic_trace(SumOfRows(), torch.ones(3, 2))
    >>> print(caught[0].message)
    The traced graph is specialised:
      x.shape[0] fixed at 3, though the model takes other sizes
    """


_REASSURING = ("check", "symbolic size")
_LIMITING = ("branch on data", "gradient", "state", "setting")
_NEEDLESS = (Found.NEEDLESSLY_FIXED_SIZE.code, Found.COSTLY_SIZE.code)


@dataclass(frozen=True)
class TraceReport:
    """The record of how a graph module was traced; found in ``graph_module.meta["trace"]``.

    Examples
    --------
    >>> import torch, fxlab
    >>> traced = fxlab.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()), (torch.randn(2, 3),))
    >>> report = traced.meta["trace"]
    >>> report.rung
    'dynamic shapes'
    >>> list(report.table["kind"].unique())
    ['check', 'symbolic size']
    >>> print(report)
    Traced on dynamic shapes
    check: the inputs same bits as the model
    check: input.shape[0] = 3, input.shape[1] = 4 same bits as the model
    ...
    """

    rung: str
    """The inputs of the recorded run. ``dynamic shapes``, the same ``with data`` (on which it decided) or
    with ``parts kept whole`` (which loop over sizes or data), ``fixed shapes`` (``dynamic=False``) or ``real
    inputs``. Or ``an exported program``, which fxlab did not run."""
    findings: tuple[Finding, ...] = ()
    """Its findings, in the order of the run."""
    steps_down: tuple[str, ...] = ()
    """Why each rung above this one was left, in words."""
    raised: tuple[str, ...] = ()
    """The errors behind these steps, in full."""

    def __str__(self) -> str:
        """Return it as lines; those that limit the graph come first."""
        first = [f for f in self.findings if f.kind not in _REASSURING]
        then = [f for f in self.findings if f.kind in _REASSURING]
        lines = [f"Traced on {self.rung}", *(f"left: {step}" for step in self.steps_down)]
        lines += [f"{f.kind}: {' '.join(filter(None, (f.what, f.detail, f.where)))}" for f in [*first, *then]]
        return "\n".join(lines)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def limits(self) -> tuple[Finding, ...]:
        """Return the findings that specialise the graph.

        They are decisions on data, sizes that the model would take otherwise, settings of torch that the
        model's Python has read, and gradients and state that are not in the graph. Conditions on sizes are
        not among them, as a model may require them itself, nor is the mode: most models differ in training.
        """
        return tuple(f for f in self.findings if f.kind in _LIMITING or f.code in _NEEDLESS)

    @property
    def table(self) -> pd.DataFrame:
        """The findings as a table, in columns ``kind``, ``what``, ``detail``, ``where`` and ``code``."""
        rows = [vars(finding) for finding in self.findings]
        return pd.DataFrame(rows, columns=["kind", "what", "detail", "where", "code"])


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
    QUANTIZED = (
        "{model} computes with torch's quantized tensors (torch.ao.quantization), of which there are no fake "
        "ones to record with. Name a module that takes and returns plain tensors in leaf_modules."
    )
    INFERENCE_TENSOR = (
        "{model} writes into a tensor that was made under torch.inference_mode(), and graphs run outside of "
        "it. Make the model outside of it."
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
        "{called} is called where torch does not show it (in a compiled or scripted function, or by a method "
        f"such as Tensor.set_), at {{where}}. {_ADVICE}"
    )
    HIDDEN_TENSOR = (
        "A tensor was made by a call that torch does not show (in another thread, in the memory of numpy, "
        f"inside torch.vmap, a class of tensors, compiled or scripted code), at {{where}}. {_ADVICE}"
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

    @classmethod
    def behind(cls, message: str) -> Obstacle:
        """Return the obstacle behind an error of torch, if its words tell."""
        if "QuantizedMeta" in message or "quantized nyi" in message:
            return cls.QUANTIZED
        return cls.INFERENCE_TENSOR if "inference tensor outside" in message else cls.UNTRACEABLE
