"""The order of names: what comes back stands where it stood, and behind what it reads."""

from torch import fx

from fxlab.transformations.journal.name_order import merged_order, moved, put_in_place


def chain():
    """Return a graph of three calls, each of which reads the one before."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    for name in ("first", "second", "third"):
        value = graph.create_node("call_method", "relu", (value,), name=name)
    graph.output(value)
    return graph


def names(graph):
    return [node.name for node in graph.nodes]


def test_a_node_goes_to_where_the_order_has_it():
    graph = chain()
    with graph.inserting_after(graph_node(graph, "third")):
        unused = graph.create_node("call_method", "relu", (graph_node(graph, "x"),), name="unused")
    put_in_place(graph, [unused], ["x", "first", "unused", "second", "third"])
    assert names(graph) == ["x", "first", "unused", "second", "third", "output"]
    graph.lint()


def test_a_node_stands_behind_its_inputs_whatever_the_order_says():
    graph = chain()
    put_in_place(graph, [graph_node(graph, "third")], ["x", "third", "first", "second"])
    assert names(graph) == ["x", "first", "second", "third", "output"]
    graph.lint()


def test_several_nodes_stand_behind_their_inputs_and_each_other():
    graph = chain()
    moved = [graph_node(graph, name) for name in ("second", "third")]
    put_in_place(graph, moved, ["x", "second", "third", "first"])
    assert names(graph) == ["x", "first", "second", "third", "output"]
    graph.lint()


def graph_node(graph, name):
    return next(node for node in graph.nodes if node.name == name)


def test_absent_names_stay_behind_their_last_present_predecessor():
    assert merged_order(["a", "b", "c", "d"], ["a", "new", "d"]) == ["a", "b", "c", "new", "d"]


def test_names_that_moved_are_as_few_as_tell_the_orders_apart():
    assert moved(["a", "b", "c", "d"], ["b", "c", "new", "a", "d"]) == ("a",)
