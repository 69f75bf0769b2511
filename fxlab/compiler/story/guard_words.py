"""Guards of Dynamo in words: the value that was expected, and the one that came."""

from __future__ import annotations

import ast
import enum
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_VARIABLE = re.compile(r"\b[LG]\[(['\"])(\w+)\1\]")
_HELD = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])(\w+)\1\]")
_SIZE = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_COMMENT = re.compile(r"\s{2,}# (?P<code>.*?)  # (?P<file>\S+):(?P<line>\d+) in ", re.DOTALL)
_ANY_COMMENT = re.compile(r"\s{2,}# .*", re.DOTALL)
_HINT = re.compile(r" \(HINT: [^)]*\)\s*$")
_TENSOR = re.compile(
    r"tensor '(?P<name>.+)' (?P<fact>\w+) mismatch(?: at index (?P<index>\d+))?\.(?P<rest>.*)"
)
_EXPECTED = re.compile(r"expected (?P<expected>.+?), actual (?P<actual>.+)")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
_TYPE = re.compile(r"___check_type_id\((?P<name>.+), \d+\)(?:, type=<class '(?P<type>[^']+)'>)?")
_CLASS = re.compile(r"expected type of '(?P<name>.+)' to be .+ but found <class '(?P<type>[^']+)'>")
_OBJECT = re.compile(r"___check_obj_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?")
_KEY = re.compile(r"(?P<no>not )?___dict_contains\((?P<key>.+), (?P<name>[^,]+)\)")
_ELEMENT = re.compile(r"(?P<no>not )?\w+\.__contains__\((?P<name>[^,]+), (?P<key>.+)\)")
_SWITCHES = {"grad_mode": torch.is_grad_enabled}
_MOST = 60
_UNKNOWN = object()


@dataclass(frozen=True)
class Guard:
    """A guard of a compiled function."""

    expression: str
    """As Dynamo writes it, without the comment."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line of the function that made it necessary."""

    @classmethod
    def of(cls, text: str) -> Guard:
        """Read a guard with the comment that Dynamo writes after it."""
        text = _HINT.sub("", text.strip())
        found = _COMMENT.search(text)
        if found is None:
            return cls(_ANY_COMMENT.sub("", text).strip())
        return cls(text[: found.start()].strip(), found["file"], int(found["line"]), found["code"].strip())

    def place_in(self, file: str) -> str:
        """Return file and line; Dynamo shortens a long name, which is that of the function's file."""
        known = file if self.file and file.endswith(self.file) else self.file
        return f"{known}:{self.line}" if known else ""

    @property
    def words(self) -> str:
        """The guard in the names of the function, such as ``cache.pos == 3``."""
        return named(self.expression)

    def failed(self, local: Mapping[str, Any], of_module: Mapping[str, Any]) -> str:
        """Return how it failed in a frame, as ``cache.pos was 3, is 4``; runs no code of theirs."""
        scope = {**local, "L": local, "G": of_module}
        expression = self.expression
        if found := _TENSOR.match(expression):
            return _tensor_words(found, scope)
        if found := _TYPE.match(expression):
            before = _article((found["type"] or "another type").rpartition(".")[2])
            value = _evaluated(found["name"], scope)
            kind = "another type" if value is _UNKNOWN else type(value).__name__
            return f"{named(found['name'])} was {before}, is {_article(kind)}"
        if found := _OBJECT.match(expression):
            return f"{named(found['name'])} is another object than before ({_value(found['name'], scope)})"
        for kind, pattern in (("key", _KEY), ("element", _ELEMENT)):
            if found := pattern.match(expression):
                has, had = ("has", "had not") if found["no"] else ("does not have", "had")
                return f"{named(found['name'])} {has} the {kind} {found['key']}, and {had} before"
        if found := _CLASS.match(expression):
            kind = _article(found["type"].rpartition(".")[2])
            return f"{named(found['name'])} was of another class, is {kind}"
        if expression.startswith("GLOBAL_STATE changed:"):
            changed = expression.partition(":")[2].split()
            return ", ".join(_switch_words(name.strip(",")) for name in changed)
        if expression.startswith("Duplicate tensor"):
            names = " and ".join(re.findall(r'"([^"]+)"', expression)) or "two arguments"
            return f"{named(names)} are one tensor, and were several before"
        return _comparison_words(expression, scope)


def named(expression: str) -> str:
    """Write an expression of Dynamo in the names of the function."""
    expression = _VARIABLE.sub(r"\2", expression)
    expression = _HELD.sub(
        lambda found: f"[{found[2]}]" if found[2].isdigit() else f".{found[2]}", expression
    )
    return _SIZE.sub(r".\1(\2)", expression)


def _tensor_words(found: re.Match[str], scope: Mapping[str, Any]) -> str:
    name, fact, index = named(found["name"]), found["fact"], found["index"]
    if fact == "requires_grad":
        was = "requires_grad=1" in found["rest"]
        return f"{name}.requires_grad was {was}, is {not was}"
    values = _EXPECTED.search(found["rest"])
    what = f"{name}.{fact}({index})" if index else f"the {fact} of {name}"
    if values is None:
        return f"{what} is another one than before"
    expected, actual = (
        _DTYPES.get(values[key].strip(), values[key].strip()) for key in ("expected", "actual")
    )
    return f"{what} was {expected}, is {actual}"


def _switch_words(name: str) -> str:
    now = _SWITCHES.get(name)
    if now is None:
        return f"{name} has changed"
    return f"{name} was {'off' if now() else 'on'}, is {'on' if now() else 'off'}"


def _comparison_words(expression: str, scope: Mapping[str, Any]) -> str:
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return f"{named(expression)} does not hold any more"
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq | ast.Is):
        left, right = ast.unparse(tree.left), ast.unparse(tree.comparators[0])
        return f"{named(left)} was {named(right)}, is {_value(left, scope)}"
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        name = ast.unparse(tree.operand)
        return f"{named(name)} was empty or false, is {_value(name, scope)}"
    sizes = [
        ast.unparse(part)
        for part in ast.walk(tree)
        if isinstance(part, ast.Subscript | ast.Attribute) and _found(part, scope) is not _UNKNOWN
    ]
    now = f": {named(sizes[0])} is {_value(sizes[0], scope)}" if sizes else ""
    return f"{named(expression)} does not hold any more{now}"


def _article(kind: str) -> str:
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}" if kind.isidentifier() else kind


def _value(expression: str, scope: Mapping[str, Any]) -> str:
    value = _evaluated(expression, scope)
    if value is _UNKNOWN:
        return "another value"
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value)
        return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
    if isinstance(value, torch.dtype | torch.device | enum.Enum):
        return str(value)
    name = value.co_name if isinstance(value, types.CodeType) else getattr(value, "__name__", None)
    return name if isinstance(name, str) else _article(type(value).__name__)


def value_of(expression: str, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression of Dynamo; ``None`` if that would run foreign code."""
    value = _evaluated(expression, scope)
    return None if value is _UNKNOWN else value


def _evaluated(expression: str, scope: Mapping[str, Any]) -> Any:
    try:
        return _found(ast.parse(expression, mode="eval").body, scope)
    except SyntaxError:
        return _UNKNOWN


def _found(tree: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression; ``_UNKNOWN`` if that would run foreign code."""
    if isinstance(tree, ast.Name):
        return scope.get(tree.id, _UNKNOWN)
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant):
        held, key = _found(tree.value, scope), tree.slice.value
        if isinstance(held, Mapping) or type(held) in (list, tuple, torch.Size):
            try:
                return held[key]
            except (KeyError, IndexError, TypeError):
                return _UNKNOWN
        return _UNKNOWN
    if isinstance(tree, ast.Attribute):
        return _attribute(_found(tree.value, scope), tree.attr)
    if isinstance(tree, ast.Call):
        return _called(tree, scope)
    return _UNKNOWN


def _called(tree: ast.Call, scope: Mapping[str, Any]) -> Any:
    if isinstance(tree.func, ast.Name) and tree.func.id == "len" and len(tree.args) == 1:
        held = _found(tree.args[0], scope)
        # By exact type, as a subclass may have a `__len__` of its own.
        return len(held) if type(held) in (list, tuple, dict, set, str) else _UNKNOWN
    if isinstance(tree.func, ast.Attribute) and tree.func.attr in ("size", "stride") and not tree.args:
        tensor = _found(tree.func.value, scope)
        if isinstance(tensor, torch.Tensor):
            # A subclass's `__torch_function__` would be foreign code.
            with torch._C.DisableTorchFunctionSubclass():
                return tuple(tensor.shape) if tree.func.attr == "size" else tuple(tensor.stride())
    return _UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    if owner is _UNKNOWN:
        return _UNKNOWN
    if isinstance(owner, types.FunctionType) and name == "__code__":
        return owner.__code__
    try:
        # The class's own `__getattribute__` and properties would be foreign code.
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return _UNKNOWN
    if name in own:
        return own[name]
    if isinstance(owner, nn.Module):
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in own.get(kind, {}):
                return own[kind][name]
    for cls in type(owner).__mro__:
        value = vars(cls).get(name, _UNKNOWN)
        if value is not _UNKNOWN:
            return value if type(value) in (bool, int, float, str, type(None)) else _UNKNOWN
    return _UNKNOWN
