"""Values that can be pickled, and the protocols that they need."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


class _Sink:
    def write(self, data: object) -> int:
        """Throw data away."""
        return len(memoryview(cast(bytes, data)))


@dataclass(frozen=True)
class _Pickled:
    """Unpickles to the value that it holds the pickle of."""

    content: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.content,)


def is_picklable(value: object, protocol: int | None = None) -> bool:
    """Tell whether a value can be pickled, with a protocol or with the newest that is the default.

    Nothing of the pickle is kept, so that this takes no memory for large tensors.
    """
    try:
        pickle.Pickler(_Sink(), protocol).dump(value)
    except Exception:  # what an object raises that refuses to be pickled is not settled
        return False
    return True


def for_protocol(value: Any, protocol: int) -> Any:
    """Return a value, or what unpickles to it where the protocol cannot hold the value itself.

    ``torch.save`` uses protocol 2, which cannot hold a ``torch.memory_format``, for one.

    Parameters
    ----------
    value
        The value; one that no protocol can hold is returned as it is.
    protocol
        What ``__reduce_ex__`` is given.

    Examples
    --------
    >>> import pickle, torch
    >>> pickle.loads(pickle.dumps(for_protocol(torch.channels_last, 2), protocol=2))
    torch.channels_last
    """
    if is_picklable(value, protocol) or not is_picklable(value):
        return value
    return _Pickled(pickle.dumps(value))


def picklable_entries(values: Mapping[Any, Any], protocol: int) -> dict[Any, Any]:
    """Return the entries of a mapping that can be pickled, such that the protocol can hold them."""
    return {key: for_protocol(value, protocol) for key, value in values.items() if is_picklable(value)}
