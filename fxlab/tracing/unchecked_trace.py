"""A trace to look at before it is compared with its model, for screens; comparing follows, also in slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.torch_private import dispatch_modes, function_modes
from fxlab.models.graph_modules.copies import changed_copy
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.module_state import ModuleState
from fxlab.models.state.settings import put_settings_back, settings_now
from fxlab.models.state.tensor_state import TensorState
from fxlab.tracing.report import TraceError
from fxlab.tracing.slices import PauseError, Slices
from fxlab.tracing.symbolic_trace import traced_with_inputs
from fxlab.values.nested import tensors_inside


class UncheckedTrace:
    """A recorded graph, which is compared with its model later, under the settings of its recording.

    ``graph_module``: the graph to look at, and the result when ``is_checked``. ``inputs``: those of the run.
    Where modes of torch are on, which cannot be entered again, it is checked at once. Raises what
    :func:`fxlab.symbolic_trace` raises, as far as recording shows it.
    """

    def __init__(self, model: nn.Module, inputs: Inputs | None) -> None:
        self._model, self._asked = model, inputs
        self._context, self._settings = copy_context(), settings_now()
        self._gradients = torch.is_grad_enabled()
        has_modes = function_modes() or dispatch_modes() or torch.is_inference_mode_enabled()
        self._slices = Slices(may_pause=not has_modes)
        self.graph_module: GraphModule
        self.inputs: Inputs
        self.is_checked = self.is_recorded_again = False
        if self._traced(inputs):
            return
        assert self._slices.first is not None
        self._state = ModuleState(model)
        self._given = [TensorState.of(tensor) for _, tensor in tensors_inside(self.inputs)]
        self.graph_module = changed_copy(
            self._slices.first, lambda copied: copied, writes_tensors=False, code_when_asked=True
        )

    def check(self, *, in_slices: bool, is_changed: bool) -> bool:
        """Compare the graph with the model, or make one slice of that; return whether it is complete.

        ``is_changed``: whether the model reads something else now. It is recorded again then, as also where
        the recorded graph is another function. Raises TraceError as :func:`fxlab.symbolic_trace` does.
        """
        is_changed = is_changed or bool(self._state.changed())
        if is_changed or not all(state.is_of(state.tensor) for state in self._given):
            self._slices = Slices()
        first = self._slices.first
        self._slices.begin(may_pause=in_slices and first is not None)
        try:
            with self._settings_of_recording():
                self._context.copy().run(self._traced, self.inputs)
        except TraceError:
            if self._asked is not None:
                raise
            self.graph_module, self.inputs = traced_with_inputs(self._model, None)
            self.is_checked = True
        finally:
            if self.is_checked or not self._slices.may_pause:  # guards may have changed the recording
                self._slices = Slices()
        self.is_recorded_again = self.is_checked and self.graph_module is not first
        return self.is_checked

    def _traced(self, inputs: Inputs | None) -> bool:
        try:
            self.graph_module, self.inputs = traced_with_inputs(self._model, inputs, slices=self._slices)
        except PauseError:
            self.inputs = self._slices.inputs
            return False
        self.is_checked = True
        return True

    @contextmanager
    def _settings_of_recording(self) -> Iterator[None]:
        now = settings_now()
        try:
            put_settings_back(self._settings)
            with torch.set_grad_enabled(self._gradients):
                yield
        finally:
            put_settings_back(now)
