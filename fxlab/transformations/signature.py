"""A digest of any value that is the same in every process: what tells one transformation from another.

Python's ``hash`` changes with ``PYTHONHASHSEED``, fails on lists and falls back to addresses. Here a value is
written out canonically instead, by its type and contents, and what is written is digested.
"""

import copyreg
import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

HELD = "_held_signature"
"""An attribute that is no argument: the signature of an instance that has changed while it ran.

It is kept as a pair with the digest of the attributes for which it holds, or the ``id`` of the instance while
that runs.
"""


def digest(value: object) -> str:
    """Return a digest of a value's type and contents.

    Parameters
    ----------
    value
        Anything: nested containers, tensors, arrays, modules, functions, enumerations, plain objects.

    Returns
    -------
    str
        32 hexadecimal digits, equal in every process for equal values.

    Examples
    --------
    >>> digest({"a": [1, 2.0], "b": {3}}) == digest({"b": {3}, "a": [1, 2.0]})
    True
    >>> digest(0.0) == digest(-0.0)
    False
    """
    return hashlib.blake2b(_Writer().write(value), digest_size=16).hexdigest()


def arguments_of(instance: object) -> dict[str, object]:
    """Return what an instance was made with, by name: its dataclass fields and its plain attributes.

    Class variables, fields that do not take part in comparison and values cached by
    :class:`functools.cached_property` say nothing about the instance and are left out.
    """
    declared = dataclasses.fields(instance) if dataclasses.is_dataclass(instance) else ()
    fields = {field.name: field for field in declared}
    arguments = {
        name: value
        for name, value in getattr(instance, "__dict__", {}).items()
        if name not in fields
        and name != HELD
        and not isinstance(getattr(type(instance), name, None), functools.cached_property)
    }
    for name, field in fields.items():
        if field.compare and hasattr(instance, name):
            arguments[name] = getattr(instance, name)
    return arguments


class _Writer:
    """Writes values out canonically; remembers where it is, so that cycles end."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def write(self, value: object) -> bytes:
        """Return the canonical form of a value."""
        if id(value) in self._open:
            return b"<cycle %d>" % (len(self._open) - self._open[id(value)])
        self._open[id(value)] = len(self._open)
        try:
            kind = _qualified_name(type(value))
            parts = b"".join(b"%d:%s" % (len(part), part) for part in self._parts(value))
            return f"<{kind} ".encode() + parts + b">"
        finally:
            del self._open[id(value)]

    def _parts(self, value: object) -> Iterable[bytes]:
        for handled, parts in _PARTS:
            if isinstance(value, handled):
                return parts(self, value)
        return self._object(value)

    def _mapping(self, value: Mapping[Any, Any]) -> Iterable[bytes]:
        return sorted(self.write(key) + self.write(item) for key, item in value.items())

    def _set(self, value: Iterable[Any]) -> Iterable[bytes]:
        return sorted(map(self.write, value))

    def _sequence(self, value: Iterable[Any]) -> Iterable[bytes]:
        return map(self.write, value)

    def _tensor(self, value: torch.Tensor) -> Iterator[bytes]:
        yield str((value.dtype, tuple(value.shape), str(value.device), value.requires_grad)).encode()
        flatten = getattr(value, "__tensor_flatten__", None)
        if flatten is not None:  # a wrapper, as of a quantized tensor
            for name in flatten()[0]:
                yield self.write(getattr(value, name))
        elif value.is_sparse:
            yield from map(
                self.write, (value.detach().coalesce().indices(), value.detach().coalesce().values())
            )
        elif not value.is_meta:
            dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
            yield dense.reshape(-1).view(torch.uint8).numpy().tobytes()

    def _array(self, value: "np.ndarray[Any, Any]") -> Iterator[bytes]:
        yield str((value.dtype.str, value.shape)).encode()
        yield self.write(value.tolist()) if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()

    def _module(self, value: torch.nn.Module) -> Iterator[bytes]:
        yield repr(value).encode()
        yield self.write(dict(value.state_dict()))

    def _function(self, value: types.FunctionType) -> Iterator[bytes]:
        yield f"{value.__module__}.{value.__qualname__}".encode()
        yield self.write(value.__code__)
        yield self.write((value.__defaults__, value.__kwdefaults__))
        yield self.write([_cell_contents(cell) for cell in value.__closure__ or ()])

    def _code(self, value: types.CodeType) -> Iterator[bytes]:
        yield value.co_code
        yield self.write((value.co_consts, value.co_names, value.co_varnames))

    def _method(self, value: types.MethodType) -> Iterator[bytes]:
        yield self.write(value.__func__)
        yield self.write(value.__self__)

    def _builtin(self, value: types.BuiltinFunctionType) -> Iterator[bytes]:
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if not isinstance(value.__self__, types.ModuleType | type | None):
            yield self.write(value.__self__)

    def _object(self, value: object) -> Iterator[bytes]:
        state = arguments_of(value)
        if state or dataclasses.is_dataclass(value):
            yield self.write(state)
        else:
            yield from map(self.write, _reduced(value))


def _reduced(value: object) -> Iterator[object]:
    """Yield what ``pickle`` would rebuild a value from; nothing when it cannot."""
    registered = copyreg.dispatch_table.get(type(value))
    try:
        reduced = value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception:  # what an object raises that refuses to be pickled is not settled
        return
    if isinstance(reduced, str):
        yield reduced
        return
    function, arguments, *state = reduced
    yield function
    yield arguments
    for part in state:
        yield list(part) if isinstance(part, Iterator) else part


def _cell_contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has not been assigned yet
        return None


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _text(value: object) -> Iterable[bytes]:
    return (str(value).encode("utf-8", "surrogatepass"),)


_WRAPPERS = (types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType)

_PARTS: list[tuple[Any, Callable[[_Writer, Any], Iterable[bytes]]]] = [
    (enum.Enum, lambda _, value: _text(value.name)),
    (type(None) | bool | int | str | type(Ellipsis) | type(NotImplemented), lambda _, value: _text(value)),
    (float, lambda _, value: _text(float(value).hex())),
    (complex, lambda _, value: _text(value.real.hex() + value.imag.hex())),
    (bytes | bytearray | memoryview, lambda _, value: (bytes(value),)),
    (type, lambda _, value: _text(_qualified_name(value))),
    (types.GenericAlias | types.UnionType, lambda _, value: _text(value)),
    (torch.dtype | torch.device | torch.layout | torch.memory_format, lambda _, value: _text(value)),
    (torch.Tensor, _Writer._tensor),
    (np.ndarray | np.generic, lambda writer, value: writer._array(np.asarray(value))),
    (torch.nn.Module, _Writer._module),
    (Mapping, _Writer._mapping),
    (set | frozenset, _Writer._set),
    (list | tuple, _Writer._sequence),
    (slice, lambda writer, value: writer._sequence((value.start, value.stop, value.step))),
    (types.ModuleType, lambda _, value: _text(value.__name__)),
    (types.FunctionType, _Writer._function),
    (types.CodeType, _Writer._code),
    (types.MethodType, _Writer._method),
    (types.BuiltinFunctionType, _Writer._builtin),
    (_WRAPPERS, lambda _, value: _text(value.__qualname__)),
    (
        functools.partial,
        lambda writer, value: writer._sequence((value.func, value.args, value.keywords)),
    ),
]
"""How values of each type are written; the first that fits is taken."""
