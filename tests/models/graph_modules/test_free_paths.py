"""What a model has is found in a graph module, whatever it is called."""

from fxlab.models.graph_modules.parts import free_paths


def test_an_attribute_of_graph_modules_hides_nothing():
    paths = free_paths(
        ["graph.weight", "graph_1.weight", "linear.graph", "linear.forward", "linear.forward_1"]
    )
    found = "graph_2.weight", "graph_1.weight", "linear.graph", "linear.forward_2", "linear.forward_1"
    assert tuple(paths.values()) == found
