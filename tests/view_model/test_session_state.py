import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import Session, from_callable
from fxlab.view_model.session_state import changes_text, outputs_state


class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        return self.a(x) + self.b(x)


def test_that_nothing_can_be_run_is_no_failure():
    with torch.device("meta"):
        weightless = Doubled()
    session = Session(fx.symbolic_trace(weightless), torch.ones(2, 3))
    session.apply("merge-linears")
    state = outputs_state(session)
    assert state["state"] == "none"
    assert "has no weights" in state["text"]


def test_a_model_that_raises_is_a_failure():
    class Refuses(Doubled):
        def forward(self, x):
            torch._assert(x.sum() > 0, "no light")
            return super().forward(x)

    session = Session(Refuses(), torch.ones(2, 3))
    session.apply("merge-linears")
    session.inputs = -torch.ones(2, 3)
    state = outputs_state(session)
    assert state["state"] == "failed"
    assert "no light" in state["text"]


def test_outputs_are_compared_where_a_pass_is_on():
    session = Session(Doubled(), torch.ones(2, 3)).apply("merge-linears")
    state = outputs_state(session)
    assert state["state"] == "ready"
    _, first, *others = (column["name"] for column in state["table"]["columns"])
    compared = {*fxlab.compare_outputs(session.original, session.graph_module, session.inputs)}
    assert (first, {*others} - {"reason"}) == ("status", compared - {"allclose", "note"})


@pytest.mark.parametrize("trace", [fxlab.symbolic_trace, lambda model, _: torch.fx.symbolic_trace(model)])
def test_without_a_pass_the_words_are_of_the_trace(trace):
    traced = trace(Doubled(), torch.ones(2, 3))
    state = outputs_state(Session(traced, torch.ones(2, 3)))
    is_checked = "trace" in traced.meta
    assert state["state"] == ("ready" if is_checked else "none")
    assert ("same bits as the model on the inputs; " in state["text"]) == is_checked
    assert state["text"].startswith("No pass is on")


def test_a_difference_of_the_call_is_told_where_all_numbers_are_the_same():
    class Copies(nn.Module):
        def forward(self, x):
            return x.clone()

    def without_clones(graph_module):
        for node in graph_module.graph.find_nodes(op="call_method", target="clone"):
            node.replace_all_uses_with(node.args[0])

    session = Session(fx.symbolic_trace(Copies()), torch.ones(3), passes=[from_callable(without_clones)])
    session.apply("without-clones")
    state = outputs_state(session)
    assert "shares memory with input x" in state["text"]
    assert state["agrees"] is False


def test_a_pass_says_what_it_changed_or_what_nearly_matched():
    class ReadTwice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            image = self.conv(x)
            return self.bn(image) + image.sum()

    changed = Session(Doubled(), torch.ones(2, 3))
    changed.apply("merge-linears")
    assert changes_text(changed, changed.applied[0]) == "1 rewrite: 2 linears become 1"
    nearly = Session(ReadTwice().eval(), torch.ones(1, 3, 5, 5))
    nearly.apply("fuse-batch-norm2d-in-conv2d", "remove-dead-code")
    told = [changes_text(nearly, p) for p in nearly.applied]
    assert told == ["", "no changes: bn: conv has other users"]
