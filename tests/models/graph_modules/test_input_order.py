"""Items in the order in which they read each other."""

from fxlab.models.graph_modules.input_order import after_inputs


def test_no_item_comes_before_one_that_it_reads():
    reads = {"a": ["c"], "b": [], "c": []}
    assert list(after_inputs(reads, reads.__getitem__)) == ["b", "c", "a"]
