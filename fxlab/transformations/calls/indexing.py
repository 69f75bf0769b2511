"""The part of ``Calls`` that reads indexing, slices, permutations and one of several results as terms."""

from typing import Any

from torch.fx import Node

from fxlab.operators.node_info import known_result
from fxlab.operators.operator import WITH_INDICES
from fxlab.transformations.calls.term import Reading, Term, flat, from_start

_SEVERAL = frozenset({"max", "min", "sort", "topk", "split", "chunk", "unbind", "var_mean", "std_mean"})
"""Operators that may return several tensors, of which Python's brackets take one."""
_AFFINE = {"self": "self", "weight": "weight", "bias": "bias", "eps": "eps"}
_STATISTICS = {"running_mean": "running_mean", "running_var": "running_var"}
_NATIVE = {
    "native_layer_norm": ("layer_norm", {**_AFFINE, "normalized_shape": "normalized_shape"}),
    "native_group_norm": ("group_norm", {**_AFFINE, "group": "num_groups"}),
    "_native_batch_norm_legit_no_training": ("batch_norm", {**_AFFINE, **_STATISTICS}),
}
"""Norms that return statistics as well: their plain names, and those of their arguments."""
_END = 9223372036854775807


class IndexReading(Reading):
    """Reads indexing, permutations and items of several results; ``Calls`` is its subclass."""

    def _attribute(self, node: Node) -> Term | None:
        value, attribute = node.args[:2]
        if attribute in ("mT", "T"):
            given = {"self": value, "dim0": -2, "dim1": -1}
            return self._permutation("transpose", given, node, self.rank(value))
        of = self.term(value)
        if attribute in ("values", "indices") and of is not None:
            return self._taken(value, ("values", "indices").index(str(attribute)), node)
        return None

    def _item(self, node: Node) -> Term | None:
        value, index = node.args[:2]
        of = self.term(value)
        result = known_result(value) if isinstance(value, Node) else None
        is_several = isinstance(result, tuple | list) and not hasattr(result, "dtype")
        may_be_several = of is not None and (
            of.name in _SEVERAL or of.name.startswith("native_") or of.name.endswith(WITH_INDICES)
        )
        # Of unknown shapes, the operator tells whether an integer takes one of several results.
        if type(index) is int and (is_several or (result is None and may_be_several)):
            return self._taken(value, index, node)
        if is_several:
            return None
        entries = index if isinstance(index, tuple) else (index,)
        return self._indexed(value, entries, node)

    def _taken(self, several: Any, index: int, node: Node) -> Term | None:
        of = self.term(several)
        if of is None:
            return None
        own = (node, *of.nodes)
        if of.name in ("max", "min") and index == 0 and "dim" in of.args:
            args = {**of.args, "dim": flat(of.args["dim"])}
            return Term(f"a{of.name}", args, own, rank=of.rank)
        if of.name in ("var_mean", "std_mean") and "dim" in of.args:
            given = {"self": of.args["self"], "dim": flat(of.args["dim"])}
            given |= {key: of.args[key] for key in ("keepdim", *["correction"][index:]) if key in of.args}
            return Term("mean" if index else of.name.partition("_")[0], given, own, rank=of.rank)
        if of.name.endswith(WITH_INDICES) and index == 0:
            return Term(of.name.removesuffix(WITH_INDICES), of.args, own, rank=of.rank)
        if of.name in _NATIVE and index == 0:
            name, renamed = _NATIVE[of.name]
            args = {renamed[key]: each for key, each in of.args.items() if key in renamed}
            if "normalized_shape" in args:
                args["normalized_shape"] = flat(args["normalized_shape"])
            return Term(name, {k: v for k, v in args.items() if (k, v) != ("eps", 1e-05)}, own, rank=of.rank)
        return Term("item", {"self": several, "index": index}, (node,))

    def _indexed(self, value: Any, entries: tuple[Any, ...], node: Node) -> Term | None:
        """Read indexing as a chain of slices, selections and new dimensions, first dimension first."""
        rank = self.rank(value)
        is_plain = all(
            each is None or each is ... or isinstance(each, slice | int | Node) for each in entries
        )
        has_masks = any(isinstance(each, bool) for each in entries)
        if not is_plain or has_masks or (rank is None and not self.is_pattern):
            return None
        # A tensor as index gathers elements, and is no slice.
        if any(isinstance(each, Node) and hasattr(known_result(each), "dtype") for each in entries):
            return None
        reads = [each for each in entries if each is not None and each is not ...]
        is_behind, dim, term, left = False, 0, value, len(reads)
        for entry in entries:
            at = dim if not is_behind else -left
            if entry is ...:
                is_behind = rank is None
                dim = dim if rank is None else dim + rank - len(reads)
                continue
            if entry is None:
                at = dim if not is_behind else -left - 1
                term = Term("unsqueeze", {"self": term, "dim": at}, (), rank=self.rank(term))
                dim += 1
                continue
            left -= 1
            if isinstance(entry, slice):
                part = self._slice(term, at, entry.start, entry.stop, entry.step)
                term = term if part is None else part
                dim += 1
            else:
                term = Term("select", {"self": term, "dim": at, "index": entry}, (), rank=self.rank(term))
        if term is value or not isinstance(term, Term):
            return Term("alias", {"self": value}, (node,), True, rank)
        return Term(term.name, term.args, (node,), rank=term.rank)

    def _slice(self, value: Any, dim: Any, start: Any, stop: Any, step: Any) -> Term | None:
        """Return a slice; ``None`` if it takes everything."""
        stop = None if type(stop) is int and stop >= _END else stop
        start = 0 if start is None else start
        size = self._size(value, dim)
        if type(stop) is int and type(size) is int and stop >= size:
            stop = None
        if type(size) is int:
            start = start + size if type(start) is int and start < 0 else start
            stop = stop + size if type(stop) is int and stop < 0 else stop
        if type(start) is int and start == 0 and stop is None and step in (None, 1):
            return None
        args = {"self": value, "dim": dim, "start": start, "end": stop, "step": 1 if step is None else step}
        return Term("slice", args, (), rank=self.rank(value))

    def _part(self, name: str, given: dict[str, Any], node: Node, rank: int | None) -> Term | None:
        value = given.get("self")
        count = None if rank is None else rank + (name == "unsqueeze")
        dim = given.get("dim", 0)
        dim = dim if count is None else from_start(dim, count)
        if name != "slice":
            rest = {"index": given["index"]} if "index" in given else {}
            return Term(name, {"self": value, "dim": dim, **rest}, (node,), rank=rank)
        part = self._slice(value, dim, given.get("start"), given.get("end"), given.get("step"))
        if part is None:
            return Term("alias", {"self": value}, (node,), True, rank)
        return Term("slice", part.args, (node,), rank=rank)

    def _permutation(self, name: str, given: dict[str, Any], node: Node, rank: int | None) -> Term | None:
        value = given.get("self")
        if name == "permute":
            dims: Any = flat(given.get("dims"))
            dims = dims if rank is None else from_start(dims, rank)
            return Term("permute", {"self": value, "dims": dims}, (node,), rank=rank)
        keys = (("dim0", "axis0"), ("dim1", "axis1"))
        if name == "mT":
            given = {"self": value, "dim0": -2, "dim1": -1}
        named: Any = tuple(given.get(key, given.get(other)) for key, other in keys)
        swapped = (0, 1) if name in ("t", "numpy_T") else named
        if not rank or not all(type(dim) is int for dim in swapped):
            return Term("transpose", {"self": value, "dims": swapped}, (node,), rank=rank)
        order = list(range(rank))
        first, second = (dim % rank for dim in swapped)
        order[first], order[second] = second, first
        return Term("permute", {"self": value, "dims": tuple(order)}, (node,), rank=rank)
