import copy
import functools
import pickle

import pytest
import torch
import transformers
from agreement import assert_agree
from torch._subclasses.fake_tensor import FakeTensor
from zoo import TEN, tiny

from fxlab import example_inputs, symbolic_trace

pytestmark = pytest.mark.slow


def often(names, *chosen):
    """Return names of models, of which others than the chosen are tried weekly."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.weekly) for name in names]


LIKE_OTHERS = ("roberta", "distilbert", "vit", "whisper")
EACH = often(TEN, *(name for name in TEN if name not in LIKE_OTHERS))
TEXT = often(["bert", *LIKE_OTHERS[:2], "gpt2", "llama", "t5"], "bert", "gpt2", "llama", "t5")


@functools.cache
def traced_of(name):
    model = tiny(name)
    return model, symbolic_trace(model)


def text_inputs(model, batch_size, length, padding):
    inputs = example_inputs(model, batch_size=batch_size, sequence_length=length)
    for mask in [name for name in inputs if name.endswith("mask")]:
        inputs[mask] = torch.ones_like(inputs[mask])
        inputs[mask][-1, length - padding :] = 0
    return inputs


@pytest.mark.often(2)
@pytest.mark.parametrize("name", EACH)
def test_traced_on_symbolic_sizes_and_right_on_the_given_inputs(name):
    model, traced = traced_of(name)
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, example_inputs(model))


@pytest.mark.often(2)
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_right_at_other_batch_sizes(name, batch_size):
    model, traced = traced_of(name)
    assert_agree(traced, model, example_inputs(model, batch_size=batch_size))


@pytest.mark.each_value
@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize(("batch_size", "length"), [(2, 5), (1, 17), (3, 1)])
def test_right_at_other_lengths(name, batch_size, length):
    model, traced = traced_of(name)
    assert_agree(traced, model, text_inputs(model, batch_size, length, padding=0))


@pytest.mark.weekly
@pytest.mark.parametrize("name", often(["bert", "gpt2", "llama", "t5"], "bert", "t5"))
def test_trace_on_masks_of_ones_is_right_on_padded_inputs(name):
    model = tiny(name)
    traced = symbolic_trace(model, text_inputs(model, 2, 8, padding=0), check=False)
    assert_agree(traced, model, text_inputs(model, 3, 9, padding=4))


@pytest.mark.parametrize("name", often(["vit", "resnet", "clip", "whisper"], "resnet", "clip"))
def test_right_on_other_data(name):
    model, traced = traced_of(name)
    inputs = example_inputs(model)
    assert_agree(traced, model, {n: t.flip(0) for n, t in inputs.items()})


@pytest.mark.parametrize("name", EACH)
def test_parameters_are_the_same_objects_by_the_same_names(name):
    model, traced = traced_of(name)
    own = dict(model.named_parameters(remove_duplicate=False))
    assert list(traced.named_parameters())
    assert all(own[path] is parameter for path, parameter in traced.named_parameters())
    assert traced.state_dict().keys() <= model.state_dict().keys()
    assert not traced.training


@pytest.mark.often(1)
@pytest.mark.parametrize("name", often(TEN, "bert", "t5", "resnet"))
def test_no_weights_are_needed(name):
    traced = traced_of(name)[1]
    with torch.device("meta"):
        empty = TEN[name]().eval()
    bare = symbolic_trace(empty)
    assert all(parameter.is_meta for parameter in bare.parameters())
    assert [n.target for n in bare.graph.nodes if n.op == "call_module"] == [
        n.target for n in traced.graph.nodes if n.op == "call_module"
    ]


@pytest.mark.parametrize("name", EACH)
def test_nodes_say_shape_module_and_source_line(name):
    model, traced = traced_of(name)
    modules = dict(model.named_modules())
    computing = [
        node
        for node in traced.graph.nodes
        if node.op != "placeholder" and isinstance(node.meta.get("val"), FakeTensor)
    ]
    assert len(computing) > 10
    for node in computing:
        assert ", line " in node.meta["stack_trace"], node
        for path, (again, cls) in node.meta["nn_module_stack"].items():
            assert again == path
            assert type(modules[path]) is cls
    leaves = [node for node in traced.graph.nodes if node.op == "call_module" and node.target in modules]
    for node in leaves:
        assert isinstance(node.meta["val"], FakeTensor)
        assert list(node.meta["nn_module_stack"])[-1] == node.target
        assert "transformers/models/" in node.meta["stack_trace"]
        assert ", line " in node.meta["stack_trace"]


@pytest.mark.often(1)
@pytest.mark.parametrize("name", often(TEN, "bert", "t5", "resnet"))
def test_copies_and_pickles_keep_the_graph(name):
    model, traced = traced_of(name)
    for twin in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert [n.format_node() for n in twin.graph.nodes] == [n.format_node() for n in traced.graph.nodes]
        for node, original in zip(twin.graph.nodes, traced.graph.nodes, strict=True):
            assert node.meta.keys() == original.meta.keys()
        assert_agree(twin, model, example_inputs(model))


@pytest.mark.weekly
@pytest.mark.parametrize("name", often(["bert", "gpt2", "t5", "resnet"], "bert", "resnet"))
def test_training_mode_draws_the_same_random_numbers(name):
    model = tiny(name).train()
    traced = symbolic_trace(model, check=False)
    assert traced.training
    assert_agree(traced, model, example_inputs(model))
    again = symbolic_trace(model.eval(), check=False)
    assert_agree(again, model, example_inputs(model))


@pytest.mark.parametrize(
    "name", often(["bert", "gpt2", "llama", "t5", "vit", "resnet"], "bert", "t5", "resnet")
)
def test_gradients_are_the_model_s(name):
    model, traced = traced_of(name)
    inputs = example_inputs(model)
    gradients = []
    for module in (model, traced):
        module.zero_grad()
        module(**inputs).last_hidden_state.square().sum().backward()
        gradients.append({n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None})
    assert gradients[0]
    assert len(gradients[0]) == len(gradients[1])
    names = dict(model.named_parameters(remove_duplicate=False))
    first = {parameter: path for path, parameter in model.named_parameters()}
    for path, gradient in gradients[1].items():
        assert torch.equal(gradient, gradients[0][first[names[path]]])


def test_output_options_are_held_and_guarded():
    model = tiny("bert")
    inputs = example_inputs(model) | {"output_hidden_states": True}
    traced = symbolic_trace(model, inputs)
    output = assert_agree(traced, model, inputs)
    assert len(output.hidden_states) == 3
    with pytest.raises(AssertionError, match="output_hidden_states = True"):
        traced(**(inputs | {"output_hidden_states": False}))


def test_language_model_with_loss():
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50)
    ).eval()
    inputs = example_inputs(model, input_names=["input_ids", "attention_mask", "labels"])
    traced = symbolic_trace(model, inputs, check=False)
    assert_agree(traced, model, inputs)
    assert "lm_head.weight" not in dict(traced.named_parameters())  # tied, as in the model
