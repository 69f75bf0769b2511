"""``fxlab.compose``: several transformations as one."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.base.checks import require_bool
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.copies import deep_copy
from fxlab.transformations.base import ReversibleTransformation, Transformation
from fxlab.transformations.journal.journaled import restored_on_failure
from fxlab.transformations.registry import as_pass
from fxlab.transformations.signature import digest


def compose(*passes: Transformation, inplace: bool = True) -> Transformation:
    """Make one transformation of several, applied in the order given.

    Parameters
    ----------
    *passes
        The transformations, their exact names, or functions of a graph module; none at all make one that
        changes nothing.
    inplace
        Whether the composition changes the given module. Otherwise it works on a deep copy and returns that,
        also when it is reversed.

    Returns
    -------
    Transformation
        A :class:`ReversibleTransformation` if all of them are; reversing reverts the last one first. The
        nodes that it changed are those that any of them changed. When one of them raises, the module is
        restored to its state before the first.

    Raises
    ------
    TypeError
        If something else than a transformation is given.

    Examples
    --------
    >>> from fxlab import ChangeTrueDivToMulByInverse, MergeLinears
    >>> composition = compose(ChangeTrueDivToMulByInverse(), MergeLinears())
    >>> composition.name
    'change-true-div-to-mul-by-inverse-then-merge-linears'
    >>> composition.preserves_computation
    True
    """
    transformations = [as_pass(each, "passes") for each in passes]
    require_bool(inplace, "inplace")
    parts = tuple(part for pass_ in transformations for part in _parts(pass_))
    reversible = all(isinstance(part, ReversibleTransformation) for part in parts)
    return ReversibleComposition(parts, inplace) if reversible else Composition(parts, inplace)


@dataclass(frozen=True)
class Composition(Transformation):
    """Several transformations, one after the other, on the given module or on a copy of it."""

    transformations: tuple[Transformation, ...]
    inplace: bool = True

    @property
    def preserves_computation(self) -> bool:  # type: ignore[override]
        """Whether all parts preserve the computation."""
        return all(part.preserves_computation for part in self.transformations)

    @property
    def copies_on_write(self) -> bool:  # type: ignore[override]
        """Whether all parts copy on write, or get a copy."""
        return not self.inplace or all(part.copies_on_write for part in self.transformations)

    @property
    def name(self) -> str:
        """The names of the parts."""
        return "-then-".join(str(part.name) for part in self.transformations) or "nothing"

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Apply the parts in order."""
        return self._each(self.transformations, graph_module, reverse=False)

    def transformed(self, node: Node) -> bool:
        """Tell whether a node was changed by this composition or by one of its parts."""
        return super().transformed(node) or any(part.transformed(node) for part in self.transformations)

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """Return the nodes that were changed by any of the parts, in the order of the graph."""
        own = set(super().get_transformed_nodes(graph_module))
        for part in self.transformations:
            own.update(part.get_transformed_nodes(graph_module))
        graphs = graphs_of(graph_module).values()
        return [node for module in graphs for node in module.graph.nodes if node in own]

    def _digest(self) -> str:
        cls = type(self)
        parts = tuple(part.signature for part in self.transformations)
        return digest((f"{cls.__module__}.{cls.__qualname__}", parts, self.inplace))

    def _each(
        self, parts: Iterable[Transformation], graph_module: GraphModule, *, reverse: bool
    ) -> GraphModule:
        if not self.inplace:
            graph_module = deep_copy(graph_module)
        with restored_on_failure(graph_module):
            # Checked and compiled once, after all parts.
            for part in parts:
                if reverse:
                    graph_module = part(graph_module, lint_and_recompile=False, reverse=True)
                else:
                    graph_module = part(graph_module, lint_and_recompile=False)
        return graph_module


class ReversibleComposition(Composition, ReversibleTransformation):
    """Several transformations, one after the other, that can be reverted."""

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Revert the parts, last first."""
        return self._each(reversed(self.transformations), graph_module, reverse=True)


def _parts(transformation: Transformation) -> tuple[Transformation, ...]:
    """Return the parts of a composition, so that composing is associative; one that copies stays whole."""
    if isinstance(transformation, Composition) and transformation.inplace:
        return transformation.transformations
    return (transformation,)
