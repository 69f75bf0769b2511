"""The values of the node that a page looks at, kept by its screen until it looks at another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import fx

from fxlab.base.interrupts import interrupts_noted
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.module_state import ModuleState
from fxlab.notebook.page.messages import MessageError
from fxlab.validation import NodeValues
from fxlab.validation.tensor_values.node_values import values_in
from fxlab.view_model.graph_data import ShownGraph
from fxlab.view_model.input_choices import OF_SESSION, chosen_inputs, inputs_state
from fxlab.view_model.node_value import Axes, non_finite_origin, part_state, value_state
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.protocol import ValueAnswer
from fxlab.view_model.session_state import stage_names
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session

MOST_KEPT = 2**30
"""Bytes of a node's values that are kept; larger ones are computed again for each part that is looked at."""


@dataclass(frozen=True)
class Asked:
    """A request for the values of a node.

    ``stage``: the stage whose value it is. ``compared``: the stage that it is compared with. ``title``: of
    that stage; or, if there is none, of the one that alone has the node. ``inputs``: the name of the inputs,
    by which :func:`~fxlab.view_model.input_choices.chosen_inputs` knows them.
    """

    node: str
    stage: fx.GraphModule
    compared: fx.GraphModule | None = None
    title: str = ""
    inputs: str = OF_SESSION


class LookedAtValues:
    """Computes the values of one node of a session at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: tuple[Asked, NodeValues, tuple[ModuleState, ...]] | None = None

    def reset(self) -> None:
        """Forget the kept values: the session has changed."""
        self._kept = None

    def asked(self, shown: ShownGraph, node: str, before: int | None, inputs: str) -> Asked:
        """Return the request of a page that shows a graph, alone or compared with the stage of a number."""
        session = self._session
        titles = stage_names(session.applied)
        if before is not None and not 0 <= before < len(titles):
            raise MessageError(f"There is no stage {before} to compare with: the last is {len(titles) - 1}.")
        number = before or 0
        if shown.stage not in session.stages:  # a preview of a pass on the last stage
            number = len(titles) - 1
        compared = session.stages[number]
        title = f"{number}. {titles[number]}" if number else titles[0]
        if node in shown.gone:
            return Asked(node, compared, None, title, inputs)
        if compared is shown.stage:
            return Asked(node, shown.stage, inputs=inputs)
        return Asked(node, shown.stage, compared, title, inputs)

    def value(self, asked: Asked, busy: Callable[[str], AbstractContextManager[None]]) -> ValueAnswer:
        """Compute and describe the values of a node, or why that failed; ``busy`` shows the progress."""
        self._kept = None
        with interrupts_noted() as interrupted:
            try:
                with busy("Computing the values"):
                    inputs = chosen_inputs(self._session, asked.inputs)
                    values = self._computed(asked, inputs)
                    first = non_finite_origin(values, asked.stage, asked.node, inputs)
                    titles = ("", asked.title) if asked.compared is None else (asked.title, "")
                    state = value_state(values, titles[0], first, titles[1])
                    state["inputs"] = inputs_state(self._session, asked.inputs)
                    part = self._part(values, 0, Axes())
                    return {"text": "", **part, "state": "ready", "value": state}
            except KeyboardInterrupt:
                return {"state": "cancelled"}
            except Exception as error:
                if interrupted():
                    return {"state": "cancelled"}
                return {"state": "failed", "text": clip(describe_error(error), 600)}

    def part(self, asked: Asked, place: int, axes: Axes) -> ValueAnswer:
        """Describe one of the tensors, along other axes."""
        return self._part(self._values(asked), place, axes)

    def _part(self, values: NodeValues, place: int, axes: Axes) -> ValueAnswer:
        if not values.tensors:
            return {"state": "failed", "text": ""}
        try:
            return {"state": "ready", "part": part_state(values, place, axes)}
        except (TypeError, ValueError) as error:
            return {"state": "failed", "text": clip(f"Tensor {place}: {error}", 600)}

    def _values(self, asked: Asked) -> NodeValues:
        if self._kept is not None:
            what, values, states = self._kept
            # The original stays the same object when it is trained.
            if what == asked and not any(state.changed() for state in states):
                return values
        return self._computed(asked, chosen_inputs(self._session, asked.inputs))

    def _computed(self, asked: Asked, inputs: Inputs | None) -> NodeValues:
        values = values_in(asked.stage, asked.node, inputs, asked.compared)
        size = sum(t.tensor.numel() * t.tensor.element_size() for t in values.tensors if t.kind != "weight")
        stages = [stage for stage in (asked.stage, asked.compared) if stage is not None]
        states = tuple(map(ModuleState, stages))
        self._kept = (asked, values, states) if size <= MOST_KEPT else None
        return values
