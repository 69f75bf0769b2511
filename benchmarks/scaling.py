"""What every pass costs by itself on graphs of up to 100,000 nodes, and how the cost grows.

``python -m benchmarks.scaling [names of passes]`` prints a row for each pass: its cost without lint and
recompile, as a ratio to torch's own lint and recompile of the same graph, and the exponent with which the
seconds grow (1 is linear); the same for reversing it. There are three graphs: a dense one, in which the pass
changes something every few nodes; a mixed one, in which each pass has as much to do as others; and an idle
one, in which there is nothing to do.
"""

import gc
import math
import operator
import sys
from collections.abc import Callable

import pandas as pd
import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.nn import functional

from benchmarks.measure import seconds
from fxlab.transformations import ReversibleTransformation, available

SIZES = 25_000, 50_000, 100_000
ROUNDS = 2


class Builder:
    """Adds blocks to a graph, each with modules of its own."""

    def __init__(self) -> None:
        self.graph, self.root = Graph(), nn.Module()
        self.last = self._known(self.graph.placeholder("x"))
        self._frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def function(self, target: Callable, *args: object) -> Node:
        """Add the call of a function."""
        return self._known(self.graph.call_function(target, args))  # type: ignore[arg-type]

    def method(self, target: str, *args: object) -> Node:
        """Add the call of a method."""
        return self._known(self.graph.call_method(target, args))  # type: ignore[arg-type]

    def module(self, module: nn.Module, value: Node) -> Node:
        """Add the call of a module of its own."""
        path = f"block_{len(self.graph.nodes)}"
        self.root.add_module(path, module)
        return self._known(self.graph.call_module(path, (value,)))

    def frozen(self) -> Node:
        """Add the reading of a parameter that is not trained."""
        path = f"frozen_{len(self.graph.nodes)}"
        self.root.register_parameter(path, nn.Parameter(torch.ones(4, 4), requires_grad=False))
        return self.graph.get_attr(path)

    def finish(self) -> GraphModule:
        """Return the whole in evaluation mode."""
        self.graph.output(self.last)
        return GraphModule(self.root.eval(), self.graph)

    @staticmethod
    def _known(node: Node) -> Node:
        node.meta["val"] = _VALUE
        return node


_VALUE = torch.empty(2, 4, 4, device="meta")
_RELU = nn.ReLU().eval()


def dead(b: Builder) -> None:
    b.method("sum", b.method("neg", b.last))
    b.last = b.function(torch.relu, b.function(torch.tanh, b.last))


def identities(b: Builder) -> None:
    value = b.function(torch.relu, b.module(nn.Identity(), b.last))
    b.last = b.function(operator.add, value, b.function(functional.dropout, value, 0.5, False))


def constants(b: Builder) -> None:
    weight = b.method("t", b.function(operator.mul, b.frozen(), 2))
    b.last = b.function(torch.matmul, b.last, weight)


def repetitions(b: Builder) -> None:
    once, again = (b.function(torch.relu, b.last) for _ in range(2))
    b.last = b.function(operator.add, b.method("tanh", once), b.method("tanh", again))


def conv_and_norm(conv: Callable, norm: Callable) -> Callable[[Builder], None]:
    return lambda b: residual(b, lambda x: b.module(norm(4), b.module(conv(4, 4, 1), x)))


def linear_and_norm(b: Builder) -> None:
    def layers(x: Node) -> Node:
        linear = b.module(nn.Linear(4, 4), x)
        norm = b.module(nn.BatchNorm1d(4), linear)
        for node in (x, linear, norm):
            node.meta["val"] = _VALUE[0]
        return norm

    residual(b, layers)


def residual(b: Builder, layers: Callable[[Node], Node]) -> None:
    b.last = b.function(operator.add, b.last, b.function(torch.relu, layers(b.last)))


def linears(b: Builder) -> None:
    query, key, value = (b.module(nn.Linear(4, 4), b.last) for _ in range(3))
    scores = b.function(torch.matmul, query, b.method("transpose", key, -1, -2))
    b.last = b.function(operator.add, b.last, b.function(torch.matmul, scores, value))


def linear(b: Builder) -> None:
    residual(b, lambda x: b.module(nn.Linear(4, 4), x))


def attention(b: Builder) -> None:
    scores = b.function(torch.matmul, b.last, b.method("transpose", b.last, -1, -2))
    probabilities = b.function(torch.softmax, b.function(operator.truediv, scores, 8), -1)
    b.last = b.function(operator.add, b.last, b.function(torch.matmul, probabilities, b.last))


def division(b: Builder) -> None:
    b.last = b.function(torch.relu, b.function(operator.truediv, b.last, 3))


def nothing(b: Builder) -> None:
    value = b.function(torch.relu, b.function(torch.tanh, b.last))
    b.last = b.function(operator.add, b.last, b.module(_RELU, value))


BLOCKS: dict[str, Callable[[Builder], None]] = {
    "remove-dead-code": dead,
    "remove-identities": identities,
    "fold-constants": constants,
    "eliminate-common-subexpressions": repetitions,
    "fuse-batch-norm2d-in-conv2d": conv_and_norm(nn.Conv2d, nn.BatchNorm2d),
    "fuse-batch-norm1d-in-conv1d": conv_and_norm(nn.Conv1d, nn.BatchNorm1d),
    "fuse-batch-norm3d-in-conv3d": conv_and_norm(nn.Conv3d, nn.BatchNorm3d),
    "fuse-batch-norm-in-conv-transpose": conv_and_norm(nn.ConvTranspose2d, nn.BatchNorm2d),
    "fuse-batch-norm1d-in-linear": linear_and_norm,
    "merge-linears": linears,
    "fuse-bias-in-linear": linear,
    "fuse-attention": attention,
    "change-true-div-to-mul-by-inverse": division,
}
"""What the graph for each pass is made of: small blocks, each with something that the pass changes."""


def mixed(b: Builder) -> None:
    """Add a block for each pass, one after the other."""
    for block in BLOCKS.values():
        block(b)
        b._known(b.last)


def build(block: Callable[[Builder], None], size: int) -> GraphModule:
    """Return a graph module of about that many nodes."""
    builder = Builder()
    while len(builder.graph.nodes) < size - 1:
        block(builder)
    return builder.finish()


def costs(pass_: ReversibleTransformation, gm: GraphModule) -> dict[str, float]:
    """Return the least of some measurements in seconds: of the pass, its reversal, and lint and recompile."""

    def lint_and_recompile() -> None:
        gm.graph.lint()
        gm.recompile()

    tasks: dict[str, Callable[[], object]] = {
        "lint and recompile": lint_and_recompile,
        "apply": lambda: pass_(gm, lint_and_recompile=False),
        "reverse": lambda: pass_(gm, lint_and_recompile=False, reverse=True),
    }
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        rounds.append({name: seconds(task) for name, task in tasks.items()})
    return {name: min(one[name] for one in rounds) for name in tasks}


def row(pass_: ReversibleTransformation, shared: dict[str, dict[int, GraphModule]]) -> dict[str, object]:
    """Measure one pass on the graphs that all share, and on a dense one of its own."""
    result: dict[str, object] = {"pass": pass_.name}
    block = BLOCKS[str(pass_.name)]
    for kind in ("dense", "mixed", "idle"):
        measured = {}
        for size in SIZES:
            gm = build(block, size) if kind == "dense" else shared[kind][size]
            measured[size] = costs(pass_, gm)
            if size == SIZES[0] and bool(pass_.explain(gm).matched.any()) != (kind != "idle"):
                raise AssertionError(f"{pass_.name} does not find what it should in the {kind} graph.")
        largest, smallest = measured[SIZES[-1]], measured[SIZES[0]]
        for task in ("apply", "reverse"):
            result[f"{kind} {task} [s]"] = largest[task]
            result[f"{kind} {task} ratio"] = largest[task] / largest["lint and recompile"]
            growth = math.log(largest[task] / smallest[task], SIZES[-1] / SIZES[0])
            result[f"{kind} {task} exponent"] = growth
    return result


def main() -> None:
    """Measure all passes, or those that are named, and print each as soon as it is known."""
    torch.set_num_threads(1)
    blocks = {"mixed": mixed, "idle": nothing}
    shared = {kind: {size: build(block, size) for size in SIZES} for kind, block in blocks.items()}
    rows = []
    for cls in available():
        pass_ = cls()
        if not sys.argv[1:] or str(pass_.name) in sys.argv[1:]:
            rows.append(row(pass_, shared))  # type: ignore[arg-type]
            print(pd.Series(rows[-1]).to_frame().T.round(2).to_string(index=False), flush=True)
    print(pd.DataFrame(rows).set_index("pass").astype(float).round(2).T.to_string())


if __name__ == "__main__":
    main()
