"""Several transformations as one."""

from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.transformations.deep_copy import DeepCopy
from fxlab.transformations.transformation import ReversibleTransformation, Transformation


def compose(*transformations: Transformation, inplace: bool = True) -> Transformation:
    """Make one transformation of several, applied in the order given.

    Parameters
    ----------
    *transformations
        The transformations; none at all make one that changes nothing.
    inplace
        Whether the composition changes the module that it is given. Otherwise it works on a copy.

    Returns
    -------
    Transformation
        A :class:`ReversibleTransformation` if all of them are; reversing takes the last one back first. The
        nodes that it changed are those that any of them changed.

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
    for transformation in transformations:
        _check_transformation(transformation)
    parts = tuple(part for transformation in transformations for part in _parts(transformation))
    if not inplace:
        parts = (DeepCopy(), *parts)
    reversible = all(isinstance(part, ReversibleTransformation) for part in parts)
    return ReversibleComposition(parts) if reversible else Composition(parts)


@dataclass(frozen=True)
class Composition(Transformation):
    """Several transformations, one after the other.

    Attributes
    ----------
    transformations : tuple of Transformation
        The parts, in the order in which they are applied.
    """

    transformations: tuple[Transformation, ...]

    @property
    def preserves_computation(self) -> bool:  # type: ignore[override]
        """Whether all parts preserve the computation."""
        return all(part.preserves_computation for part in self.transformations)

    @property
    def copies_on_write(self) -> bool:  # type: ignore[override]
        """Whether all parts copy on write."""
        return all(part.copies_on_write for part in self.transformations)

    @property
    def name(self) -> str:
        """The names of the parts."""
        return "-then-".join(str(part.name) for part in self.transformations) or "nothing"

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Apply the parts, first first."""
        for part in self.transformations:
            graph_module = part(graph_module, lint_and_recompile=False)
        return graph_module

    def transformed(self, node: Node) -> bool:
        """Tell whether a node was changed by this composition or by one of its parts."""
        return super().transformed(node) or any(part.transformed(node) for part in self.transformations)

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """Return the nodes that were changed by any of the parts, in the order of the graph."""
        own = set(super().get_transformed_nodes(graph_module))
        for part in self.transformations:
            own.update(part.get_transformed_nodes(graph_module))
        return [node for node in graph_module.graph.nodes if node in own]


class ReversibleComposition(Composition, ReversibleTransformation):
    """Several transformations, one after the other, that can be taken back."""

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Take the parts back, last first."""
        for part in reversed(self.transformations):
            graph_module = part(graph_module, lint_and_recompile=False, reverse=True)
        return graph_module


def _check_transformation(given: object) -> None:
    if not isinstance(given, Transformation):
        advice = " Make an instance of it first." if isinstance(given, type) else ""
        raise TypeError(
            f"compose takes transformations, but {given!r} of type {type(given).__name__} was given.{advice}"
        )


def _parts(transformation: Transformation) -> tuple[Transformation, ...]:
    """Return the parts of a composition, so that composing is associative."""
    return transformation.transformations if isinstance(transformation, Composition) else (transformation,)
