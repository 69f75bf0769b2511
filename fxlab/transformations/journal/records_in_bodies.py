"""The records of a graph module and of its bodies, under names that tell their nodes apart."""

from dataclasses import replace
from typing import Any

from torch.fx import GraphModule
from torch.fx.node import map_aggregate

from fxlab.models.bodies import graphs_of
from fxlab.transformations.journal.journal import Journal, ModuleChange, NodeChange, Record
from fxlab.transformations.journal.module_tree import join_path
from fxlab.transformations.journal.node_state import NodeName, NodeState


def records_of(graph_module: GraphModule) -> list[Record]:
    """Return what was done to a graph module and its bodies, in which ``mm`` is ``true_graph_0/mm``.

    Each body has a journal of its own; these are copies of its records, to be read.
    """
    return [
        _under(record, prefix) if prefix else record
        for prefix, module in graphs_of(graph_module).items()
        for record in Journal.of(module).records
    ]


def _under(record: Record, prefix: str) -> Record:
    path = prefix.rstrip("/").replace("/", ".")

    def named(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{prefix}{name}" for name in names)

    def state(of: NodeState | None) -> NodeState | None:
        if of is None:
            return None
        target = join_path(path, of.target) if of.op in ("get_attr", "call_module") else of.target
        args, kwargs = (map_aggregate(value, _renamed) for value in (of.args, of.kwargs))
        return replace(of, name=f"{prefix}{of.name}", target=target, args=args, kwargs=kwargs)

    def _renamed(value: Any) -> Any:
        return NodeName(f"{prefix}{value.name}") if isinstance(value, NodeName) else value

    nodes = [
        NodeChange(
            f"{prefix}{change.name}",
            state(change.before),
            state(change.after),
            None if change.passed_on_to is None else f"{prefix}{change.passed_on_to}",
            change.meta_keys,
        )
        for change in record.nodes
    ]
    modules = [
        ModuleChange(
            {join_path(path, at): module for at, module in change.originals.items()},
            join_path(path, change.at),
            change.made,
            named(change.callers),
            {join_path(path, at): module for at, module in change.seen_as.items()},
            tuple(join_path(path, at) for at in change.order),
        )
        for change in record.modules
    ]
    return replace(
        record,
        candidate=named(record.candidate),
        marked=named(record.marked),
        nodes=nodes,
        modules=modules,
        order=named(record.order),
    )
