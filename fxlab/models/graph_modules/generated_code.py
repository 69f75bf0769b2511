"""The Python of fxlab's graph modules: code whose names nothing shadows, and the nodes of each line.

torch writes constants and functions into the code of a graph under fixed names (``nan``, ``torch``,
``slice``), attributes as ``self.name``, and other arguments by their ``repr``. That is wrong if an input is
named ``nan``, and a syntax error if a module is named ``class`` or an argument is a function. The code of
such graphs is written here; that of all others is exactly torch's. Only torch knows the node of a line, and
keeps it in private attributes of the result of ``Graph.python_code``, which are read here and nowhere else.
"""

import enum
import itertools
import keyword
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen, PythonCode, magic_methods

from fxlab.base.torch_private import (
    HigherOrderOperator,
    OpOverload,
    PyTreeCodeGen,
    can_write_code,
    custom_builtins,
    illegal_names,
    is_from_torch,
    qualified_name,
)
from fxlab.models.graph_modules.bodies import all_bodies
from fxlab.values.tensors import SYMBOLIC

_PRIMITIVE = (bool, int, float, str, bytes, NoneType, EllipsisType)
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_OPERATORS = (OpOverload, HigherOrderOperator)
_FIXED = custom_builtins.keys() | {"slice", "getattr", "range", "Ellipsis"}
"""Names that torch writes into code without checking for others of that name."""


def protect(graph: Graph, *, always: bool = False) -> Graph:
    """Keep names in the next generated code of a graph from being shadowed; return the graph.

    ``always``: whether that code is written here even where torch's is known to be right.
    """
    codegen = graph._codegen
    # A subclass of somebody else's writes code of its own, and stays.
    safe = type(codegen) if isinstance(codegen, _Protected) and always else _SAFE.get(type(codegen))
    if safe is not None:
        protected: Any = safe.__new__(safe)
        vars(protected).update(vars(codegen))
        protected.is_written_here = always
        graph._codegen = protected
    return graph


class _Protected(CodeGen):
    """Mixed into torch's generators of code."""

    is_written_here = False
    """Whether none of the code is torch's."""

    def _gen_python_code(self, nodes: Any, root_module: str, namespace: Any, **options: Any) -> PythonCode:
        listed = list(nodes)
        is_here = self.is_written_here or _may_be_shadowed(listed, root_module)
        if self._body_transformer is None and is_here:
            return _Writer(self, listed, root_module, namespace).written()
        return super()._gen_python_code(nodes, root_module, namespace, **options)


class SafeCodeGen(_Protected, CodeGen):
    """For a graph whose inputs are the parameters of the function."""


class SafePyTreeCodeGen(_Protected, PyTreeCodeGen):
    """For a graph that takes the leaves of nested inputs."""


_SAFE: dict[type[CodeGen], type[CodeGen]] = (
    {CodeGen: SafeCodeGen, PyTreeCodeGen: SafePyTreeCodeGen} if can_write_code else {}
)


def _may_be_shadowed(nodes: list[Node], root: str) -> bool:
    """Tell whether torch's code for a graph may be wrong."""
    if any(map(_is_unsafe, nodes)) or any(node.name == root for node in nodes if node.op != "placeholder"):
        return True
    inputs = [node for node in nodes if node.op == "placeholder"]
    renamed = {raw for node in inputs if (raw := _parameter(node)) != node.name}
    if not renamed:
        return False
    called = (qualified_name(node.target) for node in nodes if node.op == "call_function")
    names = {name.replace(".", "_") for name in called}
    return not renamed.isdisjoint(_FIXED | names | {node.name for node in inputs})


def _parameter(node: Node) -> str:
    """Return the name by which the input of a graph is passed."""
    return str(node.target).replace("*", "")


def _is_unsafe(node: Node) -> bool:
    """Return whether torch's code generator may print this node wrongly."""
    parts: tuple[object, ...] = (node.args, node.kwargs)
    if node.op == "placeholder":
        return not _is_name(_parameter(node)) or _is_opaque(parts)
    if node.op == "call_function" and not _is_found(node.target):
        return True
    if is_written_otherwise(node):
        return True
    paths = [str(node.target)] if node.op in ("call_module", "get_attr", "call_method") else []
    if node.target is getattr:
        paths += [str(name) for name in node.args[1:2]]
    if not all(_is_attribute(name) for path in paths for name in path.split(".")):
        return True
    return not all(map(_is_name, node.kwargs)) or _is_opaque(parts)


def is_written_otherwise(node: Node) -> bool:
    """Return whether torch writes a node as valid Python that computes something else.

    ``-2 ** x`` is ``-(2 ** x)``.
    """
    return node.target is operator.pow and repr(node.args[0]).startswith("-")


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_attribute(text: str) -> bool:
    """Tell whether torch can write an attribute: by its name, or in double quotes."""
    is_quoted = not text.isidentifier() and text.isprintable() and not {'"', "\\"}.intersection(text)
    return _is_name(text) or is_quoted


@lru_cache(maxsize=4096)
def _is_found(target: Any) -> bool:
    """Tell whether the name of a function leads to it, or the code names it by itself."""
    name = getattr(target, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        return False
    return not is_from_torch(target) or _at(qualified_name(target)) is target


def _at(qualified_name: str) -> Any:
    """Return the value of a name that begins with ``torch``."""
    _, *names = qualified_name.split(".")
    found: Any = torch
    for name in names:
        found = getattr(found, name, None)
    return found


def _is_opaque(value: object, *, is_in_dict: bool = False) -> bool:
    """Tell whether an argument holds a value that its ``repr`` does not reproduce."""
    if isinstance(value, complex):
        return True  # ``-0j`` reads as another zero, and ``nan`` in it as a name
    if isinstance(value, Node) or type(value) in _PRIMITIVE or isinstance(value, (*_OF_TORCH, *SYMBOLIC)):
        return False
    if isinstance(value, tuple | list):
        return (is_in_dict and hasattr(value, "_fields")) or any(
            _is_opaque(part, is_in_dict=is_in_dict) for part in value
        )
    if isinstance(value, slice):
        return any(map(_is_opaque, (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return any(_is_opaque(part, is_in_dict=True) for part in (*value, *value.values()))
    if isinstance(value, range):
        return False
    return is_in_dict or not isinstance(value, (*_OPERATORS, enum.Enum))


class _Writer:
    """Writes the code of one graph; ``root``: the name of its module there."""

    def __init__(self, codegen: CodeGen, nodes: list[Node], root: str, namespace: Any) -> None:
        self._codegen = codegen
        self._nodes = nodes
        self._namespace = namespace
        self._globals: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._taken = {_parameter(node) for node in nodes if node.op == "placeholder"}
        self._taken |= {root, *getattr(getattr(codegen, "pytree_info", None), "orig_args", ())}
        self._root = root
        for node in nodes:  # an input keeps its name if it can
            if node.op == "placeholder" and node.name == _parameter(node) != root:
                repr(node)
        namespace._used_names |= self._taken

    def written(self) -> PythonCode:
        """Return the code."""
        parameters: list[str] = []
        lines: list[str] = []
        indices: list[int] = []
        unused = _last_uses(self._nodes)
        for index, node in enumerate(self._nodes):
            line = self._input(node, parameters) if node.op == "placeholder" else self._line(node)
            gone = [] if node.op in ("placeholder", "output") else [*map(repr, unused.get(node, ())), "None"]
            if line:
                lines.append(f"    {line}" + (f";  {' = '.join(gone)}" if len(gone) > 1 else ""))
                indices.append(index)
        wrapped = [n for n in self._nodes if n.op == "call_function" and n.meta.get("is_wrapped")]
        wraps = "\n".join(
            f'{self._global("wrap", torch.fx.wrap)}("{name}")'
            for name in dict.fromkeys(self._function(node.target) for node in wrapped)
        )
        prologue = self._with_modules_of_pytrees(self._codegen.gen_fn_def(parameters, ""))
        begin = prologue.count("\n") + 1
        code = PythonCode(
            "\n".join(["", wraps, "", prologue, *(lines or ["    pass"])]),
            self._globals,
            {begin + line: index for line, index in enumerate(indices)},
        )
        # torch maps the lines of a traceback to nodes from there on.
        code._prologue_start = wraps.count("\n") + 4
        return code

    def _input(self, node: Node, parameters: list[str]) -> str:
        """Add the parameter of an input, and return the statement for its local variable, if it needs one."""
        name = _parameter(node)
        name = name if _is_name(name) else repr(node)
        stars = "*" * str(node.target).count("*")
        type_name = "" if node.type is None else f" : {self._global('type', node.type)}"
        default = f" = {self._value(node.args[0])}" if node.args else ""
        parameters.append(f"{stars}{name}{type_name}{default}")
        return "" if name == repr(node) else f"{node!r} = {name}"

    def _line(self, node: Node) -> str:
        if node.op == "output":
            value = _Text(self._value(node.args[0]))
            return self._with_modules_of_pytrees(self._codegen.generate_output(value))
        return f"{node!r} = {self._call(node)}"

    def _call(self, node: Node) -> str:
        if node.op == "get_attr":
            return self._attribute(self._root, str(node.target))
        if node.op == "call_module":
            called = self._attribute(self._root, str(node.target))
            return f"{called}({self._arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            called = self._attribute(self._value(node.args[0]), str(node.target))
            return f"{called}({self._arguments(node.args[1:], node.kwargs)})"
        target: Any = node.target
        if getattr(target, "__module__", "") == "_operator" and target.__name__ in magic_methods:
            written = map(self._value, node.args)
            operands = [f"({text})" if text.startswith("-") else text for text in written]
            return magic_methods[target.__name__].format(*operands)
        if target is getattr and len(node.args) == 2:
            return self._attribute(self._value(node.args[0]), str(node.args[1]))
        return f"{self._function(target)}({self._arguments(node.args, node.kwargs)})"

    def _arguments(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
        written = [self._value(value) for value in args]
        named = list(itertools.takewhile(_is_name, kwargs))
        written += [f"{name} = {self._value(kwargs[name])}" for name in named]
        others = {name: value for name, value in kwargs.items() if name not in named}
        return ", ".join([*written, f"**{self._value(others)}"] if others else written)

    def _attribute(self, owner: str, path: str) -> str:
        for name in path.split("."):
            if _is_name(name):
                owner = f"{owner}.{name}"
            else:
                owner = f"{self._global('getattr', getattr)}({owner}, {name!r})"
        return owner

    def _function(self, target: Any) -> str:
        """Return the name of a function in the code."""
        if (name := getattr(target, "__name__", "")) and illegal_names.get(name) is target:
            return self._global(name, target)
        if not _is_found(target):
            return self._global(_hint(target), target)
        name = qualified_name(target)
        return self._of_torch(name) if is_from_torch(target) else self._global(name, target)

    def _of_torch(self, text: str) -> str:
        """Return a text that begins with ``torch``, with the code's own name for it."""
        return self._global("torch", torch) + text.removeprefix("torch")

    def _value(self, value: Any) -> str:
        """Return an argument as Python."""
        if isinstance(value, float) and not math.isfinite(value):
            name = self._global("nan", math.nan) if value != value else self._global("inf", math.inf)
            return f"-{name}" if value < 0 else name
        if isinstance(value, Node) or type(value) in _PRIMITIVE or isinstance(value, SYMBOLIC):
            return "..." if value is ... else repr(value)
        if isinstance(value, torch.device):
            return self._global("device", torch.device) + repr(value).removeprefix("device")
        if isinstance(value, _OF_TORCH):
            return self._of_torch(repr(value))
        if isinstance(value, _OPERATORS):
            return self._function(value)
        if isinstance(value, slice):
            parts = ", ".join(map(self._value, (value.start, value.stop, value.step)))
            return f"{self._global('slice', slice)}({parts})"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self._global(type(value).__name__, type(value))}({', '.join(map(self._value, value))})"
        if isinstance(value, tuple):
            parts = ", ".join(map(self._value, value))
            return f"({parts},)" if len(value) == 1 else f"({parts})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, dict):
            items = (f"{self._value(key)}: {self._value(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, enum.Enum):
            return f"{self._global(type(value).__name__, type(value))}.{value.name}"
        return self._global(_hint(value), value)

    def _global(self, hint: str, value: Any) -> str:
        """Return the name of an object in the code: ``hint`` if it is free."""
        if id(value) not in self._names:
            is_free = illegal_names.get(hint) is value and hint not in self._taken
            name: str = hint if is_free else self._namespace.create_name(hint, None)
            self._names[id(value)], self._globals[name] = name, value
        return self._names[id(value)]

    def _with_modules_of_pytrees(self, text: str) -> str:
        """Return torch's code for nested inputs and outputs, with names that nothing shadows."""
        for name in ("fx_pytree", "pytree") if isinstance(self._codegen, PyTreeCodeGen) else ():
            instead = self._global(name, custom_builtins[name].obj)
            text = re.sub(rf"(?<![\w.]){name}\.", f"{instead}.", text)
        return text


class _Text(str):
    """Stands for an argument in written form."""

    __repr__ = str.__str__


def _hint(value: Any) -> str:
    """Return a name for an object that has none of its own."""
    named = getattr(value, "func", value)  # the function of a functools.partial
    name = getattr(named, "__name__", None)
    return str(name) if isinstance(name, str) and name != "<lambda>" else type(value).__name__


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """Return the values that are not needed after a node has run, by node."""
    gone: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(nodes):
        values = [value for value in node.all_input_nodes if value not in seen]
        seen.update(values)
        gone[node] = values if node.users or node.op == "output" else [*values, node]
    return gone


@dataclass(frozen=True)
class GeneratedCode:
    """The ``forward`` of a graph module in lines, and those of its bodies, below a line with the path."""

    lines: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    """Names of the nodes of each line: the computed node, or all inputs in the line that names them."""
    is_linked: bool
    """Whether torch has told the nodes of lines."""


def generated_code(graph_module: GraphModule) -> GeneratedCode:
    """Return the Python of the present graph and of its bodies, with the usual names of nodes.

    ``graph_module.code`` is that of its last ``recompile``.
    """
    found = _code_of_graph(graph_module, "")
    lines, nodes, is_linked = list(found.lines), list(found.nodes), found.is_linked
    for prefix, body in all_bodies(graph_module).items():
        code = _code_of_graph(body, prefix)
        lines += ["", f"# {prefix.removesuffix('/')}", *code.lines]
        nodes += [(), (), *code.nodes]
        is_linked = is_linked and code.is_linked
    return GeneratedCode(tuple(lines), tuple(nodes), is_linked)


def _code_of_graph(graph_module: GraphModule, prefix: str) -> GeneratedCode:
    graph = graph_module.graph
    codegen = graph._codegen
    try:
        written = protect(graph).python_code("self")
    finally:
        # protect() exchanged it, and the user's graph must stay the same.
        graph._codegen = codegen
    lines = written.src.split("\n")
    nodes = _nodes_of_lines(written, len(lines), list(graph.nodes))
    filled = [number for number, line in enumerate(lines) if line.strip()]
    span = slice(filled[0], filled[-1] + 1) if filled else slice(0, 0)
    shown = tuple(lines[span])
    if nodes is None:
        return GeneratedCode(shown, ((),) * len(shown), is_linked=False)
    named = tuple(tuple(f"{prefix}{name}" for name in names) for names in nodes[span])
    return GeneratedCode(shown, named, is_linked=True)


def _nodes_of_lines(written: Any, count: int, nodes: Sequence[Any]) -> list[tuple[str, ...]] | None:
    """Return the names of the nodes of each line; ``None`` if torch does not tell, or is wrong."""
    numbers, first = getattr(written, "_lineno_map", None), getattr(written, "_prologue_start", 0)
    # Numbers count from the line that defines the function; the last one must be the last line.
    if not numbers or first < 1 or first + max(numbers) != count:
        return None
    found: list[tuple[str, ...]] = [()] * count
    inputs = tuple(node.name for node in nodes if node.op == "placeholder")
    found[first - 1 : first - 1 + min(numbers)] = [inputs] * min(numbers)
    for number, node in numbers.items():
        if node is not None and not 0 <= node < len(nodes):
            return None
        found[first - 1 + number] = () if node is None else (nodes[node].name,)
    return found
