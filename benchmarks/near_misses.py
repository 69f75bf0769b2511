"""Whether the condition that a machine has broken is the first that a near miss names.

``python -m benchmarks.near_misses`` makes one change at a place where a well-known rewrite matches: another
operator, another number, one call more, a second reader, a write in place, another value. The pattern does
not match then, and is to say what was changed.
"""

import argparse
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch.fx import GraphModule, Node, symbolic_trace
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional

import fxlab
from benchmarks.patterns import REWRITES, rotated

OTHERS = {
    **{operator.add: operator.mul, operator.mul: operator.add, operator.sub: operator.add},
    **{operator.truediv: operator.mul, operator.neg: torch.abs, torch.matmul: torch.sub},
    **{
        torch.sigmoid: torch.tanh,
        torch.tanh: torch.sigmoid,
        torch.rsqrt: torch.sqrt,
        torch.sqrt: torch.rsqrt,
    },
    **{torch.softmax: torch.log_softmax, torch.log: torch.exp, functional.silu: functional.gelu},
}
"""Operators of the same arguments."""


def attention(q, k, v, mask):
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * 0.25 + mask, dim=-1), v)


def repeated(x):
    return x[:, :, None, :, :].expand(2, 4, 3, 4, 4).reshape(2, 12, 4, 4)


def two_layers(x, a, b):
    return functional.linear(functional.gelu(functional.linear(x, a)), b)


X, W = (2, 4, 4, 4), (4,)
PLACES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "rms_norm": (REWRITES["rms_norm"][1], lambda x, w: REWRITES["rms_norm"][1](x, w, 1e-6), (X, W)),
    "layer_norm": (
        REWRITES["layer_norm"][1],
        lambda x, w, b: REWRITES["layer_norm"][1](x, w, b, 1e-6),
        (X, W, W),
    ),
    "attention": (REWRITES["attention"][1], attention, (X, X, X, (4, 4))),
    "gelu": (REWRITES["gelu"][1], REWRITES["gelu"][1], (X,)),
    "silu": (REWRITES["silu"][1], REWRITES["silu"][1], (X,)),
    "rotary": (REWRITES["rotary"][1], lambda x, c, s: (x * c) + (rotated(x) * s), (X, X, X)),
    "swiglu": (REWRITES["swiglu"][1], REWRITES["swiglu"][1], (X, (4, 4), (4, 4))),
    "softmax_max": (REWRITES["softmax_max"][1], REWRITES["softmax_max"][1], (X,)),
    "log_softmax": (REWRITES["log_softmax"][1], lambda x: torch.log(torch.softmax(x, -1)), (X,)),
    "mean_subtract": (REWRITES["mean_subtract"][1], REWRITES["mean_subtract"][1], (X,)),
    "residual_scale": (REWRITES["residual_scale"][1], REWRITES["residual_scale"][1], (X, X)),
    "two_layers": (two_layers, two_layers, (X, (4, 4), (4, 4))),
    "repeat_kv": (REWRITES["repeat_kv"][1], repeated, (X,)),
}
"""For each rewrite the pattern, a place that it matches, and the shapes of the inputs."""


@dataclass(frozen=True)
class Mutant:
    """A graph with one change, and the names by which a reason may call it."""

    kind: str
    graph_module: GraphModule
    names: tuple[str, ...]


def around(place: Callable[..., Any], count: int) -> GraphModule:
    """Trace a place between other calls."""
    names = ", ".join(f"i{n}" for n in range(count))
    namespace: dict[str, Any] = {"place": place, "torch": torch}
    exec(f"def model({names}):\n    return torch.sin(place({names})) + 1", namespace)
    return symbolic_trace(namespace["model"])


def mutants(place: Callable[..., Any], shapes: tuple[Any, ...]) -> Iterator[Mutant]:
    """Yield graphs with one change each."""
    count = len(around(place, len(shapes)).graph.nodes)
    for kind in CHANGES:
        for index in range(count):
            for choice in range(3):
                gm = around(place, len(shapes))
                node = list(gm.graph.nodes)[index]
                inside = (
                    node.op.startswith("call_") and node.name not in ("sin",) and node.target is not torch.sin
                )
                is_end = node.op == "call_function" and node.target is operator.add and node.args[1] == 1
                names = CHANGES[kind](gm, node, choice) if inside and not is_end else ()
                if not names:
                    break
                gm.recompile()
                try:
                    mode = torch._subclasses.FakeTensorMode()
                    FakeTensorProp(gm, mode).propagate(*map(torch.ones, shapes))
                except Exception:  # the change is none that runs
                    continue
                yield Mutant(kind, gm, names)


def other_operator(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    if choice or node.target not in OTHERS:
        return ()
    node.target = OTHERS[node.target]  # type: ignore[index]
    return (node.name,)


def other_number(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    places = [n for n, each in enumerate(node.args) if type(each) in (int, float)]
    keys = [key for key, each in node.kwargs.items() if type(each) in (int, float)]
    chosen = [*places, *keys][choice : choice + 1]
    for at in chosen:
        if isinstance(at, int):
            value: Any = node.args[at]
            node.update_arg(at, value * 1.5 if type(value) is float else value - 1)
        else:
            number: Any = node.kwargs[at]
            node.update_kwarg(at, number * 1.5 if type(number) is float else number - 1)  # type: ignore[arg-type]
    return (node.name,) if chosen else ()


def one_more(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    if choice or any(user.target is torch.sin for user in node.users):
        return ()
    with gm.graph.inserting_after(node):
        made = gm.graph.call_function(torch.cos, (node,))
    node.replace_all_uses_with(made)
    made.args = (node,)
    return (made.name, node.name)


def second_reader(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    if choice or any(user.target is torch.sin for user in node.users):
        return ()
    output = gm.graph.output_node()
    output.args = ((output.args[0], node),)
    return (node.name,)


def write(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    if choice or any(user.target is torch.sin for user in node.users):
        return ()
    with gm.graph.inserting_after(node):
        made = gm.graph.call_method("add_", (node, 1))
    return (node.name, made.name)


def other_value(gm: GraphModule, node: Node, choice: int) -> tuple[str, ...]:
    read = [each for each in node.all_input_nodes if each.op == "placeholder" and len(each.users) > 1]
    if choice >= len(read):
        return ()
    with gm.graph.inserting_before(node):
        made = gm.graph.call_function(torch.cos, (read[choice],))
    node.replace_input_with(read[choice], made)
    return (made.name, read[choice].name)


CHANGES: dict[str, Callable[[GraphModule, Node, int], tuple[str, ...]]] = {
    "operator": other_operator,
    "number": other_number,
    "one more": one_more,
    "second reader": second_reader,
    "write": write,
    "value": other_value,
}


def rank(mutant: Mutant, pattern: Callable[..., Any]) -> int | None:
    """Return the place of the reason that names the change; -1 for none, ``None`` if the pattern matches."""
    pass_ = fxlab.from_pattern(pattern, pattern, name="p")
    attempts = pass_.attempts(mutant.graph_module)
    if any(attempt.matched for attempt in attempts):
        return None
    for number, attempt in enumerate(attempts):
        told = {attempt.at, *attempt.reason.replace(",", " ").replace(";", " ").split()}
        if told & {*mutant.names}:
            return number
    return -1


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each change that breaks a match."""
    for name, (pattern, place, shapes) in PLACES.items():
        for mutant in mutants(place, shapes):
            found = rank(mutant, pattern)
            if found is not None:
                yield {"rewrite": name, "change": mutant.kind, "rank": found, "names": mutant.names}


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--missed", action="store_true", help="list the changes that are not named first")
    table = pd.DataFrame(rows())
    table = table.assign(first=table["rank"] == 0, of_three=table["rank"].between(0, 2))
    if parser.parse_args().missed:
        print(table[~table["first"]].to_string())
    print(table.groupby("change")[["first", "of_three"]].agg(["mean", "count"]).round(2).to_string())
    print(table[["first", "of_three"]].mean().round(3).to_string(), len(table))


if __name__ == "__main__":
    main()
