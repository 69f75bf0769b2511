"""Findings of a trace: the facts it follows, holds fixed or has checked, as codes, and words in one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import unique

from fxlab.base.reasons import Coded


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
