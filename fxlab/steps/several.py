"""``steps.compare_steps``: several training steps, with and without passes, compared bit for bit."""

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fxlab.base.checks import items_of
from fxlab.base.results import Judged
from fxlab.base.units import counted
from fxlab.front_desk.sources import SessionLike, checked_session
from fxlab.models.parallel.ranks import local_part
from fxlab.models.running.running import Inputs, generators_kept, seed_generators
from fxlab.models.state.model_state import gradients_kept, state_kept
from fxlab.steps.loop import StepLoop
from fxlab.values.tensors import bits_of


@dataclass(frozen=True, repr=False)
class StepsCompared(Judged):
    """The result of :func:`fxlab.steps.compare_steps`; true if all bits are the same."""

    steps: int
    """The number of steps that were to be compared."""
    tensors: int
    """The number of tensors after each: loss, parameters, buffers, gradients and the optimizer's state."""
    first: int | None = None
    """The first step, from 1, after which a tensor differs; ``None`` if none does."""
    differing: tuple[str, ...] = ()
    """The tensors that differ after it."""

    @property
    def agrees(self) -> bool:
        """Whether all bits are the same."""
        return self.first is None

    def __str__(self) -> str:
        if self.first is None:
            return (
                f"same bits of {counted(self.tensors, 'tensor')} after each of {counted(self.steps, 'step')}"
            )
        before = f"after {counted(self.first - 1, 'step')} with the same bits, " if self.first > 1 else ""
        others = f" and {len(self.differing) - 1:,} more" if len(self.differing) > 1 else ""
        return f"{before}step {self.first} gives another {self.differing[0]}{others}"


def _digests(loop: StepLoop, batches: Sequence[Inputs]) -> Iterator[dict[str, bytes]]:
    """Yield digests of the bits of all tensors after each step."""
    gradients = gradients_kept(loop.model.parameters())
    with generators_kept(), state_kept(loop.model), gradients, _state_kept(loop.optimizer):
        seed_generators(0)
        for batch in batches:
            tensors = {"loss": loop(batch), **_tensors(loop.model, loop.optimizer)}
            yield {
                name: hashlib.blake2b(bits_of(local_part(tensor)).cpu().numpy().tobytes()).digest()
                for name, tensor in tensors.items()
            }


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, torch.Tensor]:
    names: dict[torch.Tensor, str] = {each: name for name, each in model.named_parameters()}
    found: dict[str, torch.Tensor] = {**model.state_dict()}
    found |= {f"grad of {name}": each.grad for each, name in names.items() if each.grad is not None}
    for parameter, state in optimizer.state.items() if optimizer is not None else ():
        owner = names.get(parameter, "a parameter of no module")
        found |= {f"{key} of {owner}": value for key, value in state.items() if torch.is_tensor(value)}
    return found


@contextmanager
def _state_kept(optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """Restore the state of an optimizer."""
    states = optimizer.state if optimizer is not None else {}
    kept = {parameter: copy.deepcopy(state) for parameter, state in states.items()}
    try:
        yield
    finally:
        states.clear()
        states.update(kept)


def compare_steps(session: SessionLike, batches: Sequence[Inputs]) -> StepsCompared:
    """Train with the passes that are on and without, and find the first step whose bits differ.

    Both loops begin with the present model, optimizer and seed, which are restored.

    Parameters
    ----------
    session
        A session of a step of :func:`fxlab.trace_step`.
    batches
        A batch for each step, in the form in which :func:`fxlab.trace_step` takes them.

    Returns
    -------
    fxlab.steps.StepsCompared
        True if all bits are the same; ``str()`` of it names the first step and tensor that differ.

    Raises
    ------
    TypeError, ValueError
        If there are no batches, or the session was not made of a step.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> model, x = nn.Linear(4, 1), torch.ones(3, 4)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> step = fxlab.trace_step(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)
    >>> session = fxlab.Session(step)
    >>> _ = session.apply("eliminate-common-subexpressions")
    >>> print(fxlab.steps.compare_steps(session, [x, x + 1]))
    same bits of 9 tensors after each of 2 steps
    """
    if isinstance(batches, Tensor | Mapping):
        raise TypeError("batches: expected a list, with a batch for each step. Write [...].")
    given = items_of(batches, "batches", "batches, one for each step")
    if not given:
        raise ValueError("batches: expected a batch for each step, got none.")
    session = checked_session(session)
    plain = StepLoop(session.original, tuple, check=False)
    transformed = StepLoop(session.original, lambda: session.applied, check=False)
    if any(parameter.is_meta for parameter in plain.model.parameters()):
        raise ValueError(
            "model: expected parameters with numbers, by which steps are compared, got some on the meta "
            "device. Load its weights, as by to_empty and load_state_dict."
        )
    expected, tensors = [*_digests(plain, given)], 0
    for number, (known, found) in enumerate(zip(expected, _digests(transformed, given), strict=True), 1):
        tensors = len(known)
        if known != found:
            names = (name for name in (*known, *found) if known.get(name) != found.get(name))
            return StepsCompared(len(given), tensors, number, tuple(dict.fromkeys(names)))
    return StepsCompared(len(given), tensors)
