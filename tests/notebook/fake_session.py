"""A session as ``fxlab.Session`` promises to be, on a small encoder, without tracing or checking."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp


class Attention(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 8.0 + mask
        return self.out(scores.softmax(-1) @ self.value(x))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.norm = nn.LayerNorm(size)
        self.up, self.act, self.down = nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.attention(x, mask))
        return x + self.down(self.act(self.up(x)))


class Encoder(nn.Module):
    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Block(size) for _ in range(layers))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class SmallBert(nn.Module):
    def __init__(self, size: int = 16, layers: int = 3) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(50, size)
        self.encoder = Encoder(size, layers)
        self.pooler = nn.Linear(size, size)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = (1.0 - attention_mask) * -10000.0
        return torch.tanh(self.pooler(self.encoder(self.embeddings(input_ids), mask)[:, 0]))


@dataclass(frozen=True)
class FakePass:
    """Changes nothing."""

    name: ClassVar[str] = "fake"
    preserves_computation: ClassVar[bool] = True
    copies_on_write: ClassVar[bool] = True

    @property
    def signature(self) -> str:
        return f"sig-{self.name}"

    def explain(self, gm: fx.GraphModule) -> pd.DataFrame:
        return pd.DataFrame([], columns=["node", "matched", "reason"])

    def run(self, gm: fx.GraphModule) -> None:
        """Change the graph."""

    def mark(self, *nodes: fx.Node) -> None:
        for node in nodes:
            node.meta.setdefault("transformations", set()).add(self.signature)

    def get_transformed_nodes(self, gm: fx.GraphModule) -> list[fx.Node]:
        return [n for n in gm.graph.nodes if self.signature in n.meta.get("transformations", ())]


@dataclass(frozen=True)
class MergeQueryKeyValue(FakePass):
    """Merges linear layers that read the same value into one."""

    smallest: int = 2
    name: ClassVar[str] = "merge-linears"

    def explain(self, gm: fx.GraphModule) -> pd.DataFrame:
        rows = []
        for node in gm.graph.nodes:
            if node.op == "call_module" and node.target.endswith("query"):
                rows.append((node.name, True, "query, key and value read the same input"))
            elif node.op == "call_module" and node.target.endswith(("up", "down", "out", "pooler")):
                rows.append((node.name, False, "no other linear layer reads its input"))
        return pd.DataFrame(rows, columns=["node", "matched", "reason"])

    def run(self, gm: fx.GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.op != "call_module" or not str(node.target).endswith("query"):
                continue
            path = str(node.target).removesuffix("query")
            layers = [n for n in node.args[0].users if n.op == "call_module" and n.target.startswith(path)]
            linears = [gm.get_submodule(n.target) for n in layers]
            merged = nn.Linear(linears[0].in_features, sum(m.out_features for m in linears))
            with torch.no_grad():
                merged.weight.copy_(torch.cat([m.weight for m in linears]))
                merged.bias.copy_(torch.cat([m.bias for m in linears]))
            gm.add_submodule(f"{path}merged", merged)
            with gm.graph.inserting_before(layers[0]):
                new = gm.graph.call_module(f"{path}merged", (node.args[0],))
                new.meta = dict(node.meta)
                with node.meta["val"].fake_mode:
                    new.meta["val"] = torch.cat([n.meta["val"] for n in layers], -1)
                new.meta["transformations"] = set()
                self.mark(new)
                start = 0
                for old, linear in zip(layers, linears, strict=True):
                    size = linear.out_features
                    index = (Ellipsis, slice(start, start + size))
                    part = gm.graph.call_function(operator.getitem, (new, index))
                    part.meta = dict(old.meta)
                    part.meta["transformations"] = set()
                    self.mark(part)
                    old.replace_all_uses_with(part)
                    start += size
            for old in layers:
                gm.graph.erase_node(old)


@dataclass(frozen=True)
class DivToMul(FakePass):
    """Replaces a division by a constant with a multiplication by its inverse."""

    name: ClassVar[str] = "change-true-div-to-mul-by-inverse"
    preserves_computation: ClassVar[bool] = False

    def explain(self, gm: fx.GraphModule) -> pd.DataFrame:
        rows = [(n.name, True, "divides by 8.0") for n in gm.graph.nodes if n.target is operator.truediv]
        return pd.DataFrame(rows, columns=["node", "matched", "reason"])

    def run(self, gm: fx.GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.target is operator.truediv:
                node.target, node.args = operator.mul, (node.args[0], 1 / node.args[1] + 1e-4)
                self.mark(node)


@dataclass(frozen=True)
class Explode(FakePass):
    """Fails half-way, with <b>markup</b> in its message."""

    name: ClassVar[str] = "explode"

    def run(self, gm: fx.GraphModule) -> None:
        raise RuntimeError("the shape of <img src=x onerror=alert(1)> is not known")


class FakeTransformationError(Exception):
    pass


class FakeSession:
    """The stack of stages, made with deep copies."""

    def __init__(
        self, model: nn.Module | None = None, inputs: Any = None, *, passes: Sequence[FakePass] = ()
    ) -> None:
        torch.manual_seed(0)
        model = (model or SmallBert()).eval()
        self.inputs = inputs or {
            "input_ids": torch.arange(12).reshape(2, 6),
            "attention_mask": torch.ones(2, 1, 6),
        }
        self.original = fx.symbolic_trace(model)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        FakeTensorProp(self.original, mode).propagate(*self.inputs.values())
        first = next(n for n in self.original.graph.nodes if n.op == "call_module")
        first.meta["stack_trace"] = f'  File "{__file__}", line 60, in forward\n    mask = ...\n'
        self.passes: tuple[FakePass, ...] = (
            tuple(passes) or (MergeQueryKeyValue(), DivToMul(), FakePass(), Explode())
        )  # fmt: skip
        self._stages: list[tuple[FakePass, fx.GraphModule]] = []
        self._undo: list[tuple[FakePass, ...]] = []
        self._redo: list[tuple[FakePass, ...]] = []
        self._callbacks: list[Callable[[FakeSession], None]] = []

    @property
    def graph_module(self) -> fx.GraphModule:
        return self._stages[-1][1] if self._stages else self.original

    @property
    def stages(self) -> tuple[fx.GraphModule, ...]:
        return (self.original, *(gm for _, gm in self._stages))

    @property
    def applied(self) -> tuple[FakePass, ...]:
        return tuple(p for p, _ in self._stages)

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    @property
    def can_redo(self) -> bool:
        return bool(self._redo)

    def _find(self, p: FakePass | str) -> FakePass:
        return next(q for q in self.passes if p in (q, q.name, q.signature))

    def is_on(self, p: FakePass | str) -> bool:
        return self._find(p) in self.applied

    def apply(self, p: FakePass | str) -> None:
        wanted = {*self.applied, self._find(p)}
        self._go(tuple(q for q in self.passes if q in wanted), self._undo, clear=True)

    def revert(self, p: FakePass | str) -> None:
        gone = self._find(p)
        self._go(tuple(q for q in self.applied if q != gone), self._undo, clear=True)

    def toggle(self, p: FakePass | str) -> None:
        (self.revert if self.is_on(p) else self.apply)(p)

    def undo(self) -> None:
        self._go(self._undo.pop(), self._redo)

    def redo(self) -> None:
        self._go(self._redo.pop(), self._undo)

    def reset(self) -> None:
        self._go((), self._undo, clear=True)

    def _go(
        self, wanted: tuple[FakePass, ...], past: list[tuple[FakePass, ...]], *, clear: bool = False
    ) -> None:
        if wanted == self.applied:
            return
        stages: list[tuple[FakePass, fx.GraphModule]] = []
        gm = self.original
        for p in wanted:
            gm = copy.deepcopy(gm)
            try:
                p.run(gm)
            except Exception as error:
                raise FakeTransformationError(f"{p.name} failed: {error}") from error
            gm.recompile()
            stages.append((p, gm))
        past.append(self.applied)
        if clear:
            self._redo.clear()
        self._stages = stages
        for callback in list(self._callbacks):
            callback(self)

    def on_change(self, callback: Callable[[FakeSession], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def explain(self, p: FakePass | str) -> pd.DataFrame:
        p = self._find(p)
        below = self.original
        for q, gm in self._stages:
            if self.passes.index(q) < self.passes.index(p):
                below = gm
        return p.explain(below)

    def outputs(self) -> pd.DataFrame:
        with torch.no_grad():
            a, b = self.original(**self.inputs), self.graph_module(**self.inputs)
        difference = (a - b).abs()
        row = {
            "shape": tuple(a.shape),
            "dtype": "float32",
            "max_abs_diff": difference.max().item(),
            "mean_abs_diff": difference.mean().item(),
            "max_rel_diff": (difference / a.abs()).max().item(),
            "mismatched": int((difference > 1e-5).sum()),
            "elements": a.numel(),
            "allclose": bool(torch.allclose(a, b, atol=1e-5, rtol=1e-5)),
            "nan_inf_disagreement": 0,
        }
        return pd.DataFrame([row], index=["output"])

    def transformed_nodes(self, p: FakePass | str | None = None) -> pd.DataFrame:
        rows = {
            node.name: {
                "op": node.op,
                "target": str(node.target),
                "module_path": "",
                "shape": tuple(node.meta["val"].shape),
                "dtype": "float32",
                "parameters": 0,
                "inputs": [n.name for n in node.all_input_nodes],
                "users": [n.name for n in node.users],
            }
            for node in self.graph_module.graph.nodes
            if node.meta.get("transformations")
        }
        return pd.DataFrame.from_dict(rows, orient="index")
