"""A compile in the report and in the messages of the inspector."""

import torch

from fxlab.drawing.hierarchy.changes import merged_graph
from fxlab.view_model.pass_state import explain_all, pass_states
from fxlab.view_model.session_state import changed_nodes_state, model_name, outputs_state, stage_names


def test_cards_have_the_compilers_names_and_say_what_was_changed(shared):
    cards = {card["name"]: card for card in pass_states(shared, explain_all(shared))}
    assert {"joint/remove_noop_ops", "AOTAutograd"} <= cards.keys()
    card = cards["joint/remove_noop_ops"]
    assert card["on"]
    assert "removed" in card["changes"]
    assert "It cannot be switched off" in cards["AOTAutograd"]["description"]


def test_the_states_of_a_page_can_be_made(shared):
    assert model_name(shared) == "Blocks"
    assert stage_names(shared.applied)[:2] == ["Original", "AOTAutograd"]
    assert outputs_state(shared)["state"] == "ready"
    assert changed_nodes_state(shared)["table"]["rows"]


def test_two_stages_are_one_graph_also_where_what_is_gone_reads_what_moved():
    before, after = torch.fx.Graph(), torch.fx.Graph()
    x = before.placeholder("x")
    a, b = before.call_function(torch.relu, (x,), name="a"), before.call_function(torch.neg, (x,), name="b")
    gone = before.call_function(torch.add, (a, b), name="gone")
    before.output(before.call_function(torch.mul, (gone, a), name="c"))
    x = after.placeholder("x")
    b = after.call_function(torch.neg, (x,), name="b")
    c = after.call_function(torch.mul, (b, b), name="c")
    after.output(
        after.call_function(torch.sub, (c, after.call_function(torch.relu, (c,), name="a")), name="d")
    )
    merged, _ = merged_graph(*(torch.fx.GraphModule({}, graph) for graph in (before, after)))
    merged.graph.lint()
    assert "gone" in [node.name for node in merged.graph.nodes]
