"""The first nodes of a graph whose values another does not have, and the weights behind: alignments ask."""

from collections.abc import Collection, Mapping

from torch.fx import Node

from fxlab.validation.alignment.side import Side


def first_parted(
    side: Side, partners: Mapping[Node, Node], wrong_weights: Collection[str] = ()
) -> list[Node]:
    """Return the first nodes without a partner on which the results depend.

    A node without a partner that other nodes have turned into values with one, such as a mask that is
    written in another way, is right as far as it shows; but not if it reads a weight that is wrong.
    """
    right = side.constant | (_turned_right(side, partners) - _reading(side, wrong_weights))
    return _first(side, partners.keys(), right) or _first(side, partners.keys(), side.constant)


def _first(side: Side, known: Collection[Node], right: set[Node]) -> list[Node]:
    lost: set[Node] = set()
    leading: set[Node] = set()  # to an output, past no value that has a partner
    for node in reversed(side.module.graph.nodes):
        if node.op == "output" or (node not in known and not leading.isdisjoint(node.users)):
            leading.add(node)
            if node in side.values:
                lost.add(node)
    return [
        node
        for node in side.module.graph.nodes
        if node in lost
        and node not in right
        and all(each not in lost or each in right for each in node.all_input_nodes)
    ]


def _reading(side: Side, weights: Collection[str]) -> set[Node]:
    """Return the nodes that read one of these parameters, themselves or as a module that holds it."""
    held = {node for node in side.values if node.op == "get_attr" and node.target in weights}
    readers = {user for node in held for user in node.users}
    modules = {weight.rpartition(".")[0] for weight in weights}
    return readers | {node for node in side.values if node.op == "call_module" and node.target in modules}


def _turned_right(side: Side, partners: Mapping[Node, Node]) -> set[Node]:
    """Return nodes without a partner from whose values others with one are made.

    A comparison with infinity may have the same result in both graphs although its inputs differ.
    """
    found: set[Node] = set()
    for node in reversed(side.module.graph.nodes):
        if node not in partners and any(
            (user in partners and _tells_of(side, user, node)) or user in found
            for user in node.users
            if user not in side.constant
        ):
            found.add(node)
    return found


def _tells_of(side: Side, user: Node, node: Node) -> bool:
    made, read = (side.values.get(each, {}).values() for each in (user, node))
    return not all(v.is_of_flags for v in made) or all(v.is_of_flags for v in read)


def odd_weights(side: Side, nodes: list[Node], partners: Mapping[Node, Node]) -> dict[str, tuple[str, ...]]:
    """Return, by node, the weights and constants without a partner that it reads."""
    odd = {
        node.name: tuple(
            each.name
            for each in node.all_input_nodes
            if each in side.values and each in side.constant and each not in partners
        )
        for node in nodes
    }
    return {name: weights for name, weights in odd.items() if weights}
