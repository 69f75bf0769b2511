"""A plain model, passes that do what passes should not, and a page that talks to an inspector."""

from __future__ import annotations

import json
import operator
import zlib
from typing import Any

import torch
from received import Received
from torch import fx, nn

from fxlab import FuseBatchNorm2dInConv2d, MergeLinears, Session, Transformation
from fxlab.notebook.inspector import Inspector


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.query(x)) * self.key(x) / 7.0


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


class Model(nn.Module):
    """Two groups: ``stem`` with a convolution to fuse, ``head`` with linears to merge."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = Stem(), Head()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x))


class MulToAdd(Transformation):
    """Adds where the model multiplies, which is wrong."""

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.mul):
            node.target = operator.add
            self.mark_as_transformed(node)
        return graph_module


class RaiseMidway(Transformation):
    """Takes a module apart and then raises ``error``."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error or KeyError("no such layer")

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        node = next(iter(graph_module.graph.find_nodes(op="call_module", target="stem.norm")))
        node.replace_all_uses_with(node.args[0])
        graph_module.graph.erase_node(node)
        graph_module.delete_submodule("stem.norm")
        raise self._error


class ChangeNothing(Transformation):
    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        return graph_module


FUSE, MERGE = FuseBatchNorm2dInConv2d(), MergeLinears()
MUL_TO_ADD, RAISE = MulToAdd(), RaiseMidway()


def make_session(*passes: Transformation) -> Session:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 3, 6, 6),)
    return Session(
        fx.symbolic_trace(Model().eval()), inputs, passes=passes or (FUSE, MERGE, MUL_TO_ADD, RAISE)
    )


class Page:
    """What a browser is to an inspector: it sends messages, gets messages, and reads traits."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.received: list[dict[str, Any]] = []
        self.buffers: list[bytes] = []
        inspector.send = self._receive
        self.sends({"type": "place", "name": "here", "on": True})
        self.received.clear()

    def _receive(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.received.append(content)
        self.buffers += buffers or []

    def sends(self, content: object) -> list[dict[str, Any]]:
        """Send anything at all, and return what came back."""
        self.received.clear()
        self.buffers.clear()
        self.inspector._handle_msg(
            {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        )
        return list(self.received)

    def sets(self, state: object) -> None:
        """Set traits as a page does."""
        self.inspector._handle_msg({"content": {"data": {"method": "update", "state": state}}, "buffers": []})

    def switches(self, p: Transformation, on: bool) -> list[dict[str, Any]]:
        return self.sends({"type": "toggle", "signature": p.signature, "on": on})

    @property
    def error(self) -> dict[str, Any] | None:
        return self.inspector._shown_status["error"]

    @property
    def outputs(self) -> dict[str, Any]:
        """What is said of the outputs, once a page has painted the graph and asks on."""
        self.asks({"type": "candidates"})
        return self.inspector._shown_tables["outputs"]

    def looks_for_candidates(self) -> None:
        """Ask until all passes have been asked for their candidates, as a page does in the background."""
        for _ in range(1000):
            if self.asks({"type": "candidates"}):
                return
        raise AssertionError("the passes are never all asked")

    def card(self, p: Transformation) -> dict[str, Any]:
        """Return the card of a pass, once all are complete."""
        self.looks_for_candidates()
        return next(
            card for card in self.inspector._shown_passes["passes"] if card["signature"] == p.signature
        )

    @property
    def data(self) -> Received:
        """All that was sent of the graphs, as a page reads it that is opened now."""
        return Received(*(json.loads(zlib.decompress(part)) for part in self.inspector._shown_data))

    @property
    def number(self) -> int:
        """The number of the graph that the page shows."""
        stages, view = self.inspector._shown_stages, self.inspector._shown_view
        if stages["preview"]:
            return int(stages["preview"]["graph"])
        last = len(stages["names"]) - 1
        stage = last if view["stage"] is None else view["stage"]
        before = stage - 1 if view["compared"] == "below" else view["compared"]
        if view["beside"] or before == "":
            return int(stages["alone"][str(stage)])
        return int(stages["merged"][f"{stage}/{before}"])

    def names(self) -> set[str]:
        """Return the nodes of the graph that is shown."""
        return set(self.data.names(self.number))

    def marked(self) -> dict[str, list[str]]:
        """Return the nodes that carry marks in the graph that is shown."""
        return self.data.marked(self.number)

    def asks(self, content: dict[str, Any]) -> Any:
        """Send a message and return the value of its one answer; a file is in ``buffers``."""
        received = self.sends({**content, "request": "asked"})
        (answer,) = (message for message in received if message["type"] == "answer")
        assert answer["request"] == "asked"
        assert received[-1] == {"type": "done"}
        return None if answer.get("failed") else answer["value"]

    def details(self, name: str, kind: str = "node") -> dict[str, Any]:
        """Return what the kernel says of a node or a group of the graph that is shown."""
        self.looks_for_candidates()
        found: dict[str, Any] = self.asks(
            {"type": "details", "graph": self.number, "kind": kind, "name": name}
        )
        return found


def state_of(session: Session) -> tuple[Any, ...]:
    """Return everything of a session that a failed message must not change."""
    gm = session.graph_module
    nodes = [
        (n.op, n.name, str(n.target), str(n.args), sorted(n.meta.get("transformations", ())))
        for n in gm.graph.nodes
    ]
    tensors = [(name, id(p), p.detach().sum().item()) for name, p in gm.named_parameters()]
    names = [name for name, _ in gm.named_modules()]
    return (
        id(gm),
        nodes,
        tensors,
        names,
        session.applied,
        session._internals.can_undo,
        session._internals.can_redo,
    )
