"""Random numbers that operators draw: noted in one run, and given to others in their place, for verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.torch_private import HigherOrderOperator, OpOverload, TorchDispatchMode, modes_disabled
from fxlab.models.graph_modules.bodies import run_under
from fxlab.values.tensors import to_float64

_NAMES = {
    "rand": "uniform", "rand_like": "uniform", "randn": "normal", "randn_like": "normal",
    "normal_functional": "normal", "native_dropout": "bernoulli",
    "rrelu_with_noise_functional": "rrelu_with_noise",
}  # fmt: skip
"""Operators by the kind of numbers they draw; others go by torch's name."""

_STANDARD: dict[str, tuple[float, float]] = {"uniform": (0.0, 1.0), "normal": (0.0, 1.0)}
"""The parameters of an operator that is called without any."""

_OF_NUMBERS = frozenset({"uniform", "normal", "exponential", "geometric", "cauchy", "log_normal"})
_OF_NUMBERS |= {"bernoulli", "random", "randint", "randperm"}
"""Distributions that numbers tell, if no tensors do."""

_OF_TENSORS = frozenset({"bernoulli", "multinomial", "poisson", "binomial", "rrelu_with_noise"})
"""Operators that make choices by the tensors among their arguments."""

_AROUND = ("around computed means",)

_OF_INDUCTOR = ("inductor_random", "inductor_randint")
"""Operators of Inductor that draw by torch's when they are run; see :func:`_of_aten`."""

_SEEDS = ("inductor_seed", "inductor_seeds")
"""Operators of Inductor whose random numbers only seed others, so that any do."""


class CannotReplayError(ValueError):
    """Random numbers that cannot be given to another run, as they come about in one operator with others."""


@dataclass(frozen=True)
class Draw:
    """Random numbers that one call of an operator has drawn."""

    name: str
    """The distribution, in all spellings: a dropout draws ``bernoulli``."""
    shape: tuple[int, ...]
    numbers: tuple[Any, ...]
    """The numbers that it was asked with, such as the probability."""
    node: str
    """The node in which it was."""
    values: torch.Tensor
    """The numbers; of a normal distribution around computed means the noise, as deviations."""
    is_computed: bool = False
    """Whether they depend on tensors, such as probabilities."""
    is_sized: bool = False
    """Whether only a size was given, so that they lie in memory in the order of their dimensions."""

    def is_alike(self, other: Draw) -> bool:
        """Tell whether both are drawn in the same way, or one is the choice that the other leads to.

        A dropout chooses, and so does a decomposed one, by uniform numbers that are above its ``p``.
        """
        is_same = (self.name, self.numbers) == (other.name, other.numbers)
        fits = self._order_for(other) is not None or other._order_for(self) is not None
        return fits and (is_same or self._chooses(other) or other._chooses(self))

    def _order_for(self, asked: Draw) -> Sequence[int] | None:
        """Return the order of dimensions in which the values have the shape of another draw, if there is one.

        A dropout that is decomposed draws by size, in the order in which its tensor lies in memory.
        """
        plain = range(len(self.shape))
        strides = self.values.stride()
        is_known = asked.is_sized and self.values.shape == self.shape
        in_memory = sorted(plain, key=lambda dim: -strides[dim]) if is_known else plain
        orders = (order for order in (in_memory, plain) if tuple(self.shape[d] for d in order) == asked.shape)
        return next(orders, None)

    def _chooses(self, other: Draw) -> bool:
        is_choice = self.name == "bernoulli" and len(self.numbers) == 1 and not self.is_computed
        return is_choice and (other.name, other.numbers) == ("uniform", _STANDARD["uniform"])

    def values_for(self, asked: Draw, dtype: torch.dtype) -> torch.Tensor:
        """Return the values for a draw that is alike: in place of choices, numbers that lead to them."""
        order = self._order_for(asked)
        values = self.values if order is None else self.values.permute(tuple(order))
        values = values.contiguous() if asked.is_sized else values
        if asked.name == self.name:
            return values
        if asked._chooses(self):
            chosen: torch.Tensor = to_float64(values) > 1 - asked.numbers[0]
            return chosen
        return _leading_to(values, 1 - self.numbers[0], dtype)

    def __str__(self) -> str:
        numbers = f" ({', '.join(map(str, self.numbers))})" if self.numbers else ""
        return f"{self.name}{numbers} of shape {self.shape} in node {self.node!r}"


@dataclass
class Draws:
    """The random numbers that the operators of one run draw, in order.

    Another dtype, and another run in general, draws other numbers. So those of one run are noted, and given
    to others, whose operators then draw nothing.
    """

    given: Sequence[Draw] | None = None
    """The values to use in place of random numbers."""
    drawn: list[Draw] = field(default_factory=list)
    """The values that were drawn, or given."""
    unseen: list[str] = field(default_factory=list)
    """Nodes that have drawn random numbers inside an operator that does more than that."""
    has_seeds: bool = False
    """Whether operators of Inductor draw seeds of others, of which nothing is noted."""
    inside: str = ""
    """The last operator that may draw inside."""
    _node: str = ""

    def begin(self, node: Node) -> None:
        """Note the following draws as those of a node."""
        self._node = node.name

    def back_to(self, count: int) -> None:
        """Forget the draws after the first few, to run the same node once more."""
        del self.drawn[count:]

    def result(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """Call an operator that draws, or return its result for the given numbers."""
        if func._opname in _SEEDS:
            self.has_seeds = True
            named = _named(func, args, kwargs)
            size = (named["count"],) if "count" in named else ()
            return torch.zeros(size, dtype=torch.int64, device=named["device"])
        func, args, kwargs = _of_aten(func, args, kwargs)
        if self.given is None:
            result = func(*args, **kwargs)
            # Other modes shall see the model's calls only.
            with modes_disabled():
                self.drawn.append(_noted(func, args, kwargs, result, self._node))
            return result
        place = len(self.drawn)
        if place >= len(self.given):
            raise CannotReplayError(f"{func} draws more than there was drawn")
        given = self.given[place]
        asked = _asked(func, args, kwargs, self._node)
        if not asked.is_alike(given):
            raise CannotReplayError(f"it draws {asked} where {given} was drawn")
        values = given.values_for(asked, _dtype(func, _named(func, args, kwargs), torch.get_default_dtype()))
        self.drawn.append(replace(asked, values=values))
        return _replayed(func, args, kwargs, asked, values)


class DrawsMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the draws of operators, or gives draws to them, and changes nothing else."""

    supports_higher_order_operators = True

    def __init__(self, draws: Draws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._draws = draws

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*run_under(self, args), **run_under(self, kwargs))
        if draws(func, args, kwargs):
            return self._draws.result(func, args, kwargs)
        return self._result(func, args, kwargs)

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)


def given_draws(drawn: Sequence[Draw] | None) -> AbstractContextManager[Any]:
    """Return a context in which operators use the given random numbers, if there are any."""
    return nullcontext() if drawn is None else DrawsMode(Draws(drawn))


def may_draw(func: Any) -> bool:
    """Tell whether an operator of the dispatcher draws random numbers, if it is asked to."""
    if not isinstance(func, OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in func.tags or func._opname in _OF_INDUCTOR


def draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a call of the dispatcher draws random numbers and does nothing else that matters.

    Operators that draw inside, such as fused attention, are not among them: their numbers are not seen.
    """
    if not may_draw(func):
        return False
    func, args, kwargs = _of_aten(func, args, kwargs)
    named = _named(func, args, kwargs)
    # A dropout that is off draws nothing, though its operator is tagged as random.
    is_off = named.get("train", True) is False or named.get("training", True) is False
    is_known = func.namespace == "aten" and _name_of(func) in _OF_NUMBERS | _OF_TENSORS
    return func._opname in _SEEDS or (is_known and not is_off)


def first_difference(ours: Sequence[Draw], theirs: Sequence[Draw]) -> str:
    """Return in words where two models draw in another way or order; empty if they do not."""
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if not one.is_alike(other):
            return f"draw {place} of random numbers is {other}, the original's {one}"
    if len(ours) == len(theirs):
        return ""
    extra = (theirs if len(theirs) > len(ours) else ours)[min(len(ours), len(theirs))]
    which = "transformed model" if len(theirs) > len(ours) else "original"
    return f"only the {which} draws {extra}: {len(theirs)} draws in all, {len(ours)} of the original's"


def replayable(ours: Sequence[Draw], theirs: Sequence[Draw]) -> list[Draw]:
    """Return the draws of the original, to be given to another model that draws alike.

    Draws by computed probabilities are left to it: values that are given would hide other probabilities.
    """
    return [other if other.is_computed else one for one, other in zip(ours, theirs, strict=True)]


def same_numbers(ours: Sequence[Draw], theirs: Sequence[Draw]) -> bool:
    """Tell whether two models that draw alike have drawn the same numbers."""
    if any(one.name != other.name for one, other in zip(ours, theirs, strict=True)):
        return False
    direct = [
        (to_float64(one.values), to_float64(other.values.to(one.values.device)))
        for one, other in zip(ours, theirs, strict=True)
        if not one.is_computed and one.numbers != _AROUND
    ]
    return all(torch.equal(one.double(), other.double()) for one, other in direct)


def _of_aten(func: OpOverload, args: Any, kwargs: Any) -> tuple[OpOverload, Any, Any]:
    """Return the call of torch that an operator of Inductor makes, and any other as it is."""
    if func._opname not in _OF_INDUCTOR:
        return func, args, kwargs
    named = _named(func, args, kwargs)
    size, device = named["size"], named["seed"].device
    if func._opname == "inductor_randint":
        return torch.ops.aten.randint.low, (named["low"], named["high"], size), {"device": device}
    drawing = {"rand": torch.ops.aten.rand.default, "randn": torch.ops.aten.randn.default}[named["mode"]]
    return drawing, (size,), {"dtype": torch.float32, "device": device}


def _leading_to(choices: torch.Tensor, p: float, dtype: torch.dtype) -> torch.Tensor:
    """Return uniform numbers, above ``p`` where it was chosen; one of each kind is close to it."""
    wide = to_float64(torch.zeros(choices.shape, device=choices.device))
    part = torch.rand(
        choices.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu"
    )
    chosen = choices.bool()
    for is_kind in (chosen, ~chosen):
        first = is_kind.flatten().nonzero()[:1]
        part.view(-1)[first.to(part.device)] = 0.0
    part = part.to(wide)
    margin = torch.finfo(dtype).eps  # twice the most that rounding may move a number
    above, below = p + margin + (1 - p - margin) * part, (p - margin) * (1 - part)
    return torch.where(chosen, above, below).clamp(0.0, 1.0)


def _asked(func: OpOverload, args: Any, kwargs: Any, node: str) -> Draw:
    """Return an operator's request for random numbers, without the numbers."""
    name = _name_of(func)
    named = _named(func, args, kwargs)
    is_sized = named.get("size") is not None
    asked = Draw(name, tuple(_shape(func, named)), (), node, torch.empty(0, device="cpu"), is_sized=is_sized)
    if func._opname == "native_dropout":
        return replace(asked, numbers=(1 - named["p"],))
    of_tensors = _tells_by_tensors(func, named)
    if name == "normal" and of_tensors:
        # Only the noise is noted: the computed means themselves may differ by rounding.
        return replace(asked, numbers=_AROUND)
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.default_value is not None}
    given = {**defaults, **named}.items()
    numbers = tuple(v for k, v in given if k != "n" and type(v) in (int, float))
    return replace(asked, numbers=numbers or _STANDARD.get(name, ()), is_computed=of_tensors)


def _name_of(func: OpOverload) -> str:
    name: str = func._opname
    return _NAMES.get(name, name.removesuffix("_").removesuffix("_like"))


def _named(func: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _tells_by_tensors(func: OpOverload, named: dict[str, Any]) -> bool:
    """Tell whether tensors tell a distribution: none that is filled, or tells a shape alone."""
    if func._opname.startswith("rrelu"):
        return True
    tensors = {name for name, value in named.items() if isinstance(value, torch.Tensor)} - {"out"}
    is_of_self = _name_of(func) in _OF_TENSORS and not func._schema.is_mutable and "p" not in named
    return bool(tensors if is_of_self else tensors - {"self"})


def _shape(func: OpOverload, named: dict[str, Any]) -> Sequence[int]:
    if named.get("size") is not None:
        return [int(size) for size in named["size"]]
    if "n" in named:
        return [int(named["n"])]
    tensors = [value for name, value in named.items() if isinstance(value, torch.Tensor) and name != "out"]
    if func._opname == "multinomial":
        return [*tensors[0].shape[:-1], int(named["num_samples"])]
    shapes = [tensor.shape for tensor in tensors]
    return torch.broadcast_shapes(*shapes) if shapes else ()  # type: ignore[no-untyped-call]


def _noted(func: OpOverload, args: Any, kwargs: Any, result: Any, node: str) -> Draw:
    """Return the numbers that an operator has drawn."""
    asked = _asked(func, args, kwargs, node)
    if isinstance(result, tuple):  # of a dropout or an rrelu, with the numbers last
        return replace(asked, values=result[1].clone())
    if asked.name == "rrelu_with_noise":
        return replace(asked, values=args[1].clone())
    if asked.numbers == _AROUND:
        mean, deviation = (
            to_float64(value) if isinstance(value, torch.Tensor) else value
            for value in _normal(func, args, kwargs)
        )
        return replace(asked, values=((to_float64(result) - mean) / deviation).nan_to_num(0.0))
    return replace(asked, values=result.detach().clone())


def _replayed(func: OpOverload, args: Any, kwargs: Any, asked: Draw, values: torch.Tensor) -> Any:
    """Return an operator's result for given random numbers."""
    if func._opname == "native_dropout":
        source, p = args[0], args[1]
        mask = values.to(source.device, torch.bool)
        return source * mask / (1 - p or 1), mask
    if asked.name == "rrelu_with_noise":
        source, noise = args[:2]
        if not func._schema.is_mutable:
            noise = noise.clone()
            return source * noise.copy_(values), noise
        result = source * noise.copy_(values)
        return source.copy_(result) if func._opname.endswith("_") else result
    if asked.numbers == _AROUND:
        mean, deviation = _normal(func, args, kwargs)
        like = mean if isinstance(mean, torch.Tensor) else deviation
        values = mean + deviation * values.to(like)
    named = _named(func, args, kwargs)
    if func._schema.is_mutable:
        filled: torch.Tensor = named["out"] if "out" in named else args[0]
        return filled.copy_(values)
    like = _like(named)
    dtype = _dtype(func, named, torch.get_default_dtype() if values.is_floating_point() else values.dtype)
    device = named.get("device") or (values.device if like is None else like.device)
    return values.to(device, dtype, copy=True)


def _like(named: dict[str, Any]) -> torch.Tensor | None:
    return next((value for value in named.values() if isinstance(value, torch.Tensor)), None)


def _dtype(func: OpOverload, named: dict[str, Any], default: torch.dtype) -> torch.dtype:
    """Return the dtype of the tensor that a call returns or fills."""
    like = None if _name_of(func) == "multinomial" else _like(named)
    dtype: torch.dtype = named.get("dtype") or (default if like is None else like.dtype)
    return dtype


def _normal(func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the means and deviations of a call."""
    named = {"mean": 0.0, "std": 1.0} | _named(func, args, kwargs)
    return named["mean"], named["std"]
