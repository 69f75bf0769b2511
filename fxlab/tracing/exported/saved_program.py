"""Programs in files of ``torch.export.save``, checked for code and loaded, for all that take such files."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from fxlab.base.torch_logs import torch_logs_silent
from fxlab.base.torch_private import HigherOrderOperator, OpOverload

_TENSOR = re.compile(r"(weight|tensor)_\d+")
_TENSORS = re.compile(rf"data/(weights|constants)/{_TENSOR.pattern}")
_PICKLES = re.compile(r"data/(sample_inputs|weights|constants)/\w+\.pt")
_TABLES = re.compile(r"(models|data/weights|data/constants)/\w+\.json")
_WITHOUT_CODE = re.compile(r"archive_format|archive_version|byteorder|\.data/\w+|version|extra/.*")
_OLDER = "version"
"""A further record in archives of torch 2.7 and older, which are read in another way."""
_ARITHMETIC = {
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos", "abs", "eq", "ne", "lt", "le",
    "gt", "ge", "and_", "or_", "xor", "not_", "invert", "lshift", "rshift", "getitem",
}  # fmt: skip
"""Functions of ``operator`` that a graph may call."""
_ON_SIZES = re.compile(r"torch\._?sym_\w+|math\.[a-z]\w*")
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?")
_OF_SIZES = {
    "FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt", "FloorToInt",
    "CeilDiv", "LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv",
    "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt", "RoundDecimal",
    "ToFloat", "Identity", "Max", "Min", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs",
    "floor", "ceiling", "Integer", "Float", "Rational", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or",
    "Symbol", "Add", "Mul", "Pow", "Equality", "Unequality", "StrictLessThan", "LessThan",
    "StrictGreaterThan", "GreaterThan",
}  # fmt: skip
"""Functions in expressions of sizes."""
_NAMES = {"name": re.compile(r"\w*"), "as_name": re.compile(r"\w*")}
_PATHS = re.compile(r"\w+_name|\w*fqn")
_PATH = re.compile(r"[\w./-]*")
"""Names and paths are written into the code of a graph, so they must hold nothing else."""
_WORD = re.compile(r"[\w.+-]+")
_EXPRESSION = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Load, ast.Call,
    ast.Constant, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


class MayRunCodeError(ValueError):
    """Loading a file could run code that the file brings.

    ``why``: the part of the file that may run code. ``path``: the file, where it is known.
    """

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(
            f"{path}: loading it could run code that the file brings ({why}). If you trust where it "
            "comes from, load it "
            "with torch.export.load and give the program."
        )
        self.why = why

    def of(self, path: str) -> MayRunCodeError:
        """Return the error with the file's name."""
        return MayRunCodeError(self.why, path)


def check_is_data(archive: io.BytesIO) -> None:
    """Raise ``MayRunCodeError`` unless loading an archive is known to run none of its code.

    Records are read with the reader that will load them. Pickles have to be loadable as weights alone,
    expressions have to be arithmetic, and the targets of calls in the graph have to be operators.
    """
    archive.seek(0)
    if _OLDER in zipfile.ZipFile(archive).namelist():
        raise MayRunCodeError("it was written by torch 2.7 or older, whose files are pickles")
    archive.seek(0)
    reader = torch._C.PyTorchFileReader(archive)
    for name in reader.get_all_records():
        if _PICKLES.fullmatch(name):
            _check_pickle(reader.get_record(name), name)
        elif _TABLES.fullmatch(name):
            _check_table(reader.get_record(name), name, reader)
        elif not _TENSORS.fullmatch(name) and not _WITHOUT_CODE.fullmatch(name):
            raise MayRunCodeError(f"it holds {name[:100]!r}, which is no part of a plain program")


def _check_pickle(data: bytes, name: str) -> None:
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # the data may make the reader raise anything
        raise MayRunCodeError(f"{name} is a pickle of other objects than tensors and containers") from error


def _check_table(data: bytes, name: str, reader: Any) -> None:
    for entry in _mappings(json.loads(data)):
        if entry.get("use_pickle"):
            file = str(entry.get("path_name"))
            _check_pickle(reader.get_record(f"{name.rpartition('/')[0]}/{file}"), file)
        for key, value in entry.items():
            if why := _why_not_data(key, value):
                raise MayRunCodeError(why)


def _why_not_data(key: str, value: Any) -> str:
    if key == "path_name" and not _TENSOR.fullmatch(str(value)):
        return f"it holds {str(value)[:100]!r}, which is no tensor"
    if key == "expr_str" and not _is_arithmetic(value):
        return f"an expression is no arithmetic: {str(value)[:100]!r}"
    if key in ("target", "as_operator") and isinstance(value, str) and not _is_operator(value):
        return f"it calls {value[:100]!r}, which is no operator of torch.ops"
    if key == "range_constraints" and not all(map(_is_arithmetic, value)):
        return "a size is no expression of sizes"
    if key == "__enum__":
        return "it imports modules to find an enumeration"
    return "" if _are_names(key, value) else f"a name in it is none: {str(value)[:100]!r}"


def _are_names(key: str, value: Any) -> bool:
    if key in ("in_spec", "out_spec", "forward_arg_names"):
        return all(map(_PATH.fullmatch, _texts(value)))
    if isinstance(value, str) and (key in _NAMES or _PATHS.fullmatch(key)):
        return _NAMES.get(key, _PATH).fullmatch(value) is not None
    return True


def _is_text(value: Any) -> bool:
    """Tell whether all values of a mapping are texts: source lines and names of nodes, to be shown."""
    return isinstance(value, dict) and all(isinstance(inner, str) for inner in value.values())


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts inside a value; of a text that is JSON, those inside of it."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            inner = _inside(value)
            if inner is None:
                yield value
            else:
                pending.append(inner)


def _inside(text: str) -> Any:
    """Return the list or mapping that a text says in JSON, if it says one."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings inside a value, also those in JSON that is written in strings."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending += [inner for key, inner in value.items() if key != "metadata" or not _is_text(inner)]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and (inner := _inside(value)) is not None:
            pending.append(inner)


def _is_arithmetic(text: Any) -> bool:
    """Tell whether a text is an expression of names, numbers and the functions of sizes."""
    if not isinstance(text, str):
        return False
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(map(_is_plain, nodes))


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _OF_SIZES
    if isinstance(node, ast.Constant):
        # The name of a symbol, or digits of a number: no function above evaluates text.
        return isinstance(node.value, bool | int | float) or _WORD.fullmatch(str(node.value)) is not None
    return isinstance(node, _EXPRESSION)


def _is_operator(target: str) -> bool:
    """Tell whether the target of a call is an operator, which ``torch.ops.load_library`` is not."""
    if target.startswith("_operator."):
        return target.removeprefix("_operator.") in _ARITHMETIC
    if _ON_SIZES.fullmatch(target):
        return True
    found = _OPERATOR.fullmatch(target)
    if not found or "from_file" in target:
        return False
    namespace, name, overload = found.groups()
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    operator = getattr(packet, overload, None) if overload else packet
    return isinstance(operator, OpOverload | HigherOrderOperator)


SUFFIX = ".pt2"
_BROKEN = "{path}: expected a program saved by torch.export.save ({suffix}), but {what}. Save it again."


def load_program(path: str | os.PathLike[str], *, trusted: bool = False) -> ExportedProgram:
    """Load a program that ``torch.export.save`` wrote, without running code that the file brings.

    ``torch.export.load`` evaluates expressions and may unpickle any object. A file that needs neither is
    loaded; others only if they are trusted. Raises OSError if the file cannot be read; ValueError if it holds
    no program, or a broken one; MayRunCodeError if loading it could run code, and it is not trusted.
    """
    file = Path(path)
    data = io.BytesIO(file.read_bytes())  # one copy for checking and loading: the file may change meanwhile
    if not zipfile.is_zipfile(data):
        raise ValueError(_BROKEN.format(path=file, suffix=SUFFIX, what="it is no archive, or a part of one"))
    try:
        if not trusted:
            check_is_data(data)
        data.seek(0)
        # Torch writes tracebacks of errors that are raised anyhow, and warns about itself.
        with torch_logs_silent("torch.export"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            return torch.export.load(data)
    except MayRunCodeError as error:
        raise error.of(str(file)) from error.__cause__
    except Exception as error:  # torch's readers may raise anything for unexpected contents
        lines = str(error).strip().splitlines() or [""]
        # torch writes the reason into its log, and raises this.
        words = (
            "no program in it"
            if "warnings above" in lines[0]
            else f"{type(error).__name__}: {lines[0][:200]}"
        )
        what = f"it cannot be read ({words})"
        raise ValueError(_BROKEN.format(path=file, suffix=SUFFIX, what=what)) from error
