"""Whether a trace does what its model does."""

from fxlab.models.running.running import run
from fxlab.values.tensors import same_bits, tensors_by_path


def assert_agree(traced, model, inputs):
    """Assert that outputs have the same class, paths and bits; return them."""
    actual, expected = run(traced, inputs), run(model, inputs)
    assert type(actual) is type(expected)
    ours, theirs = tensors_by_path(actual), tensors_by_path(expected)
    assert list(ours) == list(theirs)
    different = [path for path, tensor in ours.items() if not same_bits(tensor, theirs[path])]
    assert not different
    return actual


def assert_right_or_refused(traced, model, x):
    """Assert that a trace gives the model's own bits for an input, or names the size it was made for."""
    expected, failed = outcome(model, x)
    actual, refused = outcome(traced, x)
    if isinstance(refused, AssertionError):
        assert "x.shape[0]" in str(refused)
    else:
        assert type(refused) is type(failed)
        assert failed or same_bits(actual, expected)


def outcome(module, *inputs):
    """Return what a module gives for inputs, and the error it raised instead."""
    try:
        return module(*inputs), None
    except (AssertionError, RuntimeError) as error:
        return None, error


def targets(traced, op=None):
    """Return what the nodes of a graph call, in order."""
    return [node.target for node in traced.graph.nodes if op in (None, node.op)]
