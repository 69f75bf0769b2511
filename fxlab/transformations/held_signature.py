"""The signature of a transformation that notes things in its own attributes while it runs.

A signature is made of the attributes, and marks and reversal go by it. So what a transformation counts or
remembers in attributes of its own, while it transforms, must not make another transformation of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

KEPT = "_kept_signature"
"""The attribute of an instance that has changed while it ran: the digest of its attributes, its signature."""

_running: dict[int, str] = {}
"""The signatures of the instances that are running, by their id."""


def held_signature(instance: object, digest: Callable[[], str]) -> str:
    """Return the signature that an instance has had, or the digest of its attributes where it has had none.

    Parameters
    ----------
    instance
        The transformation.
    digest
        Computes the digest of its attributes.
    """
    if id(instance) in _running:
        return _running[id(instance)]
    now = digest()
    then, signature = vars(instance).get(KEPT, (None, now))
    return str(signature) if then == now else now


@contextmanager
def holding_signature(instance: object, digest: Callable[[], str]) -> Iterator[None]:
    """Let an instance keep its signature in the block, and after it if only the block changes its attributes.

    Parameters
    ----------
    instance, digest
        As for :func:`held_signature`.
    """
    if id(instance) in _running:
        yield
        return
    before = digest()
    signature = _running[id(instance)] = held_signature(instance, lambda: before)
    try:
        yield
    finally:
        _running.pop(id(instance), None)
        after = digest()
        if after != before:
            object.__setattr__(instance, KEPT, (after, signature))
