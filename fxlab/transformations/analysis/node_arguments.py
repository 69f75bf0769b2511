"""Reading the arguments of a node, whether they were passed by position or by name."""

from torch.fx import Node


def only_input(node: Node) -> Node | None:
    """Return the one input of a module call, ``m(x)`` or ``m(input=x)``; ``None`` for any other call."""
    arguments = [*node.args, *node.kwargs.values()]
    if len(arguments) != 1 or set(node.kwargs) - {"input"}:
        return None
    value = arguments[0]
    return value if isinstance(value, Node) else None
