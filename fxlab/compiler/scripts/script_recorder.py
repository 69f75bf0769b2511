"""Records each graph that Dynamo captures in an unchanged script, as the hooks report it."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.compiler.recording.recorder import PHASES, Recorder
from fxlab.compiler.recording.steps import Recording
from fxlab.tracing.dynamo.torch_private import origin_of


class ScriptRecorder(Recorder):
    """Records each graph that Dynamo captures, for any backend; :func:`record_compile` makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[int, nn.Module] = {}
        self.inputs: dict[int, dict[str, int]] = {}
        self._waits = self._compiles = False
        self._captured: Recording | None = None

    def captured(
        self, graph_module: GraphModule, model: nn.Module | None, modules: Mapping[str, nn.Module]
    ) -> Callable[..., None]:
        """Begin with a graph of Dynamo; returns a function that notes the values that it runs on."""
        self.modules_read = modules
        super()._begin_graph(graph_module)
        self._waits, self._compiles, self._given = True, True, weakref.ref(graph_module)
        recording = self._captured = self._recording
        self.models[id(recording)] = nn.Module() if model is None else model
        names = self.inputs[id(recording)] = {}
        for place, node in enumerate(graph_module.graph.find_nodes(op="placeholder")):
            origin = origin_of(node)
            if origin is not None and not origin.in_module:
                names["_".join((origin.root, *origin.steps))] = place

        return recording.note_values

    def of_other_thread(self, function: str) -> None:
        """Remark on a compile by another thread."""
        words = f"Another thread has compiled {function}; its graphs are not shown, only its story."
        if words not in self.remarks:
            self.remarks.append(words)

    def begin_part(self) -> None:
        """Note which graph was compiled before."""
        self._before = len(self.recordings)

    def end_part(self, code: Callable[..., Any]) -> Callable[..., None] | None:
        """Return a function that notes the values of a part of Dynamo's graph, which is of the same model."""
        if len(self.recordings) == self._before:
            return None
        recording = self.recordings[-1]
        recording.code = code
        if self._captured is not None:
            self.models[id(recording)] = self.models[id(self._captured)]
        return recording.note_values

    def generated(self, code: Callable[..., Any]) -> None:
        """Note the backend's result for the graph that was captured last."""
        if self._captured is not None:
            self._captured.code = code

    def compiled(self) -> None:
        """Note that the backend has done its work."""
        self._compiles = False

    def _begin_graph(self, graph_module: GraphModule) -> None:
        """Continue Dynamo's graph if the backend passed it on; else start the recording of a new one."""
        if self._waits:
            self._waits = False
            names = [[node.name for node in g.nodes] for g in (self._now.first.graph, graph_module.graph)]
            # A part of it, which a backend compiles alone, may take the same inputs.
            if graph_module is self._given() or names[0] == names[1]:
                self.note_between(graph_module, "pre_grad/before its passes")
                return
        super()._begin_graph(graph_module)

    def _enter(self, phase: str, graph_module: GraphModule) -> None:
        inputs = graph_module.graph.find_nodes(op="placeholder")
        is_backward = any(node.name.startswith("tangents") for node in inputs)
        is_late = phase == PHASES[2] and is_backward and not self._compiles
        if not self.recordings or is_late:  # with this torch it is not known of which graph it is
            super()._begin_graph(graph_module)
        else:
            super()._enter(phase, graph_module)
