"""Takes each graph that a pass begins with for a stage of a pipeline."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule

from fxlab.compiler.pipelines.pipeline import Pipeline, known_values
from fxlab.compiler.recording.snapshot import State

ONCE = "it was recorded while its pipeline ran; fxlab.from_callable makes a switch of a pass"


class PassRecorder:
    """Finds the pipeline of each graph that a pass begins with."""

    def __init__(self) -> None:
        self.pipelines: list[Pipeline] = []
        self.remarks: list[str] = []

    def begin_pass(self, name: str, graph_module: GraphModule, program: ExportedProgram | None) -> None:
        """Go on with the pipeline that has left this graph, or begin with another one."""
        self._now = self._found(graph_module)
        if program is not None and not self._now.stack.steps:
            self._now.known = known_values(program)
        self._now.begin_pass(name, graph_module)

    def end_pass(self, graph_module: GraphModule | None) -> None:
        """Note what the pass has done, if it has not raised."""
        if graph_module is not None:
            self._now.end_pass(graph_module)

    def _found(self, graph_module: GraphModule) -> Pipeline:
        latest = self.pipelines[::-1]
        found = next((one for one in latest if one.at() is graph_module), None)
        if found is None:
            # A program that a pass has returned holds a copy of the module that the pass has left.
            state = State(graph_module)
            found = next((one for one in latest if one.stack.last.state == state), None)
        if found is None:
            found = Pipeline(graph_module, ONCE)
            self.pipelines.append(found)
        return found
