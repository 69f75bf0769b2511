"""How many parameters nodes use."""

from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.node_columns import parameter_counts


def _counts(subject: Subject) -> dict[str, int]:
    return {node.name: count for node, count in parameter_counts(subject.graph_module).items()}


PARAMETERS = Source("parameters", "Parameters", _counts, runs=False)
"""Those that several nodes use count where they are used first."""
