"""Patterns relaxed so that they match where they nearly did."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from fxlab.models.free_paths import variants
from fxlab.reasons import Reason
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.from_pattern import from_pattern
from fxlab.transformations.patterns.matching import Matcher
from fxlab.transformations.patterns.matching_pass import from_here_on
from fxlab.transformations.patterns.pattern import NUMBER, WEIGHT, Capture, Pattern, read_pattern, trace
from fxlab.transformations.patterns.pattern_pass import PatternPass, names_of
from fxlab.transformations.patterns.replacing import Replacement
from fxlab.transformations.patterns.source import Choices, Source, Writer, compiled, definition, with_imports
from fxlab.transformations.rewriting.rewrite_pass import Attempt

_REASONS = Reason.OTHER_ARGUMENT, Reason.OTHER_OPERATOR, Reason.OTHER_COUNT, Reason.OTHER_KIND
"""Reasons that another pattern may avoid; the others hold for any pattern."""
_MOST_TRIED = 60
_MOST, _MOST_COMPARED = 3, 6
_PATTERN, _REPLACEMENT = "pattern", "replacement"


@dataclass(frozen=True)
class Relaxed:
    """A pass that applies where another one nearly did."""

    words: str
    """The change of its pattern."""
    pass_: PatternPass
    source: str
    """Python that makes the pass."""


@dataclass(frozen=True)
class _Edit:
    words: str
    choices: Choices
    number: str = ""
    """The literal that is captured."""


def relaxed(pass_: PatternPass, graph_module: GraphModule, attempt: Attempt) -> Iterator[Relaxed]:
    """Yield passes that apply where the pass of a pattern does not, each with one change of the pattern.

    A change is a captured number, a call that may be missing or another one, or an argument of any kind. A
    pass that promises to preserve the computation keeps the promise: the replacement was confirmed at this
    place. Other passes only capture numbers that the replacement has as well. ``attempt``: how far the pass
    gets at a place of the graph.
    """
    if pass_.where or attempt.matched or attempt.code not in {reason.code for reason in _REASONS}:
        return
    found = compared = 0
    for facts in pass_._facts_of(graph_module):
        named = {f"{facts.prefix}{node.name}": node for node in facts.graph_module.graph.nodes}
        if attempt.begins_at not in named:
            continue
        index, node = GraphIndex(facts), named[attempt.begins_at]
        misfits = [named[name] for name in attempt.misfits if name in named]
        for pattern in pass_._read:
            for edit in itertools.islice(_edits(pattern, misfits, facts), _MOST_TRIED):
                made = _made(pass_, pattern, edit, node, index)
                if made is None:
                    continue
                compared += 1
                if _applies(made.pass_, node, facts):
                    yield made
                    found += 1
                if found == _MOST or compared == _MOST_COMPARED:
                    return


def _applies(pass_: PatternPass, node: Node, facts: GraphFacts) -> bool:
    found = (each for each in pass_.match(facts) if node in each.nodes and not pass_.why_not(each, facts))
    return any(pass_.is_confirmed(each, facts) or not pass_.preserves_computation for each in found)


def _edits(pattern: Pattern, misfits: list[Node], facts: GraphFacts) -> Iterator[_Edit]:
    plain = _source(pattern)
    try:
        plain.written(_PATTERN)
    except ValueError:  # it calls a module, or a function without source
        return
    for key, text in plain.literals.items():
        yield _Edit(f"Capture {text} as a number", Choices({key: _free(plain.arguments)}), text)
    for capture in pattern.captures.values():
        if capture.kind in (NUMBER, WEIGHT):
            yield _Edit(f"Let {capture.name} be any value", Choices(kinds={capture.name: ""}))
    for node in pattern.calls_in:
        term = pattern.term(node)
        if term is None or node in pattern.outputs:
            continue
        inputs = [each for each in node.all_input_nodes if each not in pattern.scalars]
        kept = max(inputs, key=pattern.size, default=None)
        if kept is not None:
            yield _Edit(f"Let {term.called} be missing", Choices(alternatives={node: _kept(kept)}))
        for other in misfits:
            if other.op in ("call_function", "call_method") and len(other.all_input_nodes) == len(inputs):
                words = f"Let {term.called} be {other.name} as well"
                yield _Edit(words, Choices(alternatives={node: _other(other, inputs, facts)}))


def _kept(value: Node) -> Writer:
    """Return a writer of the value that stays if a call is missing."""
    return lambda text: text(value)


def _other(node: Node, inputs: Sequence[Node], facts: GraphFacts) -> Writer:
    """Return a writer of a graph's call with the inputs of a call of the pattern."""

    def written(text: Callable[[Any], str]) -> str:
        read = zip(node.all_input_nodes, inputs, strict=True)
        return Source(facts, [], arguments={ours: (text(theirs), "") for ours, theirs in read}).call(node)

    return written


def _source(pattern: Pattern, choices: Choices | None = None) -> Source:
    facts = GraphFacts(GraphModule(pattern.root, pattern.graph))
    nodes = [node for node in pattern.graph.nodes if node.op not in ("placeholder", "output")]
    arguments = {node: (capture.name, _annotation(capture)) for node, capture in pattern.captures.items()}
    if any(node.op in ("call_module", "get_attr") for node in nodes):
        nodes = [node for node in nodes if node.op == "call_module"]
    return Source(facts, nodes, arguments=arguments, returns=pattern.outputs, choices=choices)


def _annotation(capture: Capture) -> str:
    if capture.kind == NUMBER:
        return "int" if capture.is_whole else "float"
    return {WEIGHT: "torch.nn.Parameter", "tensor": "torch.Tensor"}.get(capture.kind, "")


def _made(pass_: PatternPass, pattern: Pattern, edit: _Edit, node: Node, index: GraphIndex) -> Relaxed | None:
    """Return a relaxed pass if its pattern matches at a node."""
    try:
        text = _source(pattern, edit.choices).written(_PATTERN)
        function = compiled(text, _PATTERN)
        if not any(_matches(each, node, index, pass_) for each in read_pattern(function)):
            return None
        promise, name = pass_.preserves_computation, f"{pass_.name}-relaxed"
        if edit.choices.alternatives and not promise:
            return None
        replacement, own_text = _replacement(pass_, pattern, edit)
        made = from_pattern(
            function,
            replacement,
            ignore_literals=pass_.ignore_literals,
            name=name,
            preserves_computation=promise,
        )
    except (TypeError, ValueError, NameError, AttributeError, OSError):
        return None  # no pattern, or the replacement needs the missing part
    literals = ", ignore_literals=True" if pass_.ignore_literals else ""
    promised = ", preserves_computation=True" if promise else ""
    call = f"relaxed = fxlab.from_pattern(pattern, {replacement.__name__}, name={name!r}{literals}{promised})"
    return Relaxed(edit.words, made, with_imports(text, own_text, call))


def _matches(pattern: Pattern, node: Node, index: GraphIndex, pass_: PatternPass) -> bool:
    matcher = Matcher(pattern, index, ignore_literals=pass_.ignore_literals)
    return any(node in found.nodes for _, found in matcher.matches(from_here_on(node, matcher, index)))


def _replacement(pass_: PatternPass, pattern: Pattern, edit: _Edit) -> tuple[Callable[..., Any], str]:
    """Return the replacement of a relaxed pattern and its source: a new one if it has a captured number."""
    former = pass_.replacement
    text = definition(former)
    names = names_of(former, pattern)
    is_by_name = all(own == name for own, name in names.items())
    if text and is_by_name and not edit.number and former.__name__ != _PATTERN:
        return former, text
    if any(capture.kind == NUMBER for capture in pattern.captures.values()):
        raise ValueError("what it computes of numbers is not in its trace")
    absent: dict[str, Any] = {own: None for own, name in names.items() if name in pattern.absent}
    graph, root, nodes = trace(former, list(names), absent)
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    if not calls or any(node.op in ("call_module", "get_attr") for node in calls):
        raise ValueError("it has modules or constants")
    kinds = {capture.name: _annotation(capture) for capture in pattern.captures.values()}
    arguments = {node: (names[own], kinds.get(names[own], "")) for own, node in nodes.items()}
    returns = Replacement(graph, root, {}).outputs
    facts = GraphFacts(GraphModule(root, graph))
    plain = Source(facts, calls, arguments=arguments, returns=returns)
    plain.written(_REPLACEMENT)
    taken = dict.fromkeys([*(name for name, _ in arguments.values()), *kinds])
    same = {key: _free(taken) for key, written in plain.literals.items() if written == edit.number}
    if edit.number and not same and not pass_.preserves_computation:
        raise ValueError("the number is none of the replacement's")
    made = Source(facts, calls, arguments=arguments, returns=returns, choices=Choices(same))
    source = made.written(_REPLACEMENT)
    return compiled(source, _REPLACEMENT), source


def _free(taken: Mapping[str, Any]) -> str:
    return next(name for name in variants("number") if name not in taken)
