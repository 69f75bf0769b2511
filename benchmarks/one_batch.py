"""Mistakes that a verdict on one batch misses: ``python -m benchmarks.one_batch`` writes a table.

Each is planted in a small model and judged three times: on one made-up batch, on the variants of it that
fxlab makes, and on a data set by ``evaluate``. None of the batches is made for a mistake: their sizes,
lengths, padding, tokens and magnitudes are drawn as they are in real data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.fx import GraphModule, Node

import fxlab
from benchmarks import measured

VOCABULARY, POSITIONS, FEATURES = 400, 256, 16
BATCHES = 60


class Text(nn.Module):
    """Token and position embeddings, a mean over what came before, one layer, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, 32), nn.Embedding(POSITIONS, 32)
        self.norm, self.up, self.head = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, VOCABULARY)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        count = attention_mask.cumsum(1)
        x = self.token(input_ids) + self.position((count - 1).clamp(min=0))
        x = x * attention_mask[..., None]
        x = x + x.cumsum(1) / count.clamp(min=1)[..., None]
        return {"logits": self.head(torch.relu(self.up(self.norm(x))))}


class Features(nn.Module):
    """A layer on normalised features."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(FEATURES, 32), nn.LayerNorm(FEATURES), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(torch.relu(self.up(x + self.norm(x))))}


def _put_after(graph_module: GraphModule, node: Node, function: Callable[..., Any], *more: Any) -> None:
    with graph_module.graph.inserting_after(node):
        wrong = graph_module.graph.call_function(function, (node, *more))
    node.replace_all_uses_with(wrong, delete_user_cb=lambda user: user is not wrong)
    graph_module.recompile()


def _call(graph_module: GraphModule, module: str) -> Node:
    return next(n for n in graph_module.graph.find_nodes(op="call_module", target=module))


def in_eights(x: torch.Tensor) -> torch.Tensor:
    """Compute eight rows at a time, and forget the rows that are left."""
    whole = max(8, len(x) // 8 * 8)
    return torch.cat([x[:whole], torch.zeros_like(x[whole:])])


def in_pairs(x: torch.Tensor) -> torch.Tensor:
    """Compute two positions at a time; the last of an odd length is the one before."""
    return x if x.shape[1] % 2 == 0 or x.shape[1] == 1 else torch.cat([x[:, :-1], x[:, -2:-1]], 1)


def as_int8(positions: torch.Tensor) -> torch.Tensor:
    """Keep positions as 8-bit integers, which end at 127."""
    return positions.clamp(max=127)


def counted_from_left(positions: torch.Tensor) -> torch.Tensor:
    """Number the places of a row from its left end, whatever its mask says."""
    return torch.arange(positions.shape[1]).expand_as(positions)


def _rows(graph_module: GraphModule) -> None:
    _put_after(graph_module, _call(graph_module, "up"), in_eights)


def _odd(graph_module: GraphModule) -> None:
    _put_after(graph_module, _call(graph_module, "norm"), in_pairs)


def _positions(function: Callable[..., Any]) -> Callable[[GraphModule], None]:
    def plant(graph_module: GraphModule) -> None:
        positions = _call(graph_module, "position").args[0]
        assert isinstance(positions, Node)
        _put_after(graph_module, positions, function)

    return plant


def _rare(graph_module: GraphModule) -> None:
    weight = graph_module.get_parameter("token.weight").detach().clone()
    weight[VOCABULARY - 40 :] = weight[: VOCABULARY - 40].mean(0)
    graph_module.get_submodule("token").weight = nn.Parameter(weight)


def _clamp(graph_module: GraphModule) -> None:
    _put_after(graph_module, _call(graph_module, "up"), torch.clamp, -10.0, 10.0)


@dataclass(frozen=True)
class Mistake:
    """One mistake, and the model that it is planted in."""

    words: str
    model: type[nn.Module]
    plant: Callable[[GraphModule], None]


MISTAKES = (
    Mistake("rows in eights: those left over are forgotten (batches of nine and more)", Text, _rows),
    Mistake("positions in 8 bits end at 127 (long texts)", Text, _positions(as_int8)),
    Mistake("an embedding trimmed to nine tokens in ten (rare tokens)", Text, _rare),
    Mistake("positions counted from the left end (left padding)", Text, _positions(counted_from_left)),
    Mistake("places in pairs: the last of an odd length is a copy", Text, _odd),
    Mistake("a clamp at 10 (large values)", Features, _clamp),
)


def main() -> None:
    """Judge all mistakes and write the table."""
    torch.set_num_threads(1)
    table = pd.DataFrame(_judged(mistake) for mistake in MISTAKES)
    print(table.to_string(index=False))
    found = {column: int(table[column].str.startswith("found").sum()) for column in table.columns[1:]}
    figure = ", ".join(f"{column}: {count}" for column, count in found.items())
    figure = f"of {len(table)} mistakes found by {figure}"
    measured.write(
        "python -m benchmarks.one_batch", figure, {"one_batch": table}, made_with=measured.versions("torch")
    )


def _judged(mistake: Mistake) -> dict[str, str]:
    torch.manual_seed(0)
    model = mistake.model().eval()
    one, batches = (_one_text(), _texts()) if mistake.model is Text else (_one_table(), _tables())
    pass_ = fxlab.from_callable(mistake.plant, name="mistake")
    session = fxlab.Session(model, one, passes=[pass_])
    session.apply(pass_)
    alone, varied = session.verdict(), session.verdict(variants=True)
    found = session.evaluate(batches)
    different = int((found.batches["status"] == "different").sum())
    return {
        "mistake": mistake.words,
        "one batch": "missed" if alone.agrees else "found",
        "its variants": f"missed ({varied.status})" if varied.agrees else f"found ({varied.decided_by})",
        "data": f"{'missed' if found.agrees else 'found'}, {different} of {len(found.rows)} batches",
    }


def _one_text() -> dict[str, torch.Tensor]:
    """Return a batch as people make one up: short, even, without padding, of common tokens."""
    return {"input_ids": torch.arange(32).view(4, 8), "attention_mask": torch.ones(4, 8, dtype=torch.long)}


def _texts() -> list[dict[str, torch.Tensor]]:
    """Return texts, padded left to the longest of a batch; tokens are as frequent as Zipf's law has it."""
    draw = torch.Generator().manual_seed(1)
    frequency = 1 / torch.arange(1, VOCABULARY + 1).double()
    found = []
    for _ in range(BATCHES):
        size = int(torch.randint(1, 17, (), generator=draw))
        lengths = (torch.randn(size, generator=draw).mul(0.7).exp() * 40).clamp(4, POSITIONS).long()
        longest = int(lengths.max())
        tokens = torch.multinomial(frequency, size * longest, replacement=True, generator=draw)
        mask = (torch.arange(longest) >= longest - lengths[:, None]).long()
        found.append({"input_ids": tokens.view(size, longest), "attention_mask": mask})
    return found


def _one_table() -> torch.Tensor:
    return torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(0))


def _tables() -> list[torch.Tensor]:
    """Return features with heavy tails."""
    draw = torch.Generator().manual_seed(1)
    found = []
    for _ in range(BATCHES):
        size = int(torch.randint(1, 17, (), generator=draw))
        tails = torch.rand(size, 1, generator=draw).clamp(min=1e-3).pow(-0.5)
        found.append(torch.randn(size, FEATURES, generator=draw) * tails)
    return found


if __name__ == "__main__":
    main()
