"""The single rewrites that a pass has made, and the module with some of them only."""

from collections.abc import Collection
from dataclasses import replace

from torch.fx import GraphModule

from fxlab.graph_module import share_tensors_copy
from fxlab.transformations import Transformation
from fxlab.transformations.journal import Journal, Record
from fxlab.transformations.module_tree import find_module
from fxlab.transformations.replacement import ModulePrint
from fxlab.transformations.undo import undo


def rewrites_of(graph_module: GraphModule, transformation: Transformation) -> list[str]:
    """Return the rewrites that a pass has made in a module, first first.

    Parameters
    ----------
    graph_module
        The transformed module.
    transformation
        The pass.

    Returns
    -------
    list of str
        Each by the node that it marked. Empty for a pass that keeps no journal.
    """
    return [_name(record) for record in _records(Journal.of(graph_module), transformation)]


def with_rewrites(
    graph_module: GraphModule, transformation: Transformation, names: Collection[str]
) -> GraphModule:
    """Return a copy of a module in which a pass has made some of its rewrites only.

    Parameters
    ----------
    graph_module
        The transformed module, the pass being the last that was applied. It is not changed; the copy shares
        its tensors.
    transformation
        The pass.
    names
        The rewrites to keep, some of those that :func:`rewrites_of` returns. One that builds on a rewrite
        that is not kept goes with it.

    Examples
    --------
    >>> import torch
    >>> from fxlab import ChangeTrueDivToMulByInverse
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / 2 / 4
    >>> change = ChangeTrueDivToMulByInverse()
    >>> changed = change(torch.fx.symbolic_trace(Model()))
    >>> rewrites_of(changed, change)
    ['truediv', 'truediv_1']
    >>> print(with_rewrites(changed, change, ["truediv_1"]).code.strip().splitlines()[1].strip())
    truediv = x / 2;  x = None
    """
    result = share_tensors_copy(graph_module)
    journal = Journal.of(result)
    dropped: list[Record] = []
    touched: set[str] = set()
    for record in _records(journal, transformation):
        if _name(record) not in names or not touched.isdisjoint(record.touched):
            dropped.append(record)
            touched.update(record.touched)
            _count_as_made(record, result)
    undo(result, journal, dropped)
    journal.keep_in(result)
    result.graph.lint()
    result.recompile()
    return result


def _count_as_made(record: Record, graph_module: GraphModule) -> None:
    """Let replacements count as made the way they are now.

    What was written to them since would else be brought to the tensors of the original, which are shared.
    """
    for index, change in enumerate(record.modules):
        current = find_module(graph_module, change.at)
        if current is not None:
            record.modules[index] = replace(change, made=ModulePrint.of(current))


def _records(journal: Journal, transformation: Transformation) -> list[Record]:
    return [record for record in journal.records if record.signature == transformation.signature]


def _name(record: Record) -> str:
    return record.marked[0] if record.marked else ""
