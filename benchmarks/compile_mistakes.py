"""Mistakes in passes of ``torch.compile``, planted one at a time and looked for with ``fxlab.bisect``."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

import fxlab
from benchmarks.compile_models import small
from fxlab.compiler import CompileSession
from fxlab.compiler.recording.hooks import pass_name

PLACES = (
    "pre_grad_custom_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)
WITH_GRADIENTS = "joint_custom_pre_pass"
aten = torch.ops.aten


def mistakes_in(name: str) -> Iterator[dict[str, Any]]:
    """Plant a mistake at each place where a user's pass can stand, and in one match of a pattern."""
    model, inputs = small(name)
    for place, training in [*((place, False) for place in PLACES), (WITH_GRADIENTS, True)]:
        session = fxlab.compiler.compile_session(model, inputs, training=training, options={place: a_mistake})
        yield found(name, f"{place}, with gradients" if training else place, session, "a_mistake")
    apply, wrong = pattern_with_a_mistake(model, inputs)
    session = fxlab.compiler.compile_session(model, inputs, options={"post_grad_custom_post_pass": apply})
    row = found(name, "one match of a pattern", session, "adds")
    excluded = fxlab.bisect(session).rewrites
    session.exclude("post_grad/adds", *excluded)
    if not session.verdict().agrees:
        raise AssertionError(f"{name}: the mistake is not in {excluded}, but in {wrong}")
    yield row


def mistakes_in_own_passes(name: str) -> Iterator[dict[str, Any]]:
    """Plant a mistake in each pass of the compiler's own that runs over a model, one at a time."""
    model, inputs = small(name)
    with mistake_in("") as ran:
        fxlab.compiler.compile_session(model, inputs)
    for planted in dict.fromkeys(ran):
        with mistake_in(planted):
            session = fxlab.compiler.compile_session(model, inputs)
            yield found(name, "a pass of the compiler's own", session, planted)


@contextmanager
def mistake_in(planted: str) -> Iterator[list[str]]:
    """Let a pass make a mistake beside what it does; yields the names of passes that have run over a sum."""
    ran: list[str] = []

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(observer: Any, function: Any) -> Any:
            result, graph = original(observer, function), observer.gm.graph
            name = pass_name(observer.passname, function)
            if sums(graph):
                ran.append(name)
                if name == planted:
                    a_mistake(graph)
            return result

        return apply

    kinds = ("apply_graph_pass", "apply_gm_pass")
    made = {kind: around(getattr(GraphTransformObserver, kind)) for kind in kinds}
    with mock.patch.multiple(GraphTransformObserver, **made):
        yield ran


def found(name: str, place: str, session: CompileSession, planted: str) -> dict[str, Any]:
    """Return a row that says what was found of a mistake.

    Raises
    ------
    AssertionError
        If it is another pass, or none.
    """
    started = time.perf_counter()
    bisection = fxlab.bisect(session)
    if bisection is None or not bisection.pass_.name.endswith(f"/{planted}"):
        raise AssertionError(f"{name}: {place} has a mistake, but bisect finds {bisection}")
    rewrites = ", ".join(bisection.rewrites)
    return {
        "model": name,
        "place": place,
        "found": bisection.pass_.name + (f": {rewrites}" if rewrites else ""),
        "runs": bisection.runs,
        "seconds": round(time.perf_counter() - started, 1),
    }


def sums(graph: Graph) -> list[Node]:
    """Return the nodes that add two tensors of floats."""
    targets = (aten.add.Tensor, torch.add, "add", operator.add, operator.iadd)
    return [
        node
        for node in graph.nodes
        if node.target in targets
        and len(node.args) == 2
        and all(isinstance(argument, Node) for argument in node.args)
        and is_float(node)
    ]


def is_float(node: Node) -> bool:
    """Tell whether a node computes floats."""
    value = node.meta.get("val", node.meta.get("example_value"))
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1


def a_mistake(graph: Graph) -> None:
    """Halve the first operand of the sum in the middle; the second may be a bias of zeros."""
    nodes = sums(graph)
    node = nodes[len(nodes) // 2]
    with graph.inserting_before(node):
        mul = torch.mul if "example_value" in node.meta else aten.mul.Tensor
        half = graph.call_function(mul, (node.args[0], 0.5))
    half.meta.update(node.args[0].meta)
    node.args = (half, node.args[1])


def pattern_with_a_mistake(model: nn.Module, inputs: Any) -> tuple[Callable[[Graph], Any], str]:
    """Return a pass that rewrites each sum, one of them wrongly, and which one that is."""
    from torch._inductor.pattern_matcher import (
        CallFunction,
        KeywordArg,
        PatternMatcherPass,
        register_graph_pattern,
    )

    names: list[str] = []
    fxlab.compiler.compile_session(
        model,
        inputs,
        options={"post_grad_custom_post_pass": lambda graph: names.extend(map(str, sums(graph)))},
    )
    wrong = names[len(names) // 2]
    patterns = PatternMatcherPass("adds")

    @register_graph_pattern(
        CallFunction(aten.add.Tensor, KeywordArg("a"), KeywordArg("b")), pass_dict=patterns
    )
    def other_way_round(match: Any, a: Any, b: Any) -> None:
        node = match.output_node()
        if not isinstance(a, Node) or not isinstance(b, Node):
            return
        with node.graph.inserting_before(node):
            new = node.graph.call_function(aten.add.Tensor, (b, a))
            if node.name == wrong:
                new = node.graph.call_function(aten.relu.default, (new,))  # a norm would hide a factor
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)

    return patterns.apply, wrong
