"""Places like some nodes: the pattern of these, its matches, and a function of torch in their place."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.fx import Graph, GraphModule
from torch.nn import functional

from fxlab.models.free_paths import variants
from fxlab.node_info import module_path
from fxlab.reasons import Refusal
from fxlab.session import Session
from fxlab.transformations.patterns.example import source_of
from fxlab.transformations.patterns.from_pattern import find_matches, from_pattern
from fxlab.transformations.patterns.match import Match
from fxlab.transformations.patterns.pattern_pass import PatternPass
from fxlab.transformations.patterns.source import Choices, Source, compiled, with_imports
from fxlab.units import counted
from fxlab.view_model.protocol import Chip, OthersFound, ReplacedBy, Role
from fxlab.view_model.wire import clip

EXACT, CAPTURED = "exact", "captured"
KINDS = {"any value": "", "a tensor": "torch.Tensor", "a weight": "torch.nn.Parameter", "a number": "float"}
"""Words for the kind of an argument, and its annotation."""
_MOST_ROLES = 20_000
_MOST_MODULES = 12
_MOST_PERMUTED = 3
"""Arguments of which every order is tried."""


@functools.cache
def torch_functions() -> dict[str, str]:
    """Return the functions that may replace a match, by the names that a person enters.

    They are those of ``torch`` and ``torch.nn.functional`` that compute with tensors, as torch itself lists
    them; none of them writes its arguments.
    """
    known = torch.overrides.get_overridable_functions()
    found = {}
    for owner, prefix in ((functional, "torch.nn.functional"), (torch, "torch")):
        names = {str(getattr(each, "__name__", "")) for each in known[owner]}
        for name in sorted(names):
            made = getattr(owner, name, None)
            is_plain = name.isidentifier() and not name.startswith("_") and not name.endswith("_")
            if is_plain and callable(made) and not isinstance(made, type):
                found[f"{prefix}.{name}"] = f"{prefix}.{name}"
    short = {name.replace("torch.nn.functional", "F"): name for name in found}
    return {**short, **found}


class Replacing(NamedTuple):
    """A pass that replaces some nodes by a function of torch."""

    pass_: PatternPass
    source: str
    judgement: ReplacedBy


@dataclass(frozen=True)
class Others:
    """The pattern of some nodes; ``choices``: the chosen values, by keys of chips."""

    graph_module: GraphModule
    nodes: Sequence[str]
    choices: Mapping[str, str]

    @functools.cached_property
    def _plain(self) -> Source:
        plain = source_of(self.graph_module, self.nodes)
        plain.written("pattern")
        return plain

    @functools.cached_property
    def _chosen(self) -> Choices:
        plain = self._plain
        captured: dict[str, str] = {}
        names = variants("number")
        for key in plain.literals:
            same = self._same_as(key)
            chosen = self._choice(key, (EXACT, CAPTURED, *same))
            if chosen != EXACT:
                first = same.get(chosen, key)
                if first not in captured:
                    captured[first] = next(name for name in names if name not in plain.arguments)
                captured[key] = captured[first]
        kinds = {
            name: KINDS[self._choice(name, tuple(KINDS), _kind_of(annotation))]
            for name, annotation in plain.arguments.items()
        }
        return Choices(captured, kinds)

    @functools.cached_property
    def _source(self) -> Source:
        return source_of(self.graph_module, self.nodes, self._chosen)

    def new_pass(self) -> str:
        """Return a pass for the nodes, with its test, as Python."""
        from fxlab.session.written_test import written_pass

        return written_pass(self.graph_module, self.nodes, self._chosen)

    @functools.cached_property
    def pattern(self) -> str:
        """The source of the pattern."""
        return self._source.written("pattern")

    def _same_as(self, key: str) -> dict[str, str]:
        """Return the earlier numbers that one is equal to: their keys, by the words of a choice."""
        literals, found = self._plain.literals, dict[str, str]()
        for other in itertools.takewhile(lambda other: other != key, literals):
            if literals[other] == literals[key]:
                found.setdefault(f"same as in {clip(other.rpartition(':')[0], 300)}", other)
        return found

    def _choice(self, key: str, options: Sequence[str], usual: str | None = None) -> str:
        chosen = self.choices.get(key, options[0] if usual is None else usual)
        if chosen not in options:
            raise ValueError(f"{key} is {' or '.join(options)}, not {clip(chosen, 80)!r}.")
        return chosen

    def chips(self) -> list[Chip]:
        """Return the choices of the pattern: numbers, then arguments."""
        plain, kinds = self._plain, [*KINDS]
        found: list[Chip] = []
        for key, text in plain.literals.items():
            words = clip(f"{text} in {key.rpartition(':')[0]}", 300)
            options = [EXACT, CAPTURED, *self._same_as(key)]
            chosen = self._choice(key, options)
            chosen = CAPTURED if chosen == EXACT and key in self._chosen.captured else chosen
            found.append({"key": key, "words": words, "chosen": chosen, "options": options})
        for name, annotation in plain.arguments.items():
            chosen = self._choice(name, kinds, _kind_of(annotation))
            found.append({"key": name, "words": name, "chosen": chosen, "options": kinds})
        return found

    def matches(self) -> list[Match]:
        """Return the places that the pattern matches."""
        return find_matches(self.graph_module, compiled(self.pattern, "pattern"))

    def replaced(self, name: str) -> Replacing:
        """Return a pass that replaces the matches by a function of torch.

        It promises to preserve the computation. Of the orders of its arguments it takes the first that is
        confirmed, or the one of the pattern. Raises ValueError if torch has no such function.
        """
        function = torch_functions().get(name.strip())
        if function is None:
            raise ValueError(
                f"No function of torch or torch.nn.functional that computes with tensors is called "
                f"{clip(name, 80)!r}."
            )
        pattern, text = compiled(self.pattern, "pattern"), self.pattern
        kinds = {**self._source.arguments, **self._source.choices.kinds}
        found: list[Replacing] = []
        for order in _orders(kinds):
            source = f"def replacement({', '.join(kinds)}):\n    return {function}({', '.join(order)})\n"
            called = f"to-{function.rpartition('.')[2].replace('_', '-')}"
            made = from_pattern(
                pattern, compiled(source, "replacement"), name=called, preserves_computation=True
            )
            given = f"pattern, replacement, name={called!r}, preserves_computation=True"
            whole = with_imports(text, source, f"others = fxlab.from_pattern({given})")
            found.append(Replacing(made, whole, _in_words(made.judged(self.graph_module))))
            if found[-1].judgement["canAdd"]:
                return found[-1]
        return found[0]


def found_others(
    session: Session, nodes: Sequence[str], choices: Mapping[str, str], replacement: str, *, between: bool
) -> OthersFound:
    """Return the places of the present model that are like some nodes, for the page.

    ``nodes``: names of the nodes. ``choices``: keys of chips, and the chosen values. ``replacement``: the
    name of a function of torch to put in their place; empty for none. ``between``: whether the nodes between
    them belong to them. Raises ValueError if the nodes make no pattern.
    """
    graph_module = session.graph_module
    chosen = _with_between(graph_module.graph, nodes) if between else list(nodes)
    others = Others(graph_module, chosen, choices)
    matches = others.matches()
    roles: dict[str, Role] = {}
    for match in matches:
        prefix = match.index.facts.prefix
        names = [f"{prefix}{node.name}" for node in match.nodes]
        if len(roles) < _MOST_ROLES:
            roles |= dict.fromkeys(map(clip, names), "fits")
    roles |= dict.fromkeys(map(clip, chosen), "picked")
    source = with_imports(others.pattern, "matches = fxlab.rewriting.find_matches(session.graph_module, pattern)")
    replaced: ReplacedBy | None = None
    if replacement.strip():
        try:
            _, source, replaced = others.replaced(replacement)
        except ValueError as error:  # no function, or one that does not take the pattern's arguments
            replaced = {"words": clip(str(error), 1_000), "canAdd": False}
    places = Counter(module_path(match.roots[0]) or "the model" for match in matches).most_common()
    shown = [*places[:_MOST_MODULES]]
    if rest := places[_MOST_MODULES:]:
        shown.append((f"{len(rest)} more", sum(count for _, count in rest)))
    return {
        "nodes": [clip(name) for name in chosen],
        "pattern": clip(others.pattern, 20_000),
        "source": clip(source, 40_000),
        "chips": others.chips(),
        "count": len(matches),
        "modules": [{"name": clip(name, 300), "count": count} for name, count in shown],
        "stage": len(session.applied),
        "roles": roles,
        "replaced": replaced,
    }


def _in_words(judged: Sequence[tuple[Match, Refusal | None, bool]]) -> ReplacedBy:
    confirmed = sum(is_confirmed for _, _, is_confirmed in judged)
    unknown = sum(why is None and not is_confirmed for _, why, is_confirmed in judged)
    reasons = Counter(why.words for _, why, _ in judged if why is not None).most_common(2)
    words = [f"The same results at {confirmed} of {counted(len(judged), 'place')}"]
    words += [f"{count} left alone: {reason}" for reason, count in reasons]
    if unknown:
        words.append(f"{unknown} not compared, since shapes are unknown or random numbers do not do")
    return {"words": clip(". ".join(words) + ".", 1_000), "canAdd": confirmed > 0 and unknown == 0}


def _kind_of(annotation: str) -> str:
    return next(words for words, kind in KINDS.items() if kind == annotation)


def _orders(kinds: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield orders of arguments, that of the pattern first; numbers may be left out."""
    tensors = tuple(name for name, kind in kinds.items() if kind != "float")
    for given in dict.fromkeys((tuple(kinds), tensors)):
        yield from itertools.permutations(given) if 0 < len(given) <= _MOST_PERMUTED else [given]


def _with_between(graph: Graph, names: Sequence[str]) -> list[str]:
    """Return nodes, and those on the paths between them."""
    wanted = {node for node in graph.nodes if node.name in names}
    after, before = {*wanted}, {*wanted}
    for node in graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    for node in reversed(graph.nodes):
        if not before.isdisjoint(node.users):
            before.add(node)
    inside = (after & before) | wanted
    return [str(node.name) for node in graph.nodes if node in inside]
