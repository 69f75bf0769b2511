"""Facts about a node, as every screen, table and search gives them: its target in words, result, module."""

import builtins
import linecache
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import fx, nn

from fxlab.base.torch_private import HigherOrderOperator, OpOverload, OpOverloadPacket
from fxlab.values.nested import ObjectParts, class_of, tensors_inside
from fxlab.values.tensors import known_number

DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip
"""Short names of dtypes, where room is scarce."""
MOST_VALUES = 50
MOST_FRAMES = 40
CONTEXT_LINES = 3

_NAMESPACES = {
    "F": torch.nn.functional, "torch": torch, "torch.linalg": torch.linalg, "torch.special": torch.special,
    "torch.fft": torch.fft, "operator": operator, "math": math, "": builtins,
}  # fmt: skip
"""Where people import functions from, the usual place first, and how code writes it."""
_WRITTEN = {
    "torch.nn.functional": "F", "torch._tensor": "torch", "_operator": "operator", "builtins": "",
    "__main__": "",
}  # fmt: skip
"""Modules that code does not write as a function's ``__module__`` does."""
_PRIVATE = {"torch._C._nn": "F", "torch._C._VariableFunctions": "torch"}
"""Modules of functions for which a public module has one of the same name."""
_KINDS_OF_STATE = ("parameter", "buffer", "state", "number", "ParamAOTInput", "BufferAOTInput")
"""Of inputs: those of :class:`fxlab.models.running.step_record.StepInput`, and names of classes of torch."""
_OF_TORCH = "_VariableFunctionsClass."
"""The prefixes of the qualified names of functions such as ``torch.cat``."""
_CAPTURED_ROOT = re.compile(r"^(?:[LG]\['\w+'\]\.?|L__self__+)")
"""The prefixes that Dynamo and ``torch.export`` put before the path of a module or parameter."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]*)$', re.M)
_MISSING = object()
_KINDS = {"placeholder": "input", "get_attr": "attribute", "output": "output"}
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNITS = re.compile(r"[A-Z]{1,2}[a-z]?LU(?=\d?$)")
"""Units such as ``ReLU``, which are one word, as in the names of their functions."""
_DIMENSIONS = re.compile(r"(?<=[a-z]) ?[123]d$")


def target_text(node: fx.Node) -> str:
    """Return a node's target: a path, the name of a method, or a function as :func:`function_text` does."""
    if not isinstance(node.target, str):
        return function_text(node.target)
    if node.op == "placeholder" and isinstance(lifted := getattr(node.meta.get("desc"), "target", None), str):
        return model_path(lifted)
    return node.target


def state_path(placeholder: fx.Node) -> str | None:
    """Return the path of the parameter or buffer that an input is, or belongs to; ``None`` for other inputs.

    AOTAutograd and :func:`fxlab.trace_step` note it. It is empty for a number of an optimizer.
    """
    described = placeholder.meta.get("desc") if placeholder.op == "placeholder" else None
    if described is None:
        return None
    kind = getattr(described, "kind", type(described).__name__)
    if kind in _KINDS_OF_STATE:
        return model_path(str(getattr(described, "owner", described.target)))
    return None


def elements_of_parameter(placeholder: fx.Node) -> int:
    """Return the number of elements of an input that is a parameter; 0 for any other."""
    described = placeholder.meta.get("desc")
    shape = known_shape(placeholder)
    if getattr(described, "kind", type(described).__name__) not in ("parameter", "ParamAOTInput"):
        return 0
    return math.prod(int(known_number(size)) for size in (shape or (0,)))


def is_backward(node: fx.Node) -> bool:
    """Tell whether a node was added by autograd, or computed for it, as torch notes."""
    meta = node.meta
    if meta.get("autograd_backward"):
        return True
    if "partitioner_tag" in meta:
        return str(meta["partitioner_tag"]) in ("is_backward", "must_be_in_backward")
    return bool(meta.get("fwd_nn_module_stack")) and not meta.get("nn_module_stack")


def short_name(path: str) -> str:
    """Return the last part of a path, together with the one before where the last is only a number."""
    parts = path.rsplit(".", 2)
    return ".".join(parts[-2:]) if parts[-1][:1].isdigit() else parts[-1]


def model_path(path: str) -> str:
    """Return a path without the prefixes of tools, such as ``L['self'].`` and ``L__self___``."""
    return _CAPTURED_ROOT.sub("", path)


def kind_text(node: fx.Node, modules: Mapping[str, nn.Module]) -> str:
    """Return the kind of a node in words, by which nodes are counted: ``linear``, ``batch norm``, ``add``.

    A module and the function that does the same are of one kind, in however many dimensions. ``modules``:
    those of its graph module, as :func:`modules_by_path` returns them.
    """
    if node.op == "call_module" and str(node.target) in modules:
        name = _UNITS.sub(lambda found: found[0].title(), type(modules[str(node.target)]).__name__)
        name = _WORD_STARTS.sub("_", name)
    elif isinstance(node.target, OpOverload):
        name = str(node.target.overloadpacket.__name__)
    else:
        name = _KINDS.get(node.op) or target_text(node).rpartition(".")[2]
    words = [word if word.isupper() else word.lower() for word in name.split("_") if word]
    return _DIMENSIONS.sub("", " ".join(words)) or "node"


def function_text(function: Any) -> str:
    """Return a function's name as code that imports it in the usual way writes it.

    However torch reaches a function, it has one name: ``torch._C._nn.gelu`` is ``F.gelu``. An object that is
    called has its own name, or that of its class.
    """
    if isinstance(function, OpOverload | OpOverloadPacket):
        return str(function).removesuffix(".default")
    if isinstance(function, HigherOrderOperator):
        return f"{function.namespace}.{function.__name__}"
    if id(function) in _public_names():
        return _public_names()[id(function)][1]
    name = str(getattr(function, "__qualname__", "")).removeprefix(_OF_TORCH)
    if not name:
        return str(getattr(function, "__name__", "") or type(function).__qualname__)
    owner = getattr(function, "__objclass__", None)
    if isinstance(owner, type) and issubclass(torch.Tensor, owner):
        return f"torch.Tensor.{function.__name__}"
    module = str(getattr(function, "__module__", "") or "")
    written = _PRIVATE.get(module, "")
    if not written or not hasattr(_NAMESPACES[written], name):
        written = _WRITTEN.get(module, module)
    return f"{written}.{name}" if written else name


@lru_cache(1)
def _public_names() -> dict[int, tuple[Any, str]]:
    """Return the functions of public modules by their identity, each with its text."""
    names: dict[int, tuple[Any, str]] = {}
    for written, module in _NAMESPACES.items():
        functions = [(name, value) for name, value in vars(module).items() if _is_public(name, value, module)]
        # Of two names in one module, the one that the function itself has.
        for name, value in sorted(functions, key=lambda pair: getattr(pair[1], "__name__", "") != pair[0]):
            names.setdefault(id(value), (value, f"{written}.{name}" if written else name))
    return names


def _is_public(name: str, value: Any, module: ModuleType) -> bool:
    if name.startswith("_") or not callable(value) or isinstance(value, type):
        return False
    origin = getattr(value, "__module__", None) or module.__name__
    packages = [str(of).lstrip("_").partition(".")[0] for of in (origin, module.__name__)]
    return packages[0] == packages[1]


def known_result(node: fx.Node) -> Any:
    """Return the traced result of a node: a fake tensor, a ``TensorMetadata``, a number, or ``None``."""
    meta = node.meta
    for key in ("val", "tensor_meta", "example_value"):  # the last is Dynamo's
        if (value := meta.get(key)) is not None:
            return value
    return None


def known_shape(node: fx.Node) -> tuple[Any, ...] | None:
    """Return the shape of a node's result, where it is known to be a tensor; sizes may be symbolic."""
    shape = getattr(known_result(node), "shape", None)
    return None if shape is None else tuple(shape)


def shape_and_dtype(node: fx.Node) -> tuple[tuple[Any, ...] | None, str | None]:
    """Return the shape of a node's result, in the run that was traced, and the name of its dtype."""
    value = known_result(node)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None, None
    return tuple(map(known_number, value.shape)), dtype_name(value.dtype)


def dtype_name(dtype: Any) -> str:
    """Return a dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype | None:
    """Return the dtype of a name, with or without ``torch.``; ``None`` if torch has none of this name."""
    found = getattr(torch, name.removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else None


def value_rows(node: fx.Node) -> list[tuple[str, str]]:
    """Return shape and dtype of each tensor in a node's result, or the value and type of a number."""
    return _value_rows(known_result(node))


def result_text(node: fx.Node) -> str:
    """Return a node's result in few characters, such as ``2×12 f32``; empty if it is not known."""  # noqa: RUF002
    value = known_result(node)
    return "" if value is None or node.op == "output" else _value_text(value)


def module_path(node: fx.Node) -> str:
    """Return the path of the module that a node belongs to; empty if that is not known."""
    stack = _module_stack(node)
    if stack:
        return stack[-1][0]
    return str(node.target) if node.op == "call_module" else ""


def nodes_at(graph: fx.Graph, name: str) -> list[fx.Node]:
    """Return the node of a name, or those of the module at a path; empty if there is neither."""
    named = [node for node in graph.nodes if node.name == name]
    inside = (node for node in graph.nodes if f"{module_path(node)}.".startswith(f"{name}."))
    return named or [node for node in inside if name]


def unknown_node(graph: fx.Graph, name: str) -> ValueError:
    """Return the error for the name of a node that a graph does not have, with the nearest that it has."""
    from fxlab.base.hints import nearest

    known = [text for node in graph.nodes for text in (node.name, module_path(node)) if text]
    return ValueError(f"node: the graph has no node or module named {name!r}.{nearest(name, known)}")


def class_name(node: fx.Node) -> str:
    """Return the qualified class of the module in whose forward a node was recorded; empty if unknown."""
    owner: Any = next((owner for _, owner in reversed(_module_stack(node))), "")
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner)


def class_names(node: fx.Node, called: nn.Module | None = None) -> str:
    """Return the bare names of the classes around a node, and of that of the module that it calls."""
    owners = [owner for _, owner in _module_stack(node)] + ([] if called is None else [type(called)])
    return " ".join(dict.fromkeys(map(bare_class_name, owners)))


def bare_class_name(owner: Any) -> str:
    """Return a class's name without its module; the class may be given by its qualified name."""
    return (owner.__qualname__ if isinstance(owner, type) else str(owner)).rpartition(".")[2]


def stack_entry(key: str, value: Any) -> tuple[str, Any]:
    """Return the path and the class of an entry of ``nn_module_stack``; the root has an empty path."""
    path, owner = value if isinstance(value, tuple) and len(value) == 2 else (key, "")
    return model_path(str(path)), owner


def module_stack(node: fx.Node) -> Mapping[str, Any]:
    """Return the module calls around a node; of one that computes gradients, those of the forward pass.

    Tools that annotate nodes with the path of a module alone write it into ``custom["module_fqn"]``.
    """
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        if isinstance(stack := node.meta.get(key), dict) and stack:
            return stack
    custom = node.meta.get("custom")
    path = custom.get("module_fqn") if isinstance(custom, dict) else None
    return _stack_of(path) if isinstance(path, str) and path else {}


@lru_cache(maxsize=4096)
def _stack_of(path: str) -> dict[str, Any]:
    return {around: (around, "") for around in modules_around(f"{path}.")}


def modules_around(path: str) -> list[str]:
    """Return the paths of the modules around a tensor, but of lists, in which each module has a number."""
    names = path.split(".")[:-1]
    return [
        ".".join(names[:length])
        for length in range(1, len(names) + 1)
        if length == len(names) or not names[length].isdigit()
    ]


def ancestry(node: fx.Node) -> list[tuple[int, str, str]]:
    """Return the graph, name and target of a node and of those it was made from, the nearest first."""
    found = [(id(node.graph), node.name, str(node.target))]
    pending = list(node.meta.get("from_node") or ())
    while pending:
        source = pending.pop(0)
        found.append((getattr(source, "graph_id", 0), str(source.name), str(source.target)))
        pending += getattr(source, "from_node", None) or ()
    return found


def attribute_at(module: nn.Module, path: str, default: Any = _MISSING) -> Any:
    """Return a parameter, buffer, constant or module; AttributeError if there is neither it nor a default."""
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name) if default is _MISSING else getattr(value, name, default)
    return value


def modules_by_path(graph_module: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a graph module by all of their paths: one that is shared has several."""
    return dict(graph_module.named_modules(remove_duplicate=False))


def parameters_of(node: fx.Node, modules: Mapping[str, nn.Module]) -> list[nn.Parameter]:
    """Return the parameters that a node holds, each once."""
    if node.op == "call_module":
        module = modules.get(str(node.target))
        return [] if module is None else parameters_in(module)
    if node.op == "get_attr":
        path, _, name = str(node.target).rpartition(".")
        value = getattr(modules.get(path), name, None)
        return [value] if isinstance(value, nn.Parameter) else []
    return []


def parameters_in(module: nn.Module) -> list[nn.Parameter]:
    """Return a module's parameters; most modules that are called hold no others, and are read directly."""
    if module._modules:
        return list(module.parameters())
    return list({id(value): value for value in module._parameters.values() if value is not None}.values())


def parameter_count(node: fx.Node, modules: Mapping[str, nn.Module]) -> int:
    """Return the number of elements in the parameters that a node holds."""
    return sum(parameter.numel() for parameter in parameters_of(node, modules))


def parameter_counts(graph_module: fx.GraphModule) -> dict[fx.Node, int]:
    """Return the number of elements that each node is the first to use, so that their sum is right."""
    modules, seen = modules_by_path(graph_module), set[int]()
    counts = {}
    for node in graph_module.graph.nodes:
        new = [p for p in parameters_of(node, modules) if id(p) not in seen]
        seen.update(map(id, new))
        counts[node] = sum(parameter.numel() for parameter in new)
    return counts


def line_of(node: fx.Node) -> tuple[str, str]:
    """Return the file and line that a node comes from, and the code there; empty if they are not known."""
    frame = next(iter(frames_of(node)), None)
    return ("", "") if frame is None else (f"{frame['file']}:{frame['line']}", str(frame["code"]))


def frames_of(node: fx.Node) -> list[dict[str, Any]]:
    """Return the source lines that made a node, the innermost first."""
    frames = _frames_in(str(node.meta.get("stack_trace") or ""))
    keys = ("file", "line", "function", "code")
    return [dict(zip(keys, frame, strict=True)) for frame in frames]


@lru_cache(maxsize=4096)  # copies of a graph have the same texts
def _frames_in(text: str) -> tuple[tuple[str, int, str, str], ...]:
    frames = []
    for found in list(_FRAME.finditer(text))[-MOST_FRAMES:]:
        code = text[found.end() :].lstrip("\n").split("\n", 1)[0].strip()
        line = int(found["line"])
        code = "" if code.startswith("File ") else code
        frames.append((found["file"], line, found["function"], code))
    return tuple(frames[::-1])


def excerpt(file: str, line: int) -> list[tuple[int, str]]:
    """Return number and text of the lines around a line of Python source; empty if they cannot be read."""
    if not file.endswith(".py"):
        return []
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return []
    first = max(1, line - CONTEXT_LINES)
    window = lines[first - 1 : line + CONTEXT_LINES]
    return [(number, text.rstrip("\n")[:300]) for number, text in enumerate(window, first)]


def _module_stack(node: fx.Node) -> list[tuple[str, Any]]:
    entries = module_stack(node).items()
    return [entry for key, value in entries if (entry := stack_entry(str(key), value))[0]]


def _value_rows(value: Any) -> list[tuple[str, str]]:
    if (shape := getattr(value, "shape", None)) is not None:
        sizes = ", ".join(str(known_number(size)) for size in shape)
        return [(f"({sizes})", str(getattr(value, "dtype", "")))]
    if (items := _items(value)) is not None:
        return [row for item in items for row in _value_rows(item)][:MOST_VALUES]
    if isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return [(str(known_number(value)), type(value).__name__)]
    return [] if value is None else [("", type(value).__name__)]


def _items(value: Any) -> Iterator[Any] | None:
    """Return the values inside another, or ``None`` if it does not hold others."""
    if isinstance(value, list | tuple):
        return iter(value)
    if isinstance(value, ObjectParts):
        return (tensor for _, tensor in tensors_inside(value))
    return iter(value.values()) if isinstance(value, dict) else None


def _value_text(value: Any) -> str:
    if (shape := getattr(value, "shape", None)) is not None:
        dtype = dtype_name(getattr(value, "dtype", ""))
        sizes = "×".join(str(known_number(size)) for size in shape) or "scalar"  # noqa: RUF001
        return f"{sizes} {DTYPES.get(dtype, dtype)}".rstrip()
    if isinstance(value, list | tuple):
        inner = list(dict.fromkeys(_value_text(v) for v in value if v is not None))
        return f"{len(value)} × ({inner[0]})" if len(inner) == 1 else f"({len(value)} values)"  # noqa: RUF001
    if isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(known_number(value))
    return class_of(value).__name__


def only_input(node: fx.Node) -> fx.Node | None:
    """Return the one input of a module call, ``m(x)`` or ``m(input=x)``; ``None`` for any other call."""
    arguments = [*node.args, *node.kwargs.values()]
    if len(arguments) != 1 or set(node.kwargs) - {"input"}:
        return None
    value = arguments[0]
    return value if isinstance(value, fx.Node) else None


def upstream(*nodes: fx.Node, within: Callable[[fx.Node], bool] = lambda node: True) -> dict[fx.Node, None]:
    """Return nodes and those upstream of them, as far as ``within`` tells, in no order."""
    found = dict.fromkeys(filter(within, nodes))
    pending = [*found]
    while pending:
        read = [value for value in pending.pop().all_input_nodes if value not in found and within(value)]
        found |= dict.fromkeys(read)
        pending += read
    return found


def returned_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that a graph returns; empty if it has no output, which torch allows."""
    return [value for output in graph.find_nodes(op="output") for value in output.all_input_nodes]


def outputs_of(graph: fx.Graph) -> tuple[Any, ...]:
    """Return the values that a graph returns."""
    (returned,) = graph.output_node().args
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)
