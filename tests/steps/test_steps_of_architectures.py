"""Steps of tiny models of transformers: every gradient has its name, every node its module, and bits stay."""

import warnings

import pytest
import torch
import transformers as t
from torch import nn

import fxlab
from fxlab.drawing import build_hierarchy

pytestmark = pytest.mark.slow

TEXT = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
TOKENS = torch.arange(24).reshape(2, 12)
IMAGES = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)}
LABELS = {"labels": torch.tensor([0, 1])}
IDS = {"input_ids": TOKENS, "labels": TOKENS}


class Adapter(nn.Module):
    """A frozen layer, and beside it one of low rank that trains."""

    def __init__(self, base, size):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(size, 2, bias=False), nn.Linear(2, base.weight.shape[1], bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def bert():
    return t.BertForMaskedLM(t.BertConfig(num_hidden_layers=2, **TEXT)), IDS


def llama(checkpoints=False):
    model = t.LlamaForCausalLM(
        t.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, use_cache=False, **TEXT)
    )
    if checkpoints:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # its name changes in transformers 6
            model.gradient_checkpointing_enable({"use_reentrant": False})
    return model, IDS


def llama_with_checkpoints():
    return llama(checkpoints=True)


def mixtral():
    config = t.MixtralConfig(
        num_hidden_layers=2, num_key_value_heads=2, num_local_experts=4, use_cache=False, **TEXT
    )
    return t.MixtralForCausalLM(config), IDS


def gpt2_with_adapters():
    config = t.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    config.loss_type = "ForCausalLM"
    model = t.GPT2LMHeadModel(config).requires_grad_(False)
    for block in model.transformer.h:
        block.attn.c_attn = Adapter(block.attn.c_attn, 32)
    return model, IDS


def vit():
    config = t.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return t.ViTForImageClassification(config), IMAGES | LABELS


def resnet():
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
    return t.ResNetForImageClassification(config), IMAGES | LABELS


def whisper():
    config = t.WhisperConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=16,
        max_target_positions=16, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    features = torch.linspace(-1, 1, 2 * 8 * 32).reshape(2, 8, 32)
    return t.WhisperForConditionalGeneration(config), {
        "input_features": features,
        "labels": TOKENS[:, :6] + 3,
    }


MODELS = (bert, llama, llama_with_checkpoints, mixtral, gpt2_with_adapters, vit, resnet, whisper)


@pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=() if make is gpt2_with_adapters else pytest.mark.weekly) for make in MODELS],
    ids=lambda make: make.__name__,
)
def test_a_step_is_complete_placed_and_keeps_its_bits(make):
    torch.manual_seed(0)
    model, inputs = make()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    step = fxlab.trace_step(model, inputs, optimizer=optimizer)
    results = step.graph.output_node().args[0]
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    model(**inputs).loss.backward()
    with_gradients = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {
        name.removeprefix("grad of ") for name in results if name.startswith("grad of ")
    } == with_gradients
    assert with_gradients <= trained
    assert {f"new {name}" for name in with_gradients} <= {*results}

    hierarchy = build_hierarchy(step)
    for node in step.graph.nodes:
        stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack")
        if node.op == "call_function" and stack and (own := [path for path in stack if path]):
            leaf = hierarchy.leaves[hierarchy.position_of[node.name]]
            around = [*hierarchy.ancestors(node.name), leaf.owner]
            assert any(own[-1] in path for path in around), node.name

    session = fxlab.Session(step)
    for pass_ in session.passes:
        if pass_.name != "change-true-div-to-mul-by-inverse":
            session.apply(pass_)
    assert len(session.graph_module.graph.nodes) < len(step.graph.nodes)
    assert str(session.verdict().status) == "same bits"
