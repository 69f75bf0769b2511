"""``fxlab.trace_step``: a training step, with forward, loss, backward and update, as one graph."""

import keyword
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx import GraphModule

from fxlab.base.author_frames import levels_to_author
from fxlab.base.checks import describe, type_error
from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.interrupts import interruptible
from fxlab.base.words import listed
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.parallel.placements import PLACEMENT
from fxlab.models.parallel.ranks import communicates, is_in_fake_group
from fxlab.models.running.arguments import Inputs, given_inputs
from fxlab.models.running.autocast import autocast_set, autocast_state
from fxlab.models.running.running import generators_kept, seed_generators
from fxlab.models.running.step_record import StepInput, StepOutputs, StepRecord, note_step
from fxlab.models.state.module_state import ModelNoted
from fxlab.steps.arguments import Batch
from fxlab.steps.gradients import LOSS, Forward, RecordedPasses, hooks_of, record_forward_backward, results_of
from fxlab.steps.optimizer_step import OptimizerStep, Slot
from fxlab.steps.places import place_update
from fxlab.steps.repairs import refuse_writes, without_dead_code
from fxlab.steps.update import Updated, recorded_update
from fxlab.tracing import torch_private
from fxlab.tracing.model_code.given_model import refuse_torch_script
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.recording.handlers.control_flow import not_compiled
from fxlab.tracing.report import TraceError, TraceWarning
from fxlab.tracing.shapes.fake_state import put_back_after
from fxlab.values.tensors import same_bits


def step_key(model: nn.Module, batch: Batch, update: OptimizerStep | None) -> object:
    """Return a key that is equal if the same graph holds."""
    return (
        tuple(
            (name, t.shape, t.dtype, t.device, t.requires_grad)
            for name, t in zip(batch.names, batch.tensors, strict=True)
        ),
        repr([leaf for leaf in batch.leaves if not isinstance(leaf, torch.Tensor)]),
        tuple((name, p.requires_grad, p.dtype, p.device) for name, p in model.named_parameters()),
        tuple(module.training for module in model.modules()),
        tuple(hooks_of(model).items()),
        None if update is None else update.fixed(),
    )


def trace_step(
    model: nn.Module,
    batch: Inputs,
    *,
    loss: Callable[..., torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> GraphModule:
    """Trace a training step, and return it as one graph that writes nothing.

    Its inputs are parameters, buffers, the state of the optimizer, its learning rate and the batch, under
    their names. It returns a dictionary: ``loss``; ``grad of layers.0.weight`` for each parameter that the
    loss depends on; and ``new ...`` for everything that a step changes: parameters, optimizer state, buffers.

    Model, optimizer and generators are not changed. The graph runs once, and is compared with an eager step.

    Models spread over ranks by ``fully_shard``, ``parallelize_module`` or ``DistributedDataParallel`` are
    traced as they train: inputs are the parts of this rank, and collectives are nodes. All ranks must call
    this together, or one alone in a fake process group.

    Parameters
    ----------
    model
        The model, in the mode in which it trains. Gradient checkpointing and autocast are recorded as they
        are; autocast regions around this call hold for the forward pass and the loss.
    batch
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor, with labels that the
        loss takes. Sizes are fixed.
    loss
        Takes the output of the model; if it has two parameters, also the parts of ``batch`` that the model
        does not take, or ``batch`` if there are none. Of several positional ones the last is such a part,
        unless the model requires it. Left out, ``output.loss``.
    optimizer
        The optimizer of the model's parameters. Left out, the graph ends with the gradients. Its settings are
        fixed, except the learning rate. Before its first step it has no state, so the graph makes it.

    Returns
    -------
    torch.fx.GraphModule
        For :class:`fxlab.Session`, which knows the traced values.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or the optimizer has parameters outside of the model.
    TraceError
        If the step cannot be recorded, or the graph does not compute the bits of an eager step.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> step = fxlab.trace_step(model, torch.ones(3, 4), loss=lambda output: output.square().mean())
    >>> [node.name for node in step.graph.find_nodes(op="placeholder")]
    ['p_0_weight', 'p_0_bias', 'p_2_weight', 'p_2_bias', 'input_1']
    >>> session = fxlab.Session(step)
    >>> sorted(session.graph_module(**session.inputs))
    ['grad of 0.bias', 'grad of 0.weight', 'grad of 2.bias', 'grad of 2.weight', 'loss']
    """
    torch_private.require_for_steps()
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: expected a torch.nn.Module, got {describe(model)}. The step is given in parts: "
            "trace_step(model, batch, loss=loss, optimizer=optimizer). The optimizer's own step() is "
            "recorded as it is, and clips gradients if it does."
        )
    for path, module in model.named_modules():
        refuse_torch_script(module, f"model.{path}" if path else "model")
    inputs = given_inputs(batch)
    if loss is not None and not callable(loss):
        raise type_error("loss", "a function of the model's output", loss)
    with generators_kept():
        # A verdict draws these numbers, on which the model may decide.
        seed_generators(0)
        return recorded_step(model, inputs, loss, optimizer)


def recorded_step(
    model: nn.Module, inputs: Inputs, loss: Callable[..., Any] | None, optimizer: torch.optim.Optimizer | None
) -> fx.GraphModule:
    """Record and check a step that draws the random numbers that come next."""
    with PROCESS_LOCK, torch.inference_mode(False):
        return interruptible(_recorded_step, model, inputs, loss, optimizer)


def _recorded_step(
    model: nn.Module, inputs: Inputs, loss: Callable[..., Any] | None, optimizer: torch.optim.Optimizer | None
) -> fx.GraphModule:
    update = None if optimizer is None else OptimizerStep(optimizer, model)
    batch = Batch.of(model, inputs, loss)
    hooks = [hook for own in hooks_of(model).values() for hook in own]
    functions = [each for each in (*hooks, loss, update and update.step) if each is not None]
    noted = ModelNoted(model, *functions)
    # Their functions run several times, and may count in variables around them.
    around = Surroundings(model, *functions, *([] if optimizer is None else [optimizer]))
    # To make_fx, a compiled function is an error.
    compiled_too = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
    with put_back_after(around), not_compiled(), compiled_too:
        with generators_kept(), put_back_after(around):
            passes = record_forward_backward(Forward(model, loss), model, batch)
            updated = None
            if update is not None:
                parameters = {name: passes.parameters[name] for name in update.names}
                trained = [name for name in passes.gradients if name in parameters]
                storage = {name: passes.storage[name] for name in trained}
                updated = recorded_update(update, parameters, storage, passes.layouts)
        joined = _Joined(passes, updated, update)
        step = fx.GraphModule(joined.attributes, joined.graph, f"{type(model).__name__}Step")
        ensure_picklable(step)
        outputs = StepOutputs(joined.written, joined.made, {} if updated is None else updated.fixed)
        key = step_key(model, batch, update)
        _warn_of_constants(step)
        record = StepRecord(joined.values, model, loss, optimizer, outputs, autocast_state(), key, noted)
        note_step(step, record)
        record.counted = check_step(step, record, Forward(model, loss), passes, update)
    if record.counted:
        warnings.warn(words_of_counted(record.counted), TraceWarning, stacklevel=levels_to_author())
    return step


def words_of_counted(counted: tuple[str, ...]) -> str:
    """Say what a graph does not change or draw, and each eager step does."""
    return (
        f"Each step changes {listed(counted)} in Python, and by that what the next one computes; the graph "
        "holds it fixed, so as_step() does not train by it. Keep a count in a buffer of the model, and draw "
        "random numbers from torch's own generators."
    )


def _warn_of_constants(step: fx.GraphModule) -> None:
    """Warn of tensors that the loss reads from elsewhere than its arguments and the model."""
    for node in step.graph.find_nodes(op="get_attr"):
        value = getattr(step, str(node.target))
        if LOSS in node.meta.get("nn_module_stack", ()) and isinstance(value, torch.Tensor) and value.dim():
            warnings.warn(
                f"The loss reads a tensor of shape {tuple(value.shape)} that is neither in the output of the "
                "model nor in inputs. It is fixed in the graph: for other batches, pass it in inputs.",
                TraceWarning,
                stacklevel=levels_to_author(),
            )


class _Joined:
    """The graph of both passes, followed by that of the update, with names."""

    def __init__(self, passes: RecordedPasses, updated: Updated | None, update: OptimizerStep | None) -> None:
        self.graph = fx.Graph()
        self.values: dict[str, Any] = {}
        self.written: dict[str, str] = {}
        self.made: dict[str, Slot] = {}
        self.attributes = dict[str, Any]()
        self._outputs: dict[str, Any] = {}
        inputs = self._placeholders(passes, updated)
        self._add_passes(passes, inputs)
        if updated is not None and update is not None:
            self._add_update(passes, updated, update, inputs)
        self.graph.output(self._outputs)
        without_dead_code(self.graph)
        refuse_writes(self.graph)

    def _placeholders(
        self, passes: RecordedPasses, updated: Updated | None
    ) -> dict[tuple[str, str], fx.Node]:
        """Add the inputs in their order; return them by kind and target."""
        given = {StepInput("parameter", name, name): value for name, value in passes.parameters.items()}
        given |= {StepInput("buffer", name, name): value for name, value in passes.buffers.items()}
        if updated is not None:
            given |= {StepInput("state", slot_name(s), s[1]): value for s, value in updated.state.items()}
            given |= {StepInput("number", name): value for name, value in updated.numbers.items()}
        batch = zip(passes.batch.names, passes.batch.tensors, strict=True)
        given |= {StepInput("batch", name): value for name, value in batch}
        found: dict[tuple[str, str], fx.Node] = {}
        for meaning, value in given.items():
            node = self.graph.placeholder(_identifier(meaning))
            # The graph may have changed the name, by which inputs are passed.
            node.target = node.name
            node.meta["desc"] = meaning
            if (layout := passes.layouts.get(meaning.owner)) is not None and value.dim():
                node.meta[PLACEMENT] = str(layout)
            found[meaning.kind, meaning.target] = node
            self.values[node.name] = value.detach()
        return found

    def _add_passes(self, passes: RecordedPasses, inputs: Mapping[tuple[str, str], fx.Node]) -> None:
        read = [node for (kind, _), node in inputs.items() if kind in ("parameter", "buffer", "batch")]
        results = self._add(passes.module, read)
        names = ["loss", *(f"grad of {name}" for name in passes.gradients)]
        self._outputs |= dict(zip(names, results, strict=False))
        for name, layout in passes.layouts.items():
            if f"grad of {name}" in self._outputs:
                self._outputs[f"grad of {name}"].meta[PLACEMENT] = str(layout)
        after = results[len(names) :]
        for name, node in zip(passes.buffers, after, strict=False):
            if name in passes.written:
                self._outputs[f"new {name}"] = node
                self.written[f"new {name}"] = inputs["buffer", name].name

    def _add_update(
        self,
        passes: RecordedPasses,
        updated: Updated,
        update: OptimizerStep,
        inputs: Mapping[tuple[str, str], fx.Node],
    ) -> None:
        gradients = [name for name in passes.gradients if name in update.names]
        order = [
            *(inputs["parameter", name] for name in update.names),
            *(self._outputs[f"grad of {name}"] for name in gradients),
            *(inputs["state", slot_name(slot)] for slot in updated.state),
            *(inputs["number", name] for name in updated.numbers),
        ]
        before = set(self.graph.nodes)
        results = self._add(updated.module, order)
        new = [node for node in self.graph.nodes if node not in before]
        place_update(new, inputs.values(), update.class_name)
        slots = {("state", slot_name(slot)): slot for slot in updated.slots}
        outputs = [*(("parameter", name) for name in update.names), *slots]
        for key, node in zip(outputs, results, strict=True):
            if node is inputs.get(key):
                continue
            name = f"new {key[1]}"
            if key in inputs:
                self.written[name] = inputs[key].name
            else:
                self.made[name] = slots[key]
            self._outputs[name] = node

    def _add(self, module: fx.GraphModule, inputs: list[fx.Node]) -> list[fx.Node]:
        """Add the nodes of a recorded graph; return its outputs."""
        known = dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True))
        for node, mine in known.items():
            mine.meta = {**node.meta, **mine.meta}
        for node in module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copy = self.graph.node_copy(node, known.__getitem__)
            if node.op == "get_attr":
                copy.target = self._attribute(getattr(module, str(node.target)))
            known[node] = copy
        return [known[node] for node in results_of(module.graph)]

    def _attribute(self, value: Any) -> str:
        """Return the name of a tensor that the graph itself holds."""
        if isinstance(value, nn.Parameter) or (isinstance(value, torch.Tensor) and value.requires_grad):
            raise TraceError(
                "The model, loss or optimizer reads a parameter, or a tensor that requires gradients, "
                "which is no parameter of one of the model's modules, so the graph would have it fixed and "
                "without a gradient. Make it one, detach it, or let the model return what the loss needs."
            )
        known = next((name for name, held in self.attributes.items() if held is value), None)
        name = known or f"constant_{len(self.attributes)}"
        self.attributes[name] = value
        return name


def slot_name(slot: Slot) -> str:
    """Return the name of a tensor in the state of an optimizer: ``exp_avg of layers.0.weight``."""
    return f"{slot[0]} of {slot[1]}"


def _identifier(meaning: StepInput) -> str:
    words = re.sub(r"\W", "_", meaning.target)
    starts_well = words[:1].isalpha() and not keyword.iskeyword(words)
    return words if starts_well else f"{meaning.kind[0]}_{words.lstrip('_')}"


def check_step(
    step: fx.GraphModule,
    record: StepRecord,
    forward: Forward,
    passes: RecordedPasses,
    update: OptimizerStep | None,
) -> tuple[str, ...]:
    """Raise a :class:`TraceError` with the first result that differs from an eager step.

    Returns what an eager step changes in Python, if the next one depends on it; the record gets all of it.
    """
    # Without data, or real exchanges, there are no bits to compare.
    if any(tensor.is_meta for tensor in passes.parameters.values()) or is_in_fake_group(step):
        return ()
    values = record.inputs
    expected = _eager(forward, passes, update)
    record.set_in_runs = tuple(forward.changed())
    changed = [*record.set_in_runs, *record.noted.changed()]
    try:
        with generators_kept(), torch.no_grad(), autocast_set():
            found = step(**values)
    except Exception as error:
        raise TraceError(f"The recorded step does not run: {type(error).__name__}: {error}") from error
    placeholders = step.graph.find_nodes(op="placeholder")
    given = {f"new {node.meta['desc'].target}": values[node.name] for node in placeholders}
    again: dict[str, torch.Tensor] | None = None
    for name, value in expected.items():
        own = found.get(name, given.get(name))
        if own is not None and same_bits(own.detach(), value.detach()):
            continue
        if again is None and not communicates(step):  # another rank may not run it again
            again = _eager(forward, passes, update)
        is_repeated = again is None or same_bits(again[name].detach(), value.detach())
        if own is None and is_repeated:
            raise TraceError(
                f"{name} is accumulated inside an operator of the backward pass, as by a checkpoint with "
                "use_reentrant=True, so a graph does not have it. Set use_reentrant=False."
            )
        if is_repeated:  # otherwise eager steps differ among themselves
            raise TraceError(
                f"{name} of the recorded step is not that of an eager one. The model or the optimizer "
                "computes it by what a graph does not see: a write of an operator that does not declare it, "
                "a global state, an operator whose sums depend on the threads, or a derivative that torch "
                "computes in another way while it is recorded."
            )
    if changed and again is None and not communicates(step):
        again = _eager(forward, passes, update)
    is_counted = again is not None and not all(same_bits(again[name], expected[name]) for name in expected)
    return (*(changed if is_counted else ()), *(f"the generator of {name}" for name in forward.drawn))


@generators_kept()
def _eager(forward: Forward, passes: RecordedPasses, update: OptimizerStep | None) -> dict[str, torch.Tensor]:
    """Return the results of an eager step, by the names of those of a graph."""
    loss, gradients, buffers = forward(
        passes.parameters,
        {name: value.clone() for name, value in passes.buffers.items()},
        passes.batch.with_tensors(tuple(tensor.clone() for tensor in passes.batch.tensors)),
    )
    found = {"loss": loss, **{f"grad of {name}": value for name, value in gradients.items()}}
    found |= {f"new {name}": value for name, value in buffers.items()}
    if update is not None:
        parameters = {name: passes.parameters[name].detach().clone() for name in update.names}
        state = {slot: value.clone() for slot, value in update.state().items()}
        own = {name: value.clone() for name, value in gradients.items() if name in parameters}
        after = update.run(parameters, own, state, {})
        found |= {f"new {name}": value for name, value in parameters.items()}
        found |= {f"new {key} of {name}": value for (key, name), value in after.items()}
    return found
