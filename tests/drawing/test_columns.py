"""A training step is drawn in columns: forward down, backward up beside it, the optimizer behind."""

import functools
import re
import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_models import batches, blocks, net, own_loss, squared
from test_backward import flat_step, joint_graph

import fxlab
from fxlab.drawing import Group, View, build_hierarchy, to_dot
from fxlab.drawing.hierarchy.columns import BACK, BELOW, FORWARD, UPDATE
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import PLAIN, Arrangement, outline
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.theme import SAVED
from fxlab.view_model.details import model_details


def checkpointed():
    model, x = blocks(4, checkpointed=(1, 2))
    return fxlab.trace_step(model, x, loss=squared, optimizer=torch.optim.AdamW(model.parameters()))


def branches():
    ((x, y),) = batches(1)
    return fxlab.trace_step(net(), (x, y), loss=own_loss)


STEPS = {
    "checkpointed": checkpointed,
    "branches": branches,
    "joint": lambda: joint_graph(*blocks(3)),
    "flat": lambda: flat_step(3)[0],
}


@functools.cache
def hierarchy(name):
    return build_hierarchy(STEPS[name]())


def areas(view, arrangement=PLAIN):
    """Return where each visible box and cluster lies: left, top, right and bottom by id."""
    found = {}
    for group in ET.fromstring(lay_out(to_dot(view, arrangement=arrangement))).iter():
        shape = next((each for each in group if each.tag.endswith(("path", "polygon"))), None)
        if group.get("id", "")[:2] in ("g-", "n-") and shape is not None:
            numbers = re.findall(r"-?[\d.]+", shape.get("d") or shape.get("points"))
            xs, ys = [float(x) for x in numbers[::2]], [float(y) for y in numbers[1::2]]
            found[group.get("id")] = min(xs), min(ys), max(xs), max(ys)
    return found


def middle(area):
    return (area[1] + area[3]) / 2


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_columns_stand_beside_one_another_whatever_is_open(name, data):
    tree = hierarchy(name)
    view = View(tree)
    for path in data.draw(st.lists(st.sampled_from(sorted(tree.groups)[1:]), max_size=5)):
        view = view.open(path)
    at, seen = areas(view), {item.id for item in (*view.boxes, *view.clusters)}
    assert at.keys() == seen
    for left, right in view.level:
        assert abs(middle(at[left.id]) - middle(at[right.id])) < 1
        assert at[left.id][2] < at[right.id][0]
    for left, right in ((FORWARD, BACK), (BACK, UPDATE)):
        ends = [at[box.id][2] for box in view.boxes if view.column_of(box) == left]
        starts = [at[box.id][0] for box in view.boxes if view.column_of(box) == right]
        assert max(ends) < min(starts, default=float("inf"))
    # The two passes of each module: closed, one beside the other; open, over the same heights.
    for item in (*view.boxes, *view.clusters):
        other = tree.partners.get(item.id)
        if other is not None and other.id in seen:
            assert at[item.id][1] < at[other.id][3]
            assert at[other.id][1] < at[item.id][3]


@pytest.mark.parametrize("name", STEPS)
def test_every_node_is_in_one_column_and_one_box(name):
    tree = hierarchy(name)
    view = View.default(tree)
    columns = [view.column_of(box) for box in view.boxes]
    assert {FORWARD, BACK, BELOW} <= {*columns}
    drawn = [name for box in view.boxes for name in tree.names_in(box)]
    assert sorted(drawn) == sorted(tree.names)
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("name", STEPS)
def test_a_picture_is_the_same_each_time_and_has_each_line(name):
    tree = hierarchy(name)
    view, again = View.default(tree), View.default(build_hierarchy(STEPS[name]()))
    assert to_dot(view) == to_dot(again)
    bare = lay_out(outline(view, make_boxes(view, {}, ()))).decode()
    assert bare.count('class="edge') == len(view.edges)


def test_the_loss_is_at_the_turn_and_the_output_below():
    for name in ("checkpointed", "branches"):
        view = View.default(hierarchy(name))
        at = areas(view)
        forward = [box for box in view.boxes if view.column_of(box) == FORWARD]
        lowest = max(forward, key=lambda box: at[box.id][3])
        loss = next((box for box in forward if isinstance(box, Group) and box.label == "loss"), lowest)
        assert at[lowest.id][3] == at[loss.id][3]
        (output,) = (box for box in view.boxes if view.column_of(box) == BELOW)
        assert at[output.id][1] > at[loss.id][3]


def test_lines_lead_down_on_the_left_and_up_on_the_right():
    view = View.default(hierarchy("checkpointed"))
    at = areas(view)
    for edge in view.edges:
        columns = view.column_of(edge.source), view.column_of(edge.target)
        down = middle(at[edge.target.id]) - middle(at[edge.source.id])
        if columns == (FORWARD, FORWARD):
            assert down > 0
        if columns == (BACK, BACK):
            assert down < 0


def test_a_group_opens_and_closes_with_the_other_pass_of_its_module():
    view = View(hierarchy("checkpointed"))
    opened = view.open("blocks.[1-2]")
    assert {"blocks.[1-2]", "blocks.[1-2] (backward)"} <= opened.opened
    assert opened.close("blocks.[1-2] (backward)") == view
    inside = view.reveal([view.hierarchy.leaves[view.hierarchy.groups["blocks.1.norm"].start].name])
    assert {"blocks.1", "blocks.1 (backward)"} <= inside.opened


def test_repeats_are_folded_alike_in_both_passes():
    paths = hierarchy("checkpointed").groups
    runs = [path for path, group in paths.items() if group.kind == "repeat" and path.startswith("blocks.")]
    assert runs == ["blocks.[1-2]", "blocks.[1-2] (backward)"]
    assert {"blocks.0", "blocks.3"} <= paths.keys()


def test_a_box_says_its_gradients_new_values_and_what_it_computes_again():
    tree = hierarchy("checkpointed")
    boxes = make_boxes(View(tree), {}, ())
    said = {box.label: " ".join(box.details) for box in boxes.values()}
    assert "12 gradients" in said["Block × 2"] or "24 nodes recomputed" in said["Block × 2"]  # noqa: RUF001
    backward = boxes[tree.groups["blocks.[1-2] (backward)"].id].details
    assert "12 gradients" in backward
    assert any(line.endswith("nodes recomputed") for line in backward)
    update = " ".join(boxes[tree.groups["optimizer"].id].details)
    assert "new value" in update
    assert "copy" not in update  # rows of equal nodes are no blocks
    everything = make_boxes(View(tree, frozenset(tree.groups) - {""}), {}, ())
    assert "→ grad of weight" in " ".join(line for box in everything.values() for line in box.details)
    assert any("fx-recomputed" in box.classes for box in everything.values())


def test_results_of_the_backward_pass_are_no_lines():
    view = View(hierarchy("checkpointed"))
    sources = {edge.source.id for edge in view.edges if view.column_of(edge.target) == BELOW}
    assert [box.label for box in view.boxes if box.id in sources] == ["loss"]


def test_lines_of_what_is_kept_say_its_bytes_and_are_as_thick():
    x = torch.ones(8, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1))
    step = fxlab.trace_step(model, x, loss=squared)
    lines = [line for line in to_dot(View(build_hierarchy(step))).split("\n") if SAVED in line]
    kept = {re.search('xlabel="?([^"\\]]+)', line)[1]: line for line in lines}
    assert "32 KiB" in kept  # tanh: 8 * 1024 of float32
    widths = {words: float(re.search('penwidth="([\\d.]+)', line)[1]) for words, line in kept.items()}
    assert widths["32 KiB"] == max(widths.values()) > min(widths.values())


@pytest.mark.parametrize("direction", ["down", "right"])
def test_columns_are_rows_where_lines_lead_to_the_right(direction):
    view = View.default(hierarchy("checkpointed"))
    at = areas(view, Arrangement(direction, shapes=True))
    across, along = (0, 1) if direction == "down" else (1, 0)
    for left, right in view.level:
        a, b = at[left.id], at[right.id]
        assert abs(a[along] + a[along + 2] - b[along] - b[along + 2]) < 2
        assert a[across] != b[across]


def test_passes_keep_the_columns():
    model, x = blocks(4)
    step = fxlab.trace_step(model, x, loss=squared)
    session = fxlab.Session(
        step, passes=[fxlab.ActivationCheckpointing(("blocks.1", "blocks.2")), fxlab.RemoveRedundantViews()]
    )
    before = build_hierarchy(step)
    session.apply("activation-checkpointing")
    session.apply("remove-redundant-views")
    after = build_hierarchy(session.graph_module)
    for tree in (before, after):
        view = View(tree)
        assert [view.column_of(box) for box in view.boxes].count(BELOW) == 1
        paired = {left.label for left, _ in view.level if isinstance(left, Group)}
        assert {"blocks.0", "blocks.3", "loss"} <= paired or "blocks 0–3" in paired  # noqa: RUF001


@pytest.mark.parametrize("graph", [lambda x: x.sin().sum(), lambda x: x.mul(x)])
def test_a_graph_that_is_no_step_has_no_columns(graph):
    traced = torch.fx.symbolic_trace(graph)
    tree = build_hierarchy(traced)
    assert not tree.columns
    assert "newrank" not in to_dot(View(tree))


def test_what_is_computed_again_stands_above_the_box_whose_gradient_its_module_reads():
    view = View(hierarchy("checkpointed"))
    for path in ("blocks.[1-2]", "blocks.1", "blocks.1 (recomputed)"):
        view = view.open(path)
    at = areas(view)
    again = [box for box in view.boxes if "(recomputed)" in box.path]
    following = at[view.hierarchy.groups["blocks.2 (backward)"].id]
    assert again
    assert all(at[box.id][3] < following[1] for box in again)


def test_nodes_between_the_modules_of_a_step_are_one_box():
    class Prepared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

        def forward(self, x):
            for _ in range(4):
                x = x.sin().cos()
            return self.last(self.block(x).tanh())

    view = fxlab.draw(fxlab.trace_step(Prepared(), torch.ones(2, 4), loss=squared), opened=[]).view
    assert [box.label for box in view.boxes if getattr(box, "kind", "") == "segment"] == ["sin … cos_3"]
    assert "tanh" in [box.name for box in view.boxes if not isinstance(box, Group)]


def test_parameters_that_are_inputs_count():
    fields = model_details(checkpointed(), "step", ())["fields"]
    total = sum(parameter.numel() for parameter in blocks(4)[0].parameters())
    assert {field["label"]: field["value"] for field in fields}["Parameters"] == f"{total:,}"
