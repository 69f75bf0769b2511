"""Passes that AOTInductor runs over an exported program."""

import warnings

import pytest
import torch
import torch._inductor
from torch import nn

import fxlab
from fxlab.compiler.code.hooks import why_no_code

pytestmark = [pytest.mark.skipif(bool(why_no_code({"cpu"})), reason="no C++ compiler"), pytest.mark.weekly]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("scale", torch.rand(8))

    def forward(self, x, *, more):
        return torch.relu(self.first(x).clone()) * self.scale + self.second(more["y"]), x + 1


def recorded(**options):
    torch.manual_seed(0)
    model = Scaled().eval()
    inputs = (torch.randn(4, 8),), {"more": {"y": torch.randn(4, 8)}}
    program = torch.export.export(model, *inputs)
    with warnings.catch_warnings(), fxlab.compiler.record_compile() as record, torch.no_grad():
        warnings.simplefilter("ignore")  # of torch about itself
        made = torch._inductor.aot_compile(program.module(), *inputs, **options)
    return model, record.sessions["graph 1, inference"], made


@pytest.fixture(scope="module")
def compiled():
    return recorded()


def test_each_pass_is_a_stage_over_the_models_own_weights_and_inputs(compiled):
    model, session, _ = compiled
    assert [pass_.name for pass_ in session.passes] == ["AOTAutograd", "joint/remove_noop_ops"]
    assert len(session.unchanged) > 20
    assert [*session.inputs] == ["x", "more_y"]
    for stage in session.stages:
        held = dict(stage.named_parameters()) | dict(stage.named_buffers())
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        assert held.keys() == tensors.keys()
        assert all(held[path].data_ptr() == tensor.data_ptr() for path, tensor in tensors.items())
    assert session.verdict().agrees


def test_nodes_have_their_names_and_modules_in_every_stage(compiled):
    session = compiled[1]
    assert session.original.meta["class_name"] == "Scaled"
    before, after = ({n.name: n for n in session.stages[k].graph.nodes} for k in (0, -1))
    assert {"relu", "mul", "first_weight", "second_bias", "scale"} <= before.keys() & after.keys()
    ((path, kind),) = before["linear"].meta["nn_module_stack"].values()
    assert (path, kind) == ("first", "torch.nn.modules.linear.Linear")


def check_code(session):
    session.generate_code()
    assert session.verdict().agrees
    assert session.verdict("compiled code").agrees


def test_the_library_that_it_has_made_is_judged(compiled):
    _, session, made = compiled
    check_code(session)
    assert isinstance(made, str)
    assert made.endswith(".so")


def test_the_package_that_it_has_made_is_judged():
    _, session, made = recorded(options={"aot_inductor.package": True})
    check_code(session)
    assert isinstance(made, list)
