"""The session that ``fxlab.inspect`` shows: to look at before its graph is compared with the model."""

from __future__ import annotations

from torch import nn
from torch.fx import GraphModule

from fxlab.base.checks import describe
from fxlab.front_desk.sources import Model, recorded, source_of
from fxlab.models.graph_modules.graph_module import check_lints
from fxlab.models.hooks import is_compiled
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.module_state import ModelNoted
from fxlab.session.session import Session


class FirstLook:
    """A session of a graph that was recorded, for a screen to show while nobody changes it.

    ``session``: is that of the compared graph as soon as :meth:`check` has returned true.
    """

    def __init__(self, model: nn.Module, inputs: Inputs | None) -> None:
        self._model, self._trace = model, recorded(model, inputs)
        self.session = Session(self._trace.graph_module)
        self._take()

    @property
    def is_checked(self) -> bool:
        """Whether the graph was compared with the model."""
        return self._trace.is_checked

    @property
    def is_recorded_again(self) -> bool:
        """Whether the compared graph is another one than the one that was shown."""
        return self._trace.is_recorded_again

    def check(self, *, in_slices: bool) -> bool:
        """Compare the graph with the model, or make one slice of that; return whether it is complete.

        Raises TraceError if it is not the model, as a new session would.
        """
        with self.session._turns.held():
            if not self.is_checked:
                is_changed = self.session._noted is None or bool(self.session._noted.changed())
                if self._trace.check(in_slices=in_slices, is_changed=is_changed):
                    check_lints(self._trace.graph_module, "model")
                    self.session._begin_at(self._trace.graph_module)
                    self._take()
                    self.session._turns.is_changed = True
        return self.is_checked

    def _take(self) -> None:
        """Let the session be that of the traced model as it is now."""
        self.session._model, self.session._noted = self._model, ModelNoted(self._model)
        self.session._inputs = self._trace.inputs


def first_look(model: Model, inputs: Inputs | None) -> FirstLook | None:
    """Return a first look at a model; ``None`` for graphs, and for what is checked as soon as it is traced.

    Those are functions and compiled models: they are other objects whenever they are traced.
    """
    source = source_of(model)
    module = source.module
    if not isinstance(module, nn.Module) or isinstance(module, GraphModule) or is_compiled(module):
        return None
    return FirstLook(module, source.inputs if inputs is None else inputs)


def session_of(model: Model | Session, inputs: Inputs | None = None) -> Session:
    """Return a given session, or make one of a model.

    Raises TypeError if ``model`` is neither, or ``inputs`` are given with a session, which has its own.
    """
    if not isinstance(model, Session):
        return Session(model, inputs)
    if inputs is not None:
        raise TypeError(
            f"inputs: a session has its own, got {describe(inputs)} beside one. "
            "Make another session: fxlab.Session(model, inputs)."
        )
    return model
