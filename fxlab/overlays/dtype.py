"""What dtype the values have."""

from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.node_columns import shape_and_dtype


def _dtypes(subject: Subject) -> dict[str, str]:
    known = {node.name: shape_and_dtype(node)[1] for node in subject.graph_module.graph.nodes}
    return {name: dtype for name, dtype in known.items() if dtype is not None}


DTYPE = Source("dtype", "Dtype", _dtypes, runs=False)
