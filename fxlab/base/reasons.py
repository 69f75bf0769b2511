"""Reasons for which passes refuse candidates, each a stable code and words; the base of other such codes."""

from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Self


@dataclass(frozen=True)
class Refusal:
    """Why a candidate is refused.

    Parameters
    ----------
    code
        Tells reasons apart, for programs and tests; it stays when the words are improved.
    words
        The reason for people, in words that follow the name of the candidate.
    about
        The details that the words name, such as names of nodes.

    Examples
    --------
    >>> print(Refusal("called-repeatedly", "it is called 2 times").prefixed("the linear cannot be replaced"))
    the linear cannot be replaced: it is called 2 times
    """

    code: str
    words: str
    about: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        """Return the words."""
        return self.words

    def prefixed(self, words: str) -> Self:
        """Return the same reason with words before its own."""
        return replace(self, words=f"{words}: {self.words}")


class Coded(Enum):
    """Words for people, each with a code that stays when they are improved."""

    @property
    def code(self) -> str:
        """The name in kebab case, such as ``called-repeatedly``."""
        return self.name.lower().replace("_", "-")


@unique
class Reason(Coded):
    """The reasons of fxlab's own passes: the name of each is its code, in kebab case, the value its words.

    Calling a reason with the details that its words name makes a :class:`Refusal`.

    Examples
    --------
    >>> Reason.CALLED_REPEATEDLY(count=2)
    Refusal(code='called-repeatedly', words='it is called 2 times')
    """

    EXCLUDED = "excluded on request"

    # Users and writes
    UNUSED = "its result is unused"
    OTHER_USERS = "{value} has other users"
    WRITTEN_IN_PLACE = "{value}, or an alias of it, is written in place"
    WRITTEN_IN_BETWEEN = "{value} is written in place between {first} and {last}"
    MAY_BE_WRITTEN_IN_BETWEEN = (
        "{written} is written in place between {first} and {last}, and {value} may share its memory"
    )
    STATE_WRITTEN = "the graph writes its parameters or buffers"
    MODE_CHANGES = "the graph changes the gradient or autocast mode"
    MODE_CHANGES_IN_BETWEEN = "the gradient or autocast mode changes between {first} and {last}"
    RETURNED = "the graph returns it, which must be a new tensor each time"
    BOTH_RETURNED = "the graph returns both it and {first}, which must stay two tensors"
    BOTH_ALIASED = "outputs of the graph may alias both it and {first}, which must stay two tensors"

    BODY_WRITES_INPUTS = "the body writes its input {value} in place, of which the call may hold an alias"
    BODY_RETURNS_INPUT = "the body would return {value} itself, and a body must return new tensors"

    NOTHING_KEPT = "its backward pass reads nothing of it that could be computed again"

    # Side effects
    INPUT_OR_OUTPUT = "it is an {kind} of the graph"
    MAY_WRITE_INPUTS = "it may write its inputs in place"
    MAY_HAVE_SIDE_EFFECTS = "{called} may have side effects"
    SIDE_EFFECTS = "{called} has side effects"
    WRITES_STATE = "{module} updates its {state}"
    RANDOM = "it draws random numbers"
    UNINITIALISED_MEMORY = "{called} returns uninitialised memory"
    ACTIVE_DROPOUT = "it is an active dropout (training={training})"
    DROPOUT_PROBABILITY = "its dropout probability is {probability}"

    # Modules
    NO_MODULE = "there is no module at {path!r}"
    PARAMETRIZED = "its parameters are parametrized"
    UNEXPECTED_CLASS = "it is a {found}, which may compute something other than {expected}"
    FORWARD_REPLACED = "its forward method has been replaced"
    CALLED_REPEATEDLY = "it is called {count} times"
    SHARED_MODULE = "the same module is also registered as {path!r}"
    PARENT_CALLED = "it is part of {parent!r}, which is called as a whole"
    PARENT_IN_USE = "it is part of a {parent} that may be in use elsewhere"
    HOOKED = "it has {hook}"
    GLOBAL_HOOKS = "global hooks are registered for all modules"
    UNEXPECTED_ATTRIBUTE = "its class has no {attribute}, or it has lost it"
    UNUSUAL_PARAMETER = "its {parameter} is not a plain dense parameter"
    SHARED_PARAMETER = "its {parameter} is also used by {holder}"
    UNEXPECTED_HOLDER = "its {parameter} is {path!r}, not the {parameter} of the module that holds its weight"
    WEIGHT_IS_INPUT = (
        "its {parameter} is the input {value} of the graph; give a graph that holds its weights, "
        "such as that of torch.export or fxlab.Capture"
    )
    HOLDS_MORE = "the module that holds its weight also holds {attribute}"
    TRAINING_MODE = "{module} is in training mode; call eval() first"
    WEIGHT_SHAPE = "the shape of its weight is not (out_features, in_features)"
    TRAINED_IN_PART = "only its {parameter} requires gradients, and one parameter would hold both"

    # Shapes and dtypes
    UNKNOWN_SHAPE = "the shape of {value} is unknown; run ShapeProp first"
    OPEN_SIZE = "the last size of {value} is not a fixed number"
    UNKNOWN_DTYPE = "the dtype of {value} is unknown; run ShapeProp first"
    DIMENSIONS = "{value} has {count} dimensions; supported: {supported}"
    DTYPE = "{value} has dtype {dtype}"
    MIXED_DTYPES = "the dtypes are mixed: {dtypes}"
    MIXED_DEVICES = "the devices are mixed: {devices}"
    PYTHON_NUMBER = "{value} is a Python number, not a tensor"

    # Batch norms
    NO_RUNNING_STATISTICS = "the batch norm has no running statistics"
    FEATURES_DIFFER = "the batch norm has shape {features}, the layer {channels} channels"
    NOT_FINITE = "the folded weights are not finite in {dtype}"
    ONLY_NORM_TRAINED = "the batch norm requires gradients, but the layer it would be fused into does not"

    # Identities
    NOT_AN_IDENTITY_CALL = "its arguments are not those of an identity"
    OTHER_LAYOUT = "its result may lie otherwise in memory than what it would be replaced by"
    RETURNS_VIEW = "it returns a view of a single sample"

    # Divisions
    FURTHER_ARGUMENTS = "it divides with {arguments}"
    DIVISOR_TYPE = "the divisor {divisor!r} is a {type}"
    DIVISION_BY_ZERO = "a division by zero has no inverse"
    INEXACT_DIVISOR = "{divisor!r} has no exact floating-point representation"
    NOT_NORMAL = "{number} is not a normal number in {dtype}"
    NOT_NORMAL_IN_SMALLEST = "the dtype of {value} is unknown, and {number} is not a normal number in {dtype}"
    ROUNDED_LATER = "{reader} rounds values computed from it to integers"

    # Activations
    CONSTANTS = "its constants are {error} (relative) away from those of {function}"

    # Patterns
    OTHER_OPERATOR = "{value} is {called}, and the pattern has {expected} there"
    OTHER_ARGUMENT = "{argument} is {value}, and the pattern has {expected}"
    OTHER_VALUE = "it reads {value}, where the pattern reads the same as before: {expected}"
    OTHER_COUNT = "{name} has {count} operands, and the pattern has {expected}"
    OTHER_KIND = "{value} is not {kind}, which {argument} captures"
    CAPTURED_INSIDE = "{value} would be removed, and the replacement reads it"
    CONDITION = "{condition} does not hold"
    DIFFERS = "the replacement differs: {difference}"
    RESULT_DIFFERS = "the replacement returns {found}, the pattern {expected}"
    REPLACEMENT_FAILS = "the replacement fails: {error}"
    OTHER_SIZES = "the replacement does not hold for other sizes than those of the trace: {reason}"
    PASS_FAILS = "the pass itself raises {error}"
    TOO_LARGE = "it has {count} elements, too many to confirm the replacement in float64"
    OTHER_ORDER = "{value} is computed after {user}, which reads a result"
    NO_CANDIDATE = "it has no candidate with {node}"
    DETACHED = "{value} is detached, so gradients would change"

    # Constants
    NOT_A_TENSOR = "{attribute} is not a tensor"
    REQUIRES_GRAD = "{attribute} requires gradients"
    NO_DATA = "{attribute} is not a plain tensor with data"
    FAILS = "computing it fails: {error}"
    UNUSUAL_RESULT = "its result is not a plain dense tensor"
    AUTOCAST_DTYPE = "its result has another dtype under autocast"
    TRANSPOSED_WEIGHT = "it transposes the weight of the linear {linear}, which takes no time"

    # Linears
    NO_COMPATIBLE_LINEAR = "no compatible linear reads the same input: {why}"

    # Attention
    SOFTMAX_DIMENSION = "the softmax is over dimension {dimension}, not the last one"
    NO_MASK = "{value} adds something other than a mask to scores"
    NOT_SCALED_PRODUCT = "{value} is no matrix product, scaled and then masked, which the softmax would read"
    FILL = "scores are filled with {number}, which is not so small that no score reaches it"
    SCALE = "the scale is {scale}"
    NOT_BOTH_REPEATED = "keys and values are not repeated alike, or not for each query"
    NO_KERNEL = "no kernel for {device} takes fewer keys than queries with a mask, or in {dtype}"
    UNEQUAL_SHAPES = "the shapes of query, keys and values are broadcast, or not known to agree"
    LARGER_MASK = "the mask is larger than the scores, or not known to fit"
    INFINITE_MASK = "the mask may exclude a whole row by infinities, where the softmax returns NaN"

    def __call__(self, **details: object) -> Refusal:
        """Return the reason with its details."""
        return Refusal(self.code, self.value.format(**details), tuple(map(str, details.values())))
