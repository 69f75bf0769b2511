"""The records of a graph module and of its bodies, with distinct names: screens and passes show them."""

from dataclasses import replace

from torch.fx import GraphModule

from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.transformations.journal.journal import Journal, Record
from fxlab.transformations.journal.module_tree import join_path
from fxlab.transformations.journal.node_state import NodeState


def records_of(graph_module: GraphModule) -> list[Record]:
    """Return copies of the records of a module and its bodies, in which ``mm`` is ``true_graph_0/mm``."""
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
        return replace(of.renamed(prefix.__add__), name=f"{prefix}{of.name}", target=target)

    nodes = [
        replace(
            change,
            name=f"{prefix}{change.name}",
            before=state(change.before),
            after=state(change.after),
            passed_on_to=change.passed_on_to and f"{prefix}{change.passed_on_to}",
        )
        for change in record.nodes
    ]
    modules = [
        replace(
            change,
            originals={join_path(path, at): module for at, module in change.originals.items()},
            at=join_path(path, change.at),
            callers=named(change.callers),
            seen_as={join_path(path, at): module for at, module in change.seen_as.items()},
            order=tuple(join_path(path, at) for at in change.order),
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
        moves=tuple((f"{prefix}{name}", f"{prefix}{follower}") for name, follower in record.moves),
    )
