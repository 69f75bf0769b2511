"""``steps.as_step``: a training loop that runs steps as graphs; ``compare_steps``: such loops compared."""

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxlab.base.checks import items_of, require_bool
from fxlab.base.results import Judged
from fxlab.base.words import counted
from fxlab.front_desk.sources import SessionLike, checked_session
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.parallel.placements import layout_of, local_part
from fxlab.models.running.arguments import Inputs, given_inputs
from fxlab.models.running.autocast import autocast_set
from fxlab.models.running.running import generators_kept, seed_generators
from fxlab.models.running.step_guards import GuardError
from fxlab.models.running.step_record import StepInput, StepRecord, step_record
from fxlab.models.state.model_state import state_kept
from fxlab.steps.arguments import Batch
from fxlab.steps.optimizer_step import OptimizerStep
from fxlab.steps.traced_step import recorded_step, step_key, words_of_counted
from fxlab.transformations import Transformation
from fxlab.validation import verdict
from fxlab.values.tensors import bits_of


@dataclass
class _Held:
    """A traced step, and the result of the passes on it."""

    step: fx.GraphModule
    record: StepRecord
    transformed: tuple[object, fx.GraphModule] | None = None

    def __post_init__(self) -> None:
        nodes = self.step.graph.find_nodes(op="placeholder")
        self.inputs: dict[str, StepInput] = {str(node.target): node.meta["desc"] for node in nodes}


class StepLoop:
    """Trains the model of a step by graphs; made by :func:`fxlab.steps.as_step`.

    A graph holds for sizes of a batch, modes of modules, settings of the optimizer, the tensors in its state,
    and what the Python of the model and the loss reads. Others trace the step again.

    ``step``: as it was traced. ``passes``: returns those that are on. ``check``: as for ``as_step``.
    """

    def __init__(
        self, step: fx.GraphModule, passes: Callable[[], tuple[Transformation, ...]], *, check: bool
    ) -> None:
        record = step_record(step)
        if record is None:
            raise ValueError(
                "The session was not made of a step that fxlab.trace_step returned in this process, and "
                "so does not know the model. Make it of that: fxlab.Session(fxlab.trace_step(model, ...))."
            )
        self._record, self._passes, self._check = record, passes, check
        self._held: dict[object, list[_Held]] = {}
        self.graphs = 0
        """The number of graphs that were traced."""
        self._hold(step, record)

    def __call__(self, inputs: Inputs, *more: Any) -> torch.Tensor:
        """Train on one batch: new values are written into model and optimizer.

        Without an optimizer, gradients are added to ``parameter.grad`` as ``loss.backward()`` does. Takes
        what :func:`fxlab.trace_step` does, and returns the loss.
        """
        model, optimizer = self._record.model, self._record.optimizer
        inputs = (*(inputs if isinstance(inputs, tuple) else (inputs,)), *more) if more else inputs
        batch = Batch.of(model, inputs, self._record.loss, copied=False)
        update = None if optimizer is None else OptimizerStep(optimizer, model)
        key = step_key(model, batch, update)
        # What Python read in a trace and reads otherwise now may well be another number in each step.
        self._held[key] = [held for held in self._held.get(key, ()) if not held.record.noted.changed()]
        for held in self._held[key]:
            if update is not None and not update.has_numbers(held.record.outputs.fixed):
                continue
            try:
                # A refused run must not use up random numbers, as another graph draws them again.
                with generators_kept(after_errors_alone=True):
                    return self._run(held, batch)
            except GuardError:
                continue
        with autocast_set(self._record.autocast):
            step = recorded_step(model, given_inputs(inputs), self._record.loss, optimizer)
        record = step_record(step)
        assert record is not None
        return self._run(self._hold(step, record), batch)

    def _hold(self, step: fx.GraphModule, record: StepRecord) -> _Held:
        if record.counted:
            raise ValueError(words_of_counted(record.counted))
        held = _Held(step, record)
        self._held.setdefault(record.key, []).append(held)
        self.graphs += 1
        return held

    @property
    def model(self) -> nn.Module:
        """The model that it trains."""
        return self._record.model

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """Its optimizer, if it has one."""
        return self._record.optimizer

    def _run(self, held: _Held, batch: Batch) -> torch.Tensor:
        values = self._values(held, batch)
        graph = self._transformed(held, values)
        # New state of an optimizer has to be usable outside of inference mode.
        with torch.inference_mode(False), torch.no_grad(), autocast_set():
            found = graph(**values)
            self._write(held, found, values)
        loss: torch.Tensor = found["loss"]
        return loss

    def _values(self, held: _Held, batch: Batch) -> dict[str, torch.Tensor]:
        model, optimizer = self._record.model, self._record.optimizer
        known: dict[tuple[str, str], torch.Tensor] = {
            **{("parameter", name): local_part(value) for name, value in model.named_parameters()},
            **{("buffer", name): local_part(value) for name, value in model.named_buffers()},
            **{("batch", name): value for name, value in zip(batch.names, batch.tensors, strict=True)},
        }
        if optimizer is not None:
            update = OptimizerStep(optimizer, model)
            known |= {("state", f"{key} of {name}"): value for (key, name), value in update.state().items()}
            known |= {("number", name): value for name, value in update.numbers().items()}
        return {name: known[meaning.kind, meaning.target] for name, meaning in held.inputs.items()}

    def _transformed(self, held: _Held, values: Mapping[str, torch.Tensor]) -> fx.GraphModule:
        passes = self._passes()
        signatures = tuple(pass_.signature for pass_ in passes)
        if held.transformed is not None and held.transformed[0] == signatures:
            return held.transformed[1]
        graph = held.step
        for pass_ in passes:
            graph = pass_(share_tensors_copy(graph))
        if self._check and passes:
            try:
                found = verdict(held.step, graph, dict(values))
                why = None if found else f"as it is another one with them: {found.reason}"
            except ValueError as error:  # it decides on random numbers, and a verdict draws its own
                why = f"as they cannot be judged: {error}"
            if why is not None:
                warnings.warn(f"The step runs without passes, {why}", RuntimeWarning, stacklevel=4)
                graph = held.step
        held.transformed = signatures, graph
        return graph

    def _write(
        self, held: _Held, found: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
    ) -> None:
        model, optimizer = self._record.model, self._record.optimizer
        parameters = dict(model.named_parameters())
        for output, value in found.items():
            if output in held.record.outputs.written:
                name = held.record.outputs.written[output]
                own = values[name]
                if (own.shape, own.dtype, own.layout) == (value.shape, value.dtype, torch.strided):
                    own.copy_(value)
                else:
                    self._replace(held.inputs[name], value)
            elif output.startswith("grad of ") and optimizer is None:
                _accumulate(parameters[output.removeprefix("grad of ")], value)
        if optimizer is not None:
            for output, (key, name) in held.record.outputs.made.items():
                optimizer.state[parameters[name]][key] = _beside(parameters[name], found[output].clone())
            optimizer._opt_called = True  # type: ignore[attr-defined]  # a scheduler looks whether there was a step

    def _replace(self, meaning: StepInput, value: torch.Tensor) -> None:
        """Write a value that has another size or layout than the input."""
        model, optimizer = self._record.model, self._record.optimizer
        if meaning.kind == "state" and optimizer is not None:
            key = meaning.target.removesuffix(f" of {meaning.owner}")
            parameter = model.get_parameter(meaning.owner)
            optimizer.state[parameter][key] = _beside(parameter, value.clone())
        else:
            dict((*model.named_parameters(), *model.named_buffers()))[meaning.target].copy_(value)


def _beside(parameter: nn.Parameter, part: torch.Tensor) -> torch.Tensor:
    """Spread a tensor that belongs to a parameter over ranks, if the parameter is."""
    layout = layout_of(parameter)
    if layout is None or part.shape != local_part(parameter).shape:
        return part
    return layout.whole(part)  # type: ignore[no-any-return]


def _accumulate(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    gradient = _beside(parameter, gradient)
    if parameter.grad is None:
        parameter.grad = gradient.clone()
    elif parameter.grad.is_sparse and not gradient.is_sparse:
        parameter.grad = gradient + parameter.grad
    else:
        parameter.grad.add_(gradient)


def as_step(session: SessionLike, *, check: bool = True) -> StepLoop:
    """Return a function that trains the model of a step on a batch, by the graph with its passes.

    It updates the user's parameters, buffers and optimizer state, and returns the loss. A graph holds for
    one size of batch, and for the tensors in the optimizer's state: for others, the step is traced again.

    Parameters
    ----------
    session
        A session of a step of :func:`fxlab.trace_step`.
    check
        Whether a transformed graph is used only if its verdict on the first batch is good. If it is not,
        a ``RuntimeWarning`` says why, and the graph runs as it was traced.

    Returns
    -------
    fxlab.steps.StepLoop
        Called with inputs in the form in which :func:`fxlab.trace_step` takes them.

    Raises
    ------
    ValueError
        If the session was not made of a step, or each step counts or draws random numbers in Python.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> model, x = nn.Linear(4, 1), torch.ones(3, 4)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> step = fxlab.trace_step(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)
    >>> session = fxlab.Session(step)
    >>> _ = session.apply("eliminate-common-subexpressions")
    >>> train = fxlab.steps.as_step(session)
    >>> losses = [train(x).item() for _ in range(3)]
    >>> losses == sorted(losses, reverse=True)
    True
    """
    session = checked_session(session)
    return StepLoop(session.original, lambda: session.applied, check=require_bool(check, "check"))


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
    with generators_kept(), state_kept(loop.model), _state_kept(loop.optimizer):
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
