"""Whether a trace does what its model does."""

from fxlab.running import run
from fxlab.tensors import same_bits, tensors_by_path


def assert_agree(traced, model, inputs):
    """Assert that outputs have the same class, paths and bits; return them."""
    actual, expected = run(traced, inputs), run(model, inputs)
    assert type(actual) is type(expected)
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    assert list(ours) == list(theirs)
    different = [path for path, tensor in ours.items() if not same_bits(tensor, theirs[path])]
    assert not different
    return actual


def targets(traced, op=None):
    """Return what the nodes of a graph call, in order."""
    return [node.target for node in traced.graph.nodes if op in (None, node.op)]
