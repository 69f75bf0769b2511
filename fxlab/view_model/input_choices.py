"""Inputs that the values of a node can be looked at on: the session's, batches of its data, other sizes."""

from collections.abc import Sequence
from typing import Any

from fxlab.base.words import counted
from fxlab.models.running.arguments import Inputs
from fxlab.session import Session
from fxlab.values.tensors import tensor_leaves
from fxlab.view_model.protocol import InputChoice, InputChoices
from fxlab.view_model.wire import clip

OF_SESSION = ""
"""The name of the session's inputs."""
BATCH, VARIANT = "batch ", "variant "
"""How the names of others begin; a number or the name of a variant follows."""
MOST_VARIED = 2**20
"""Elements of the session's inputs up to which variants are offered: the largest has eight times as many."""


def inputs_state(session: Session, chosen: str) -> InputChoices:
    """Describe the inputs and data of a session on offer; ``chosen``: those that are looked at."""
    offered = {OF_SESSION: "the session's inputs"}
    evaluation = session._internals.evaluation
    for one in () if evaluation is None else evaluation.worst:
        offered[f"{BATCH}{one.number}"] = f"worst batch {one.number}: {one.verdict.status}"
    offered |= {f"{VARIANT}{name}": f"made: {name}" for name in _variants(session)}
    choices: list[InputChoice] = [
        {"name": name, "title": clip(title, 200)} for name, title in offered.items()
    ]
    return {"chosen": chosen, "choices": choices, "batches": len(_batches(session))}


def chosen_inputs(session: Session, name: str) -> Inputs | None:
    """Return the inputs of a name; ValueError if there are none of this name any more."""
    if name == OF_SESSION:
        return session.inputs
    if name.startswith(VARIANT) and (made := _variants(session).get(name.removeprefix(VARIANT))) is not None:
        return made
    if name.startswith(BATCH) and (number := name.removeprefix(BATCH)).isdecimal() and len(number) < 10:
        return _batch(session, int(number))
    raise ValueError(f"There are no inputs {clip(name, 200)!r}. Choose others.")


def _batch(session: Session, number: int) -> Inputs:
    evaluation = session._internals.evaluation
    for one in () if evaluation is None else evaluation.worst:
        if one.number == number:
            return one.inputs
    batches = _batches(session)
    if not 0 <= number < len(batches):
        words = f"the data have {counted(len(batches), 'batch')}, from 0 on"
        raise ValueError(f"There is no batch {number}: {words}.")
    batch = batches[number]
    from fxlab.validation.evaluation.judge_batch import check_batch, inputs_of_batch

    check_batch(batch, number)
    return inputs_of_batch(session.original, batch)[0]


def _batches(session: Session) -> Sequence[Any]:
    """Return the batches of the session's data if any of them can be had alone, such as those of a list."""
    batches = session._internals.batches
    can_be_had = hasattr(batches, "__getitem__") and hasattr(batches, "__len__")
    return batches if can_be_had else ()  # type: ignore[return-value]


def _variants(session: Session) -> dict[str, Inputs]:
    inputs = session.inputs
    if inputs is None:
        return {}
    tensors = tensor_leaves(inputs)
    if sum(tensor.numel() for tensor in tensors) > MOST_VARIED or any(tensor.is_meta for tensor in tensors):
        return {}
    from fxlab.validation.outputs.input_variants import named_inputs

    return dict(list(named_inputs(session.original, inputs, True).items())[1:])
