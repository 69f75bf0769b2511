"""The stages of a session's stack: the module after each pass, made from the one below."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch.fx import GraphModule

from fxlab.base.author_frames import from_author_on
from fxlab.base.garbage import without_collecting
from fxlab.graphs.matching import remember_source_graph
from fxlab.models.graph_modules.copies import changed_copy
from fxlab.models.state.module_state import ModuleState
from fxlab.models.state.tensor_state import TensorState
from fxlab.session.errors import TransformationError
from fxlab.session.history import Candidate, Stack
from fxlab.transformations import RewritePass, Transformation
from fxlab.transformations.signature import code_of


class Stages:
    """The stages of one stack, kept until others replace them or the original changes.

    ``original``: the lowest stage. It is never changed here, but others may train or load it. ``limited``:
    returns a transformation by its name, without the candidates that it excludes.
    """

    def __init__(
        self, original: GraphModule, limited: Callable[[str, tuple[Candidate, ...]], Transformation]
    ) -> None:
        self._original, self._limited = original, limited
        self._made, self._state = _lowest(original), ModuleState(original)
        self._own: dict[str, TensorState] = {}

    def of(self, stack: Stack) -> dict[Stack, GraphModule]:
        """Return the stages of the passes that are on, rebuilt if the original has changed since."""
        if stack not in self._made:
            self.keep(self.built(stack))
            self.note_state()
        return self._made

    def built(self, stack: Stack) -> dict[Stack, GraphModule]:
        """Return the stages of any stack, from the original on: kept ones, and the others newly built.

        Raises TransformationError if a transformation raises.
        """
        stages: dict[Stack, GraphModule] = {}
        with without_collecting():
            for prefix in prefixes(stack):
                stages[prefix] = self._made.get(prefix) or self._applied_to(stages[prefix[:-1]], *prefix[-1])
        return stages

    def anew(self, stack: Stack) -> dict[Stack, GraphModule]:
        """Return newly built stages of a stack, and keep the present ones."""
        kept = self._made
        self._made = _lowest(self._original)
        try:
            return self.built(stack)
        finally:
            self._made = kept

    def keep(self, stages: dict[Stack, GraphModule]) -> None:
        """Keep new stages in place of the present ones."""
        self._made = stages

    def forget(self) -> None:
        """Keep only the original."""
        self._made = _lowest(self._original)
        self.note_state()

    def note_state(self) -> None:
        """Note the present tensors of the original, and those of the highest stage alone, as unchanged."""
        self.note_original()
        *_, top = self._made.values()
        self._own = self._state.own_of(top)

    def note_original(self) -> None:
        """Note the present tensors of the original as unchanged."""
        self._state = ModuleState(self._original, self._state)

    def are_stale(self) -> bool:
        """Tell whether others have changed tensors of the original."""
        return bool(self._state.changed())

    def written(self) -> list[str]:
        """Return the tensors that the highest stage does not share and that others have written."""
        return [path for path, state in self._own.items() if not state.is_of(state.tensor)]

    def _applied_to(self, below: GraphModule, name: str, excluded: tuple[Candidate, ...]) -> GraphModule:
        pass_ = self._limited(name, excluded)
        try:
            if pass_.makes_new_module:
                stage = pass_(below)
            else:
                stage = changed_copy(
                    below,
                    pass_,
                    writes_tensors=not pass_.copies_on_write,
                    # A foreign pass may make a graph that is no valid Python, which must be reported at once.
                    code_when_asked=isinstance(pass_, RewritePass) and not code_of(type(pass_)),
                )
        except (Exception, SystemExit) as error:
            failure = TransformationError(pass_, error)
            # The traceback begins with the pass author's own lines, without fxlab's callers.
            raise failure from error.with_traceback(from_author_on(error))
        remember_source_graph(stage, below)
        return stage


def prefixes(stack: Stack) -> Iterable[Stack]:
    """Return the stacks of a stack's stages, from that of the original on."""
    return (stack[:length] for length in range(len(stack) + 1))


def _lowest(original: GraphModule) -> dict[Stack, GraphModule]:
    return {(): original}
