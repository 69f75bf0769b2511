"""A digest of any value, the same in every process: sessions and their files tell passes apart by it."""

import copyreg
import dataclasses
import functools
import hashlib
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

HELD = "_held_signature"
"""An attribute that is no argument: the signature of an instance that changed while it ran.

It is a pair with the digest of the attributes for which it holds, or the ``id`` of the running instance.
"""


def digest(value: object) -> str:
    """Return 32 hexadecimal digits of a value's type and contents, the same in every process."""
    return hashlib.blake2b(_written(value, {}), digest_size=16).hexdigest()


def arguments_of(instance: object) -> dict[str, object]:
    """Return the arguments of an instance by name: its dataclass fields and its plain attributes.

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


def code_of(cls: type) -> tuple[object, ...]:
    """Return the methods of a foreign class and the functions they call in its module; empty for fxlab's.

    So a class that is redefined with another body differs; marks of fxlab's passes outlive a new version.
    """
    if cls not in _CODES:
        _CODES[cls] = _code_of(cls)
    return _CODES[cls]


def _code_of(cls: type) -> tuple[object, ...]:
    owners = [o for o in cls.__mro__ if o is not object and not str(o.__module__).startswith(_NOT_OWN)]
    functions = [
        (f"{owner.__qualname__}.{name}", function)
        for owner in owners
        for name, value in sorted(vars(owner).items())
        for function in _functions_in(value)
    ]
    values = [
        (name, value)
        for owner in owners
        for name, value in sorted(vars(owner).items())
        if isinstance(value, bool | int | float | str | tuple) and not _is_special(name)
    ]
    called = _called_by([function for _, function in functions])
    bodies = [(name, function.__code__, function.__defaults__) for name, function in (*functions, *called)]
    return (bodies, values) if bodies or values else ()


def _is_special(name: str) -> bool:
    return name.startswith("__") or name == "_abc_impl"


def _functions_in(value: object) -> list[types.FunctionType]:
    """Return the functions behind an attribute of a class, without those that a decorator makes."""
    inner: list[object] = [value]
    if isinstance(value, staticmethod | classmethod):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.cached_property):
        inner = [value.func]
    return [each for each in inner if isinstance(each, types.FunctionType) and not _is_generated(each)]


def _is_generated(function: types.FunctionType) -> bool:
    code = function.__code__  # of a dataclass, whose fields are arguments
    return code.co_filename == "<string>" and _is_special(code.co_name)


def _called_by(functions: Iterable[types.FunctionType]) -> list[tuple[str, types.FunctionType]]:
    """Return the functions of the same module that functions call, directly or through others."""
    pending = list(functions)
    seen, found = {*pending}, list[tuple[str, types.FunctionType]]()
    while pending:
        function = pending.pop()
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name)
            members = [value] if not isinstance(value, type) else [*vars(value).values()]
            for each in (inner for member in members for inner in _functions_in(member)):
                if each.__module__ == function.__module__ and each not in seen:
                    seen.add(each)
                    pending.append(each)
                    found.append((each.__qualname__, each))
    return sorted(found, key=lambda pair: pair[0])


def _names_in(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def _written(value: object, around: dict[int, int]) -> bytes:
    """Return the canonical form of a value; ``around``: the values that contain it, so that cycles end."""
    if id(value) in around:
        return b"<cycle %d>" % (len(around) - around[id(value)])
    around[id(value)] = len(around)
    try:
        content = _content(value)
        if isinstance(content, str):
            parts = [content.encode("utf-8", "surrogatepass")]
        elif isinstance(content, bytes):
            parts = [content]
        elif isinstance(content, Mapping):
            parts = sorted(_written(key, around) + _written(item, around) for key, item in content.items())
        else:
            parts = [_written(part, around) for part in content]
            parts = sorted(parts) if isinstance(content, set | frozenset) else parts
        kind = f"<{_qualified_name(type(value))} ".encode()
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
        return kind + b"".join(b"%d:%s" % (len(part), part) for part in parts) + b">"
    finally:
        del around[id(value)]


def _content(value: Any) -> str | bytes | Iterable[object]:
    """Return the content that identifies a value besides its type: a text, bytes, or other values."""
    if isinstance(value, _TOLD_BY_THEIR_TEXT):
        return str(value)
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, type):
        return _qualified_name(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping | set | frozenset | list | tuple):
        return value
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.nn.Module):
        return repr(value), dict(value.state_dict())
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType):
        cells = [_cell_contents(cell) for cell in value.__closure__ or ()]
        name = f"{value.__module__}.{value.__qualname__}"
        called = [(each, function.__code__, function.__defaults__) for each, function in _called_by([value])]
        own = name, value.__code__, (value.__defaults__, value.__kwdefaults__), cells
        return (*own, called) if called else own
    if isinstance(value, types.CodeType):
        # Without line numbers: a function that only moves in its file stays the same.
        return value.co_code, (value.co_consts, value.co_names, value.co_varnames)
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | None):
        return f"{value.__module__}.{value.__qualname__}"
    state = arguments_of(value)
    return (state,) if state or dataclasses.is_dataclass(value) else _reduced(value)


def _tensor(value: torch.Tensor) -> Iterator[object]:
    yield str((value.dtype, tuple(value.shape), str(value.device), value.requires_grad))
    flatten = getattr(value, "__tensor_flatten__", None)
    if flatten is not None:  # a wrapper, as of a quantized tensor
        yield from (getattr(value, name) for name in flatten()[0])
    elif value.is_sparse:
        yield from (value.detach().coalesce().indices(), value.detach().coalesce().values())
    elif not value.is_meta:
        dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        yield dense.reshape(-1).view(torch.uint8).numpy().tobytes()


def _reduced(value: object) -> Iterator[object]:
    """Yield the parts from which ``pickle`` would rebuild a value; empty if it cannot."""
    registered = copyreg.dispatch_table.get(type(value))
    try:
        reduced = value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception:  # an object that refuses to be pickled may raise anything
        return
    for part in (reduced,) if isinstance(reduced, str) else reduced:
        yield list(part) if isinstance(part, Iterator) else part


def _cell_contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has not been assigned yet
        return None


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_NOT_OWN = ("fxlab.", "torch.", "abc", "typing")
_CODES: weakref.WeakKeyDictionary[type, tuple[object, ...]] = weakref.WeakKeyDictionary()
"""The code of classes, which is read once."""
_TOLD_BY_THEIR_TEXT = (
    *(type(None), bool, int, str),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
