"""``fxlab.from_pattern``: a pass made of a function of eager torch and its replacement."""

from collections.abc import Callable, Iterable, Mapping
from inspect import isbuiltin
from typing import Any

from torch.fx import GraphModule, Node

from fxlab.operators import may_alias, operator_of, written_arguments
from fxlab.transformations.foreign.from_callable import check_callable, check_promises, name_of
from fxlab.transformations.patterns.match import Match
from fxlab.transformations.patterns.pattern import Pattern, arguments_of, read_pattern, trace
from fxlab.transformations.patterns.pattern_pass import OtherArgumentsError, PatternPass, names_of
from fxlab.transformations.patterns.replacing import Replacement


def from_pattern(
    pattern: Callable[..., Any] | Iterable[Callable[..., Any]],
    replacement: Callable[..., Any],
    *,
    where: Mapping[str, Callable[[Match], bool]] | None = None,
    name: str | None = None,
    preserves_computation: bool = False,
) -> PatternPass:
    """Make a pass of a pattern and its replacement.

    A pattern is a function of eager torch, which is found in every dialect: ``F.linear`` matches a module
    ``nn.Linear``, ``aten.linear`` and its decompositions; terms of sums and products match in any order;
    casts to the same dtype, inactive dropouts and copies that nobody writes are seen through. A match is a
    candidate like that of any pass: one with other users inside, or whose inputs are written in between, is
    left alone; :meth:`~fxlab.Transformation.explain` reports these, and near misses of the pattern.

    If shapes are known, the replacement is compared with the nodes that it would replace, in float64 on
    random numbers. One that returns another shape or dtype is refused; so is one that returns other numbers,
    if it promises to preserve the computation.

    Parameters
    ----------
    pattern
        A function, a module or a graph module; or several of them, which have one replacement. An argument
        that is annotated ``float`` or ``int`` captures a number, ``torch.nn.Parameter`` a weight or buffer,
        ``torch.Tensor`` a tensor, and one without an annotation any value. One with the default ``None`` is
        optional. Other numbers are literal. A module in a pattern stands for all of its class, with any path
        and settings. See :func:`fxlab.rewriting.either` for alternatives.
    replacement
        A function of the same arguments, by name if it has the same names, else by position. Results that it
        computes from weights alone become parameters of the graph.
    where
        Conditions, by their words in ``explain``: functions of a :class:`Match`.
    name
        A short name for people; made of those of the two functions if left out.
    preserves_computation
        Whether the replacement computes the same as the pattern, up to rounding.

    Raises
    ------
    TypeError
        If one of the two cannot be called, or a condition cannot.
    ValueError
        If one of the two cannot be traced, they do not return as many values, the replacement takes others
        than the pattern, or the pattern does not use an argument.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(lambda x: x.relu() * 3 + 1)
    >>> def relu(x, factor: float):
    ...     return factor * torch.relu(x)
    >>> def shifted(x, factor):
    ...     return torch.relu(x * factor)
    >>> transformation = from_pattern(relu, shifted)
    >>> transformation.explain(traced).index.tolist()
    ['relu', 'mul']
    >>> [str(node) for node in transformation.get_transformed_nodes(transformation(traced))]
    ['mul_1', 'mul']
    """
    check_promises(name, preserves_computation=preserves_computation)
    patterns = _patterns(pattern)
    check_callable(replacement, "replacement")
    conditions: Any = {} if where is None else where
    if callable(conditions) or (isinstance(conditions, list | tuple) and all(map(callable, conditions))):
        several = [conditions] if callable(conditions) else conditions
        conditions = {name_of(each).replace("-", " "): each for each in several}
    if not isinstance(conditions, Mapping):
        raise TypeError(
            f"where: expected a mapping of words to functions of a match, got {type(where).__name__}."
        )
    for words, condition in conditions.items():
        if not isinstance(words, str):
            raise TypeError(f"where: expected words as keys, got {words!r}.")
        check_callable(condition, f"where[{words!r}]")
    for each in patterns:
        _check(each, replacement)
    name = name or f"{name_of(patterns[0])}-to-{name_of(replacement)}"
    return PatternPass(patterns, replacement, dict(conditions), name, preserves_computation)


def find_matches(
    graph_module: GraphModule,
    pattern: Callable[..., Any] | Iterable[Callable[..., Any]],
    *,
    where: Mapping[str, Callable[[Match], bool]] | None = None,
) -> list[Match]:
    """Find the places that a pattern matches, read as by :func:`fxlab.from_pattern`; nothing is replaced.

    Parameters
    ----------
    graph_module
        The graph; bodies of higher-order operators are looked through as well.
    pattern, where
        As of :func:`fxlab.from_pattern`.

    Returns
    -------
    list of Match
        In the order of the graph, without those that overlap an earlier one.

    Raises
    ------
    TypeError
        If ``graph_module`` is no graph module, or the pattern cannot be called.
    ValueError
        If the pattern cannot be traced.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x * 3) + torch.relu(2 * x))
    >>> def scaled(x, factor: float):
    ...     return torch.relu(x * factor)
    >>> [(match.roots, match["factor"]) for match in find_matches(traced, scaled)]
    [((relu,), 3), ((relu_1,), 2)]
    """
    patterns = _patterns(pattern)
    for each in patterns:
        _read_checked(each)
    conditions = dict(where or {})
    finding = PatternPass(patterns, patterns[0], conditions, "find-matches")
    found = (match for facts in finding._facts_of(graph_module) for match in finding.match(facts))
    return [match for match in found if match.excluded is None]


def _patterns(pattern: Any) -> tuple[Callable[..., Any], ...]:
    """Return patterns, given as one or several."""
    patterns = tuple(pattern) if isinstance(pattern, list | tuple) else (pattern,)
    if not patterns:
        raise ValueError("pattern: expected one pattern or more, got an empty list.")
    for each in patterns:
        check_callable(each, "pattern")
    return patterns


def _read_checked(pattern: Callable[..., Any]) -> list[Pattern]:
    """Trace a pattern, or raise the reason why it is none."""
    try:
        read = read_pattern(pattern)
    except Exception as error:  # tracing runs the function
        words = f"pattern: {name_of(pattern)} cannot be traced: {error}"
        if isbuiltin(pattern):
            words += f". Say how it is called: lambda x: {name_of(pattern)}(x)."
        raise ValueError(words) from error
    for one in read:
        if unused := one.unused:
            raise ValueError(
                f"pattern: {name_of(pattern)} does not use its argument {unused[0]!r}. Leave it out."
            )
        if not all(isinstance(value, Node) and value.op.startswith("call_") for value in one.outputs):
            raise ValueError(
                f"pattern: {name_of(pattern)} must return what it computes, not an argument or a number."
            )
    return read


def _check(pattern: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Refuse a pattern and a replacement that do not fit together."""
    read = _read_checked(pattern)
    takes, returns = len(read[0].captures) + len(read[0].absent), len(read[0].outputs)
    choices = [(one, one.absent) for one in read]
    choices += [(one, (*one.absent, *one.perhaps_absent)) for one in read if one.perhaps_absent]
    for one, absent in choices:
        try:
            names = names_of(replacement, one)
            samples: dict[str, Any] = {
                c.name: 2 if c.is_whole else 2.0 for c in one.captures.values() if c.kind == "number"
            }
            samples |= dict.fromkeys(absent)
            given = {own: samples[name] for own, name in names.items() if name in samples}
            graph, root, _ = trace(replacement, list(names), given)
        except OtherArgumentsError as error:
            raise ValueError(
                f"replacement: expected to take {takes} and return {returns} values, as pattern does, "
                f"but {error}."
            ) from error
        except Exception as error:
            words = f", where {', '.join(absent)} is None" if absent else ""
            raise ValueError(
                f"replacement: {name_of(replacement)} cannot be traced{words}: {error}"
            ) from error
        traced = Replacement(graph, root, {})
        for node in traced.calls:
            written = [] if operator_of(node) is None else written_arguments(node)
            if any(map(_is_argument, written)):
                raise ValueError(
                    f"replacement: {name_of(replacement)} writes an argument in place ({node.name}), which "
                    "others may read. Write a new tensor."
                )
        also = len(traced.outputs)
        if also != returns:
            raise ValueError(
                f"replacement: expected to take {takes} and return {returns} values, as pattern does, "
                f"but it takes {len(arguments_of(replacement))} and returns {also}."
            )


def _is_argument(value: Node) -> bool:
    """Tell whether a value is an argument of a replacement, or may be a view of one."""
    if value.op in ("placeholder", "get_attr"):
        return value.op == "placeholder"
    return may_alias(value) and any(map(_is_argument, value.all_input_nodes))
