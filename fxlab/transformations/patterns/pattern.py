"""Patterns: functions of eager torch, read as canonical calls, which matching looks for."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import fx, nn
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.node import map_arg

from fxlab.base.exchanged import cached_property, patched_functions
from fxlab.operators import is_of_python
from fxlab.operators.node_info import outputs_of, upstream
from fxlab.transformations.calls.calls import Calls
from fxlab.transformations.calls.term import Term, is_number

NUMBER, WEIGHT, TENSOR, ANY = "number", "weight", "tensor", "any"
"""The kinds of values that an argument of a pattern may capture."""
_KINDS: dict[Any, str] = {float: NUMBER, int: NUMBER, nn.Parameter: WEIGHT, torch.Tensor: TENSOR}
_KINDS |= {"float": NUMBER, "int": NUMBER, "nn.Parameter": WEIGHT, "torch.Tensor": TENSOR, "Tensor": TENSOR}
_KINDS |= {"Parameter": WEIGHT, "torch.nn.Parameter": WEIGHT}
_MOST_OPTIONAL = 5
_FACTS = ("shape", "ndim", "dtype", "device")
"""Attributes of tensors that are no tensors."""
_LIMITS = (torch.finfo, torch.iinfo)


def either(*alternatives: Any) -> Any:
    """Match any of several expressions in a pattern, the first that fits.

    Outside of a pattern it is the first of them.

    Parameters
    ----------
    *alternatives
        Expressions of the pattern's arguments.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> def scaled(x, scale: float):
    ...     return torch.relu(fxlab.rewriting.either(x * scale, x))
    >>> sigmoid = fxlab.from_pattern(scaled, lambda x, scale=None: torch.sigmoid(x), name="to-sigmoid")
    >>> graph_module = torch.fx.symbolic_trace(lambda x: torch.relu(x) + torch.relu(x * 2))
    >>> len(sigmoid.candidates(graph_module))
    2
    """
    if not alternatives:
        raise TypeError("either: expected one alternative or more, got none.")
    proxy = next((each for each in alternatives if isinstance(each, Proxy)), None)
    if proxy is None:
        return alternatives[0]
    return proxy.tracer.create_proxy("call_function", either, alternatives, {})


@dataclass(frozen=True)
class Capture:
    """An argument of a pattern."""

    name: str
    kind: str = ANY
    is_optional: bool = False
    is_whole: bool = False
    """Whether it captures whole numbers only."""
    is_keyword: bool = False
    """Whether it is given by name only."""


@dataclass(eq=False)
class Pattern:
    """A pattern with one choice of the optional arguments; those that are ``absent`` are ``None``."""

    graph: Graph
    root: nn.Module
    captures: dict[Node, Capture]
    absent: tuple[str, ...] = ()
    calls: Calls = field(init=False)
    _flat: dict[Term, tuple[list[Any], list[Any], int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.calls = Calls(self._module_of, is_pattern=True)

    def _module_of(self, node: Node) -> nn.Module:
        return self.root.get_submodule(str(node.target))

    @cached_property
    def outputs(self) -> tuple[Any, ...]:
        """The values that it returns."""
        return outputs_of(self.graph)

    @cached_property
    def scalars(self) -> set[Node]:
        """The nodes that compute no tensors: numbers, shapes, dtypes and devices."""
        found = set[Node]()
        for node in self.graph.nodes:
            read = node.all_input_nodes
            is_python = node.op == "call_function" and (is_of_python(node.target) or node.target in _LIMITS)
            if (
                (node.op == "placeholder" and self.captures[node].kind == NUMBER)
                or (node.target is getattr and (node.args[1] in _FACTS or node.args[0] in found))
                or (node.op == "call_method" and node.target in ("size", "dim", "numel"))
                or (is_python and read and found.issuperset(read))
            ):
                found.add(node)
        return found

    def is_either(self, value: Any) -> bool:
        """Tell whether a value is one of several alternatives."""
        return isinstance(value, Node) and value.target is either

    def alternatives(self, value: Any) -> Iterator[Any]:
        """Yield the alternatives for a value."""
        if isinstance(value, Node) and self.is_either(value):
            for each in value.args:
                yield from self.alternatives(each)
        else:
            yield value

    @cached_property
    def calls_in(self) -> list[Node]:
        """The calls with a node in every match, unless they belong to alternatives."""
        computed = [
            node for node in self.graph.nodes if node.op.startswith("call_") and not self.is_either(node)
        ]
        return [node for node in computed if node not in self.scalars]

    @cached_property
    def total(self) -> int:
        """The number of calls of the largest alternatives."""
        known: dict[Node, set[Node]] = {}
        own = {*self.calls_in}
        for node in self.graph.nodes:
            parts = [known[each] for each in node.all_input_nodes]
            if self.is_either(node):
                known[node] = max(parts, key=len, default=set())
            else:
                known[node] = set[Node]().union(*parts, {node} & own)
        return len(known[self.graph.output_node()])

    @cached_property
    def unused(self) -> list[str]:
        """The names of arguments that nothing reads."""
        return [capture.name for node, capture in self.captures.items() if not node.users]

    @cached_property
    def perhaps_absent(self) -> list[str]:
        """The names of arguments that only some of the alternatives use."""
        always = set[Node]().union(*(self._always(value) for value in self.outputs))
        return [capture.name for node, capture in self.captures.items() if node not in always]

    def _always(self, value: Any) -> set[Node]:
        """Return the arguments that a value needs with any alternatives."""
        if not isinstance(value, Node):
            return set()
        if self.is_either(value):
            return set.intersection(*(self._always(each) for each in value.args))
        own = {value} if value.op == "placeholder" else set[Node]()
        return own.union(*(self._always(each) for each in value.all_input_nodes))

    @cached_property
    def parts(self) -> list[tuple[Node, Node]]:
        """Calls with a call that reads them, largest first."""
        found = [(node, user) for node in self.calls_in for user in node.users if user in self.calls_in]
        return sorted(found, key=lambda pair: self.size(pair[0]), reverse=True)

    def size(self, value: Node) -> int:
        """Return the number of calls that compute a value."""
        return len(upstream(value, within=lambda n: n.op.startswith("call_") and n not in self.scalars))

    def depth(self, value: Any) -> int:
        """Return how many calls lie between a value and the arguments, at most."""
        if isinstance(value, Node):
            return 1 + max((self.depth(each) for each in value.all_input_nodes), default=0)
        return 0

    def term(self, value: Any) -> Term | None:
        """Return the canonical call of a value."""
        return self.calls.term(value)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its calls."""
        return frozenset(term.name for node in self.calls_in if (term := self.term(node)) is not None)

    def flat(self, term: Term) -> tuple[list[Any], list[Any], int]:
        """Return the terms of a sum or product, the numbers among them, and the count of nested sums."""
        if term not in self._flat:
            self._flat[term] = self._flattened(term)
        return self._flat[term]

    def divisor(self, value: Any) -> Node | None:
        """Return the argument that may be a number and that a term is one over, as in a division."""
        if not isinstance(value, Term) or value.name != "pow" or value.args["exponent"] != -1:
            return None
        base = value.args["self"]
        capture = self.captures.get(base) if isinstance(base, Node) else None
        return base if capture is not None and capture.kind in (ANY, NUMBER) else None

    def is_computed(self, value: Any) -> bool:
        """Tell whether a value is a dtype, or a power of a number that the pattern computes (a division)."""
        if isinstance(value, Term) and value.name == "dtype":
            return True
        if not isinstance(value, Term) or value.name != "pow" or not is_number(value.args["exponent"]):
            return False
        base = value.args["self"]
        return isinstance(base, Node) and base in self.scalars and base not in self.captures

    def _flattened(self, term: Term) -> tuple[list[Any], list[Any], int]:
        terms, numbers, count = list[Any](), list[Any](), 0
        pending = list(term.args["terms"])
        while pending:
            value = pending.pop(0)
            own = self.term(value)
            is_single = isinstance(value, Term) or (isinstance(value, Node) and len(value.users) == 1)
            if own is not None and own.name == term.name and "terms" in own.args and is_single:
                count += 1
                pending = [*own.args["terms"], *pending]
            elif (
                is_number(value)
                or self.is_computed(value)
                or (isinstance(scalar := self.divisor(value) or value, Node) and scalar in self.scalars)
            ):
                numbers.append(value)
            else:
                terms.append(value)
        return terms, numbers, count


def arguments_of(function: Callable[..., Any], names: Sequence[str] = ()) -> list[Capture]:
    """Return the arguments of a pattern or replacement; ``names``: those of a builtin."""
    if isinstance(function, GraphModule):
        return [Capture(str(node.target)) for node in function.graph.find_nodes(op="placeholder")]
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # a builtin
        return [Capture(name) for name in names]
    found = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"*{parameter.name} stands for any number of arguments; name each of them")
        annotation = parameter.annotation
        kind = _KINDS.get(annotation, ANY) if isinstance(annotation, type | str) else ANY
        is_whole = annotation in (int, "int")
        is_optional = parameter.default is not parameter.empty
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        found.append(Capture(parameter.name, kind, is_optional, is_whole, is_keyword))
    return found


def read_pattern(function: Callable[..., Any]) -> list[Pattern]:
    """Trace a pattern, once for each choice of its optional arguments, those with most of them first."""
    captures = arguments_of(function)
    optional = [capture.name for capture in captures if capture.is_optional]
    if len(optional) > _MOST_OPTIONAL:
        raise ValueError(f"it has {len(optional)} optional arguments; at most {_MOST_OPTIONAL} are tried")
    if isinstance(function, nn.Module) and fx.Tracer().is_leaf_module(function, ""):
        function = _calling(function, captures)
    found: list[Pattern] = []
    failed: Exception | None = None
    for count in range(len(optional) + 1):
        for absent in itertools.combinations(optional, count):
            try:
                traced, root, nodes = trace(function, [c.name for c in captures], dict.fromkeys(absent))
            except Exception as error:  # the function needs this argument
                failed = failed or error
                continue
            by_name = {capture.name: capture for capture in captures}
            found.append(Pattern(traced, root, {node: by_name[name] for name, node in nodes.items()}, absent))
    if not found and failed is not None:
        raise failed
    return found


def _calling(module: nn.Module, captures: Sequence[Capture]) -> GraphModule:
    """Return a graph that calls a module as a whole, as traces do."""
    graph = Graph()
    kwargs: dict[str, Any] = {each.name: graph.placeholder(each.name) for each in captures}
    args = tuple(kwargs.pop(each.name) for each in captures if not each.is_keyword)
    graph.output(graph.call_module("module", args, kwargs))
    return GraphModule({"module": module}, graph)


@cache
def read_once(function: Callable[..., Any]) -> tuple[Pattern, ...]:
    """Trace a pattern of one of fxlab's own passes, which stays the same."""
    return tuple(read_pattern(function))


def trace(
    function: Callable[..., Any], names: list[str], given: dict[str, Any]
) -> tuple[Graph, nn.Module, dict[str, Node]]:
    """Trace a function of tensors, with some arguments given.

    Returns its graph, the owner of the graph's constants and modules, and the other arguments by name.
    """
    with patched_functions(torch, dict.fromkeys(("finfo", "iinfo"), _of_proxies)):
        return _traced(function, names, given)


def _of_proxies(limits: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``torch.finfo(x.dtype)`` be a call of the pattern, where ``x`` is an argument."""

    def called(*args: Any, **kwargs: Any) -> Any:
        proxy = next((each for each in (*args, *kwargs.values()) if isinstance(each, Proxy)), None)
        if proxy is None:
            return limits(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", limits, (*args, *kwargs.values()), {})

    return called


def _traced(
    function: Callable[..., Any], names: list[str], given: dict[str, Any]
) -> tuple[Graph, nn.Module, dict[str, Node]]:
    if isinstance(function, nn.Module):
        traced = function if isinstance(function, GraphModule) else fx.symbolic_trace(function)
        graph = Graph()
        copied: dict[Node, Node] = {}
        returned = graph.graph_copy(traced.graph, copied)
        graph.output(returned)
        nodes = dict(zip(names, graph.find_nodes(op="placeholder"), strict=True))
        values = {nodes.pop(name): given[name] for name in given.keys() & nodes.keys()}
        for node in values:
            for user in list(node.users):
                user.args, user.kwargs = map_arg(
                    (user.args, user.kwargs), lambda each: values.get(each, each)
                )
            graph.erase_node(node)
        return graph, traced, nodes
    # By hand, since symbolic_trace guards the arguments that are given to it.
    tracer = fx.Tracer()
    root = nn.Module()
    tracer.root, tracer.graph = root, Graph(tracer_cls=fx.Tracer)
    tracer.tensor_attrs = {}
    proxies = {n: tracer.create_proxy("placeholder", n, (), {}) for n in names if n not in given}
    by_name = {**given, **proxies}
    keywords = {each.name for each in arguments_of(function, names) if each.is_keyword}
    result = function(
        *(by_name[name] for name in names if name not in keywords),
        **{name: by_name[name] for name in names if name in keywords},
    )
    if isinstance(result, dict):
        raise TypeError("it returns a dict; return a tensor or a tuple")
    tracer.graph.output(tracer.create_arg(result))
    return tracer.graph, root, {name: proxy.node for name, proxy in proxies.items()}
