"""Compares a replacement with the replaced nodes, on random numbers in float64, for passes of patterns."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import pytree
from fxlab.operators.node_info import attribute_at, dtype_name, known_result
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.term import Weight
from fxlab.transformations.patterns.captured import AbsorbedTerms, CallInPlaceOfModule, Size, nodes_in
from fxlab.transformations.patterns.replacing import Replacement, run, values_of
from fxlab.values.tensors import SYMBOLIC, known_number

_MOST_ELEMENTS = 1 << 27
_TOLERANCE = 1e-9
_WIDER = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
_METHODS = dict.fromkeys(("float", "half", "bfloat16"), "double")
_AUTOCAST = torch.bfloat16
_KINDS: dict[Any, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@dataclass(frozen=True)
class Confirmation:
    """The result of a comparison."""

    refusal: Refusal | None = None
    """The reason why the replacement must not be used, if it computes something else."""
    differs_under_autocast: bool = False
    """Whether its results have another dtype under autocast."""
    difference: str = ""
    has_run: bool = False
    """Whether the nodes of the pattern could be run, so that there were results to compare."""


class Confirming:
    """One match and its replacement, compared in float64 on random numbers.

    ``captured``: the captured values by the arguments of the pattern. ``modules``: the paths of modules, or
    the calls that compute the same, by the paths of modules in the pattern.
    """

    def __init__(
        self,
        facts: GraphFacts,
        nodes: Sequence[Node],
        roots: Sequence[Node],
        captured: dict[str, Any],
        modules: dict[str, str | CallInPlaceOfModule],
    ) -> None:
        self._facts, self._nodes, self._roots, self._captured = facts, nodes, roots, captured
        self._modules = modules
        self._widen: Callable[[Any], Any] = _widened
        self._number: Callable[[Any], Any] = known_number
        own = {*nodes}
        read = [value for node in nodes for value in node.all_input_nodes if value not in own]
        held = [each for value in captured.values() for each in nodes_in(value) if each not in own]
        self._leaves = list(dict.fromkeys([*read, *held]))
        self._kinds: list[Any] = [self._described(leaf) for leaf in self._leaves]
        """The shape and dtype of each, or no shape and the number; ``None`` for an unknown one."""

    def key(self) -> Any:
        """Return a key that is equal for matches of the same comparison; ``None`` if shapes are unknown."""
        if None in self._kinds:
            return None
        place = {node: index for index, node in enumerate((*self._leaves, *self._nodes))}
        shapes = self._kinds
        if self._symbols:
            with self._at_other_sizes():
                shapes = [*shapes, *self._kinds]
        calls = [
            (node.op, self._called(node), _written(node.args, place), _written(node.kwargs, place))
            for node in self._nodes
        ]
        captured = {name: _written(value, place) for name, value in self._captured.items()}
        return repr((shapes, calls, sorted(captured.items()), [place[root] for root in self._roots]))

    def compared(self, replacement: Replacement) -> Confirmation:
        """Run both and compare their results, at the traced sizes and at others."""
        found = self._compared(replacement)
        if found.has_run and found.refusal is None:
            found = replace(found, refusal=self._other_dtypes(replacement))
        if found.refusal is not None or not found.has_run:
            return found
        found = replace(found, differs_under_autocast=self._differs_under_autocast(replacement))
        if not self._symbols:
            return found
        with self._at_other_sizes():
            other = self._compared(replacement)
        if not other.has_run or (other.refusal is None and not other.difference):
            return found
        refusal = None if other.refusal is None else Reason.OTHER_SIZES(reason=other.refusal.words)
        difference = found.difference or f"at other sizes, {other.difference}"
        return replace(found, refusal=refusal, difference=difference)

    def _compared(self, replacement: Replacement) -> Confirmation:
        count = sum(math.prod(shape) for shape, _ in self._kinds)
        if count > _MOST_ELEMENTS:
            return Confirmation(Reason.TOO_LARGE(count=count))
        # Roots and logarithms of negative numbers are NaN, which would equal nothing.
        for is_positive in (False, True):
            generator = torch.Generator().manual_seed(0)
            try:
                leaves, weights = self._random(generator, torch.float64, is_positive)
                expected = self._original(leaves, weights)
            except Exception:  # random numbers may be no valid arguments
                return Confirmation()
            if not any(isinstance(each, torch.Tensor) and each.isnan().any() for each in expected):
                break
        try:
            found = self._replaced(replacement, leaves, weights)
        except Exception as error:
            fails = Reason.REPLACEMENT_FAILS(error=f"{type(error).__name__}: {str(error)[:200]}")
            return Confirmation(fails, has_run=True)
        refusal, difference = self._compare(expected, found, leaves)
        return Confirmation(refusal, difference=difference, has_run=True)

    @cached_property
    def _symbols(self) -> dict[Any, int]:
        """Another value of each symbol in the sizes that are read: multiples of 8, as some are divided."""
        all_known = map(self._known, self._leaves)
        numbers = (number for known in all_known for number in getattr(known, "shape", (known,)))
        symbols = {symbol for number in numbers for symbol in _symbols_of(number)}
        return {symbol: 8 * (place + 2) for place, symbol in enumerate(sorted(symbols, key=str))}

    @contextmanager
    def _at_other_sizes(self) -> Iterator[None]:
        def other(number: Any) -> Any:
            if not _symbols_of(number):
                return known_number(number)
            return _KINDS[type(number)](number.node.expr.xreplace(self._symbols))

        traced, self._number = self._kinds, other
        self._kinds = [self._described(leaf) for leaf in self._leaves]
        try:
            yield
        finally:
            self._kinds, self._number = traced, known_number

    def _known(self, leaf: Node) -> Any:
        tensor = self._facts.attribute(leaf)
        return tensor if isinstance(tensor, torch.Tensor) else known_result(leaf)

    def _described(self, leaf: Node) -> tuple[Any, ...] | None:
        known = self._known(leaf)
        if hasattr(known, "shape") and hasattr(known, "dtype"):
            found = tuple(map(self._number, known.shape)), known.dtype
        elif isinstance(known, int | float | torch.SymInt | torch.SymFloat):
            found = (), self._number(known)
        else:
            return None
        # Text stands for a number that depends on data.
        return None if any(isinstance(each, str) for each in (*found[0], found[1])) else found

    def _called(self, node: Node) -> str:
        if node.op != "call_module":
            return str(node.target)
        module = self._facts.module(node)
        return f"{module!r} {[tuple(p.shape) for p in module.parameters()]}" if module is not None else ""

    def _random(
        self, generator: torch.Generator, dtype: torch.dtype | None, is_positive: bool
    ) -> tuple[dict[Node, Any], dict[str, torch.Tensor]]:
        leaves: dict[Node, Any] = {}
        weights: dict[str, torch.Tensor] = {}
        for leaf, (shape, kind) in zip(self._leaves, self._kinds, strict=True):
            if not isinstance(kind, torch.dtype):
                leaves[leaf] = kind
                continue
            path = str(leaf.target) if leaf.op == "get_attr" else ""
            made = weights.get(path)
            if made is None:
                made = _random(shape, kind, generator, dtype, is_positive or bool(path))
            leaves[leaf] = made
            if path:
                weights[path] = made
        for node in self._nodes:
            module = self._facts.module(node)
            for name, tensor in (
                () if module is None else (*module.named_parameters(), *module.named_buffers())
            ):
                path = f"{node.target}.{name}"
                if path not in weights:
                    weights[path] = _random(tuple(tensor.shape), tensor.dtype, generator, dtype, True)
        return leaves, weights

    def _original(self, leaves: dict[Node, Any], weights: dict[str, torch.Tensor]) -> list[Any]:
        with torch.no_grad():
            values = self._values(dict(leaves), self._nodes, weights)
        return [values[root] for root in self._roots]

    def _values(
        self, values: dict[Node, Any], nodes: Sequence[Node], weights: dict[str, torch.Tensor]
    ) -> dict[Node, Any]:
        """Run nodes of the graph, and add their results to the values that they read."""
        for node in nodes:
            args, kwargs = self._widen(map_arg((node.args, node.kwargs), values.__getitem__))
            values[node] = self._run(node, args, kwargs, weights)
        return values

    def _run(self, node: Node, args: Any, kwargs: Any, weights: dict[str, torch.Tensor]) -> Any:
        if node.op != "call_module":
            return run(node.op, self._target(node), args, kwargs)
        return self._called_module(str(node.target), args, kwargs, weights)

    def _called_module(self, called: str, args: Any, kwargs: Any, weights: dict[str, torch.Tensor]) -> Any:
        module = self._facts.graph_module.get_submodule(called)
        prefix = f"{called}."
        held = {
            path.removeprefix(prefix): value for path, value in weights.items() if path.startswith(prefix)
        }
        return torch.func.functional_call(module, held, args, kwargs)

    def _target(self, node: Node) -> Any:
        is_wide = node.op == "call_method" and self._widen(torch.float32) == torch.float64
        return _METHODS.get(str(node.target), node.target) if is_wide else node.target

    def _replaced(
        self, replacement: Replacement, leaves: dict[Node, Any], weights: dict[str, torch.Tensor]
    ) -> Any:
        def value_of(value: Any) -> Any:
            if isinstance(value, Weight):
                return weights[value.path]
            if isinstance(value, AbsorbedTerms):
                total = value_of(value.values[0])
                for other in value.values[1:]:
                    total = total + value_of(other) if value.name == "add" else total * value_of(other)
                return total
            if isinstance(value, Size):
                return self._number(value.value)
            if isinstance(value, tuple | list):
                return tuple(map(value_of, value))
            return leaves[value] if isinstance(value, Node) else value

        def called(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if node.op == "get_attr":
                constant = attribute_at(replacement.root, str(node.target))
                is_real = isinstance(constant, torch.Tensor) and constant.is_floating_point()
                return constant.to(self._widen(constant.dtype)) if is_real else constant
            args, kwargs = self._widen(args), self._widen(kwargs)
            if node.op == "call_module":
                own = self._modules.get(str(node.target))
                if isinstance(own, CallInPlaceOfModule):
                    values = self._values({**leaves, own.input: args[0]}, own.nodes, weights)
                    return values[own.nodes[-1]]
                if own is not None:
                    return self._called_module(own, args, kwargs, weights)
                module = copy.deepcopy(replacement.root.get_submodule(str(node.target)))
                return module.to(self._widen(torch.float32)).eval()(*args, **kwargs)
            return run(node.op, self._target(node), args, kwargs)

        given = {name: value_of(value) for name, value in self._captured.items()}
        with torch.no_grad():
            return values_of(replacement, given, called)

    def _compare(
        self, expected: Sequence[Any], found: Sequence[Any], leaves: dict[Node, Any]
    ) -> tuple[Refusal | None, str]:
        words = ""
        for mine, other in zip(expected, found, strict=True):
            if not isinstance(mine, torch.Tensor) or not isinstance(other, torch.Tensor):
                if type(mine) is not type(other):
                    return Reason.RESULT_DIFFERS(found=type(other).__name__, expected=type(mine).__name__), ""
                continue
            if mine.shape != other.shape:
                return Reason.RESULT_DIFFERS(found=list(other.shape), expected=list(mine.shape)), ""
            if mine.dtype != other.dtype:
                expected_, found_ = dtype_name(mine.dtype), dtype_name(other.dtype)
                return Reason.RESULT_DIFFERS(found=found_, expected=expected_), ""
            words = words or self._difference(mine, other, leaves)
        return None, words

    def _difference(self, mine: torch.Tensor, other: torch.Tensor, leaves: dict[Node, Any]) -> str:
        if mine.numel() == 0:
            return ""
        if not mine.is_floating_point():
            return "" if torch.equal(mine, other) else "other whole numbers or truth values"
        is_nan = mine.isnan() | other.isnan()
        far = torch.where(is_nan, (mine.isnan() != other.isnan()).double() * math.inf, (mine - other).abs())
        far = torch.where(mine == other, 0.0, far).nan_to_num(0.0, posinf=math.inf)
        scale = float(mine.nan_to_num(0, 0, 0).abs().max())
        most = float(far.max())
        if most <= _TOLERANCE * max(scale, 1.0):
            return ""
        at = int(far.argmax())
        words = [
            f"{name} = {float(value.reshape(-1)[at]):.3g}"
            for name, captured in self._captured.items()
            if isinstance(captured, Node)
            and isinstance(value := leaves.get(captured), torch.Tensor)
            and value.shape == mine.shape
        ]
        place = f" at {', '.join(words)}" if words else ""
        return f"by at most {most:.2g} in values up to {scale:.2g}{place}, in float64"

    def _other_dtypes(self, replacement: Replacement) -> Refusal | None:
        """Return why the dtypes of results differ from those of the graph; ``None`` if they do not."""
        for expected, found in self._dtypes(replacement, None):
            if expected != found:
                return Reason.RESULT_DIFFERS(found=dtype_name(found), expected=dtype_name(expected))
        return None

    def _differs_under_autocast(self, replacement: Replacement) -> bool:
        """Tell whether results have another dtype when autocast computes both."""
        with torch.autocast("cpu", dtype=_AUTOCAST):
            return any(mine != other for mine, other in self._dtypes(replacement, torch.float32))

    def _dtypes(self, replacement: Replacement, dtype: torch.dtype | None) -> list[tuple[Any, Any]]:
        """Return the dtypes of both results, for values of a given dtype or of their own."""
        self._widen = lambda value: value
        try:
            leaves, weights = self._random(torch.Generator().manual_seed(0), dtype, True)
            expected = self._original(leaves, weights)
            found = self._replaced(replacement, leaves, weights)
        except Exception:  # a dtype that no kernel of this device takes
            return []
        finally:
            self._widen = _widened
        pairs = zip(expected, found, strict=True)
        return [(getattr(mine, "dtype", None), getattr(other, "dtype", None)) for mine, other in pairs]


def _symbols_of(number: Any) -> Iterable[Any]:
    """Return the symbols in a symbolic number; a nested size has none."""
    expression = getattr(number.node, "expr", None) if isinstance(number, SYMBOLIC) else None
    return getattr(expression, "free_symbols", ())


def _widened(value: Any) -> Any:
    """Return arguments with double precision for every floating-point dtype."""
    return pytree.tree_map_only(torch.dtype, lambda dtype: _WIDER.get(dtype, dtype), value)


def _random(
    shape: tuple[int, ...],
    kind: torch.dtype,
    generator: torch.Generator,
    dtype: torch.dtype | None,
    is_positive: bool,
) -> torch.Tensor:
    if kind == torch.bool:
        return torch.rand(shape, generator=generator, device="cpu") > 0.5
    if not kind.is_floating_point and not kind.is_complex:
        return torch.randint(0, 2, shape, generator=generator, dtype=kind, device="cpu")
    if is_positive:
        return torch.rand(shape, generator=generator, dtype=dtype or kind, device="cpu") + 0.5
    return torch.randn(shape, generator=generator, dtype=dtype or kind, device="cpu")


def _written(value: Any, place: dict[Node, int]) -> Any:
    if isinstance(value, Node):
        return f"%{place[value]}"
    if isinstance(value, AbsorbedTerms):
        return value.name, _written(value.values, place)
    if isinstance(value, Size):
        return known_number(value.value)
    if isinstance(value, Weight):
        return "weight"
    if isinstance(value, slice):
        return "slice", _written((value.start, value.stop, value.step), place)
    if isinstance(value, tuple | list):
        return tuple(_written(each, place) for each in value)
    if isinstance(value, dict):
        return sorted((key, _written(each, place)) for key, each in value.items())
    return value
