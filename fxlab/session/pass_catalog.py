"""The transformations that a session offers, found by name, by signature or by a node they have changed."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from torch.fx import GraphModule

from fxlab.base.words import all_listed
from fxlab.graphs.unfolded import unfolded
from fxlab.operators.node_info import nodes_at
from fxlab.session.history import Candidate, History, Switches
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.candidate_filter import not_limitable
from fxlab.transformations.registry import Pass, as_pass, no_such_pass
from fxlab.transformations.signature import arguments_of


class PassCatalog:
    """The transformations that are on offer, or can come back by undo."""

    def __init__(self) -> None:
        self._passes: dict[str, Transformation] = {}
        self._signatures: dict[str, str] = {}
        """Those that they had when they were added: a digest takes as long as the arguments are large."""

    def copy(self) -> PassCatalog:
        """Return a copy."""
        other = PassCatalog()
        other._passes, other._signatures = {**self._passes}, {**self._signatures}
        return other

    def add(self, pass_: Transformation, history: History, argument: str) -> Switches:
        """Return the switches with one more transformation on offer.

        Parameters
        ----------
        pass_
            The transformation.
        history
            The history; a pass that is no longer on offer is known as long as undo can bring it back.
        argument
            The name of the argument for error messages.
        """
        switches, name, signature = history.now, str(pass_.name), pass_.signature
        kept = {other for entry in history.past for other in entry.offered}
        others = {self._signatures[other] for other in switches.offered}
        known = self._signatures[name] if name in kept else signature
        if name in switches.offered or signature in others or known != signature:
            raise ValueError(
                f"passes: {name!r} is offered already, or was before. "
                "Give a pass with other arguments a name of its own: pass_.named('other')."
            )
        if name not in switches.offered:
            self._passes[name], self._signatures[name] = pass_, signature
        return replace(switches, offered=(*switches.offered, name))

    def is_defined_anew(self, pass_: Transformation) -> bool:
        """Tell whether a transformation is a known one whose class or functions have other code now."""
        known = self._passes.get(name := str(pass_.name))
        if known is None or known is pass_ or definition_of(known) != definition_of(pass_):
            return False
        return self._signatures[name] != pass_.signature

    def exchange(self, pass_: Transformation) -> Transformation:
        """Replace the transformation of the same name, and return it."""
        name = str(pass_.name)
        former = self._passes[name]
        self._passes[name], self._signatures[name] = pass_, pass_.signature
        return former

    def know(self, pass_: Transformation) -> None:
        """Add a transformation that the switches will offer."""
        if (name := str(pass_.name)) not in self._passes:
            self._passes[name], self._signatures[name] = pass_, pass_.signature

    def find(self, pass_: Pass, switches: Switches) -> str:
        """Return the name of a transformation that is on offer; raises TypeError or ValueError for others."""
        if isinstance(pass_, str):
            if pass_ not in switches.offered:
                raise no_such_pass(pass_, switches.offered)
            return pass_
        made = as_pass(pass_, "pass_")
        if (name := str(made.name)) in switches.offered:
            known = self._passes[name]
            # What a called object counts or keeps changes its signature.
            if known is made or getattr(known, "function", self) is pass_:
                return name
            if made.signature in (
                known.signature,
                self.limited(name, switches.excluded_from(name)).signature,
            ):
                return name
        offered = ", ".join(switches.offered)
        raise ValueError(f"pass_: the session does not offer this {made.name!r}. It offers: {offered}.")

    def limited(self, name: str, excluded: tuple[Candidate, ...]) -> Transformation:
        """Return a transformation that excludes candidates."""
        nodes = [node for candidate in excluded for node in candidate]
        # Candidates depend on the passes below, so an excluded one may not exist now.
        return self._passes[name].exclude(*nodes, missing_ok=True) if nodes else self._passes[name]


def candidates_by_node(
    pass_: Transformation, below: GraphModule, above: GraphModule
) -> Callable[[str], set[Candidate]]:
    """Return a function that finds candidates by their nodes, before or after the rewrite, or by a module.

    ``below``: the module that it is, or would be, applied to. ``above``: the module with all that are on.
    """
    if not isinstance(pass_, CandidatePass):
        raise not_limitable(pass_, pass_.name)
    changed = {node.name for node in pass_.get_transformed_nodes(unfolded(above))}
    rewrites = pass_.rewrites(above)
    candidates = {*pass_.candidates(below), *(record.candidate for record in rewrites)}

    def found(node: str) -> set[Candidate]:
        if node in changed:
            return {record.candidate for record in rewrites if node in record.marked}
        chosen = {candidate for candidate in candidates if node in candidate}
        if not chosen:
            known = sorted({other for candidate in candidates for other in candidate})
            raise ValueError(
                f"{node!r} is neither a node that {pass_.name} has changed nor a candidate of it. "
                f"Its candidates are: {all_listed(known)}."
            )
        return chosen

    def found_in(name: str) -> set[Candidate]:
        inside = {node.name for module in (above, below) for node in nodes_at(module.graph, name)} - {name}
        chosen: set[Candidate] = set()
        for node in sorted(inside):
            with suppress(ValueError):  # nodes that are neither changed nor candidates
                chosen |= found(node)
        return chosen or found(name)

    return found_in


def definition_of(pass_: Transformation) -> tuple[object, ...]:
    """Return the parts of a transformation by name: its class, functions and other arguments."""
    cls = type(pass_)
    arguments = {name: _named(value) for name, value in sorted(arguments_of(pass_).items())}
    return f"{cls.__module__}.{cls.__qualname__}", repr(arguments)


def _named(value: object) -> object:
    """Return an argument with names for functions."""
    if isinstance(value, dict):
        return {name: _named(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value) if not dataclasses.is_dataclass(value) else value
