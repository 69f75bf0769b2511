"""How long large pictures take to lay out, and how that grows: a script of its own, as there is no peer.

Run it with ``python -m benchmarks.layouts``. It opens every group of four kinds of graphs of 250 to 2,000
boxes, whose lines skip far: a chain that reads ten nodes back, dense blocks, a U-Net, a flat transformer. It
prints the seconds from the view to Graphviz's answer and the exponent of their growth (1 is linear).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pandas as pd
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks import measured
from benchmarks.measure import seconds
from benchmarks.pictures import without_cache
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import outline
from fxlab.drawing.rendering.layout import lay_out, start_layout_worker

SIZES = 250, 500, 1000, 2000
ROUNDS = 3


def chain(size: int) -> fx.GraphModule:
    """Return calls in a row that each read the one before and the one ten before."""
    return _graph(size, lambda made: (made[-1], made[-min(10, len(made))]))


def dense(size: int) -> fx.GraphModule:
    """Return blocks of sixteen calls, each of which reads all before it in its block."""
    return _graph(size, lambda made: tuple(made[len(made) // 16 * 16 - 1 :]) if len(made) > 16 else (*made,))


def u_net(size: int) -> fx.GraphModule:
    """Return a way down, and a way up that reads each step of the way down, the last first."""

    def reads(made: list[fx.Node]) -> tuple[fx.Node, ...]:
        return made[-1], made[size - len(made) if len(made) > size / 2 else -1]

    return _graph(size, reads)


def _graph(size: int, reads: Callable[[list[fx.Node]], tuple[fx.Node, ...]]) -> fx.GraphModule:
    graph = fx.Graph()
    made = [graph.placeholder("x")]
    while len(made) < size - 1:
        made.append(graph.call_function(torch.cat, (reads(made),)))
    graph.output(made[-1])
    return fx.GraphModule(nn.Module(), graph)


def flat_transformer(size: int) -> fx.GraphModule:
    """Return a transformer as one list of operators, whose parameters are inputs."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, max(1, size // 73), enable_nested_tensor=False)

    def called(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.func.functional_call(model, parameters, (x,))
        return output

    flat: fx.GraphModule = make_fx(called)(dict(model.named_parameters()), torch.ones(1, 4, 16))
    return flat


GRAPHS = {"chain": chain, "dense block": dense, "U-Net": u_net, "flat transformer": flat_transformer}


def rows() -> Iterator[dict[str, object]]:
    """Yield a row for each kind of graph."""
    for name, make in GRAPHS.items():
        row: dict[str, object] = {"graph": name}
        points = []
        for size in SIZES:
            hierarchy = build_hierarchy(make(size))
            opened = frozenset(hierarchy.groups) - {hierarchy.root.path}

            def draw(hierarchy: object = hierarchy, opened: frozenset[str] = opened) -> None:
                view = View(hierarchy, opened)  # type: ignore[arg-type]
                lay_out(outline(view, make_boxes(view, {}, ())), timeout=120)

            boxes = len(View(hierarchy, opened).boxes)
            points.append((boxes, min(seconds(draw) for _ in range(ROUNDS))))
            row |= {f"boxes {size}": boxes, f"seconds {size}": points[-1][1]}
        (first, least), (last, most) = points[0], points[-1]
        yield row | {"exponent": math.log(most / least) / math.log(last / first)}


def main() -> None:
    """Measure, print and write the table."""
    without_cache()
    start_layout_worker()
    table = pd.DataFrame(rows())
    print(table.set_index("graph").T.round(2).to_string())
    most = {size: table[f"seconds {size}"].max() for size in (500, 2000)}
    figure = f"at most {most[500]:.1f} s for 500 boxes, {most[2000]:.1f} s for 2,000; "
    figure += f"exponents {table['exponent'].min():.1f} to {table['exponent'].max():.1f}"
    measured.write("python -m benchmarks.layouts", figure, {"layouts": table})


if __name__ == "__main__":
    main()
