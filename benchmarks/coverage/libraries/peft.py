"""Each method of peft, over tiny transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import peft
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from benchmarks.coverage.libraries.rows import Row, Values

_INPUTS = {
    "input_ids": Values(("batch", "length"), below=64),
    "attention_mask": Values(("batch", "length"), below=2),
}
_SIZES = {"batch": 2, "length": 8}
_TARGETS = {"target_modules": ["q_proj", "v_proj"]}
_ON_LLAMA: dict[str, Callable[[], Any]] = {
    "LoRA": lambda: peft.LoraConfig(r=4, init_lora_weights=False, **_TARGETS),
    "DoRA": lambda: peft.LoraConfig(r=4, use_dora=True, init_lora_weights=False, **_TARGETS),
    "rsLoRA": lambda: peft.LoraConfig(r=4, use_rslora=True, init_lora_weights=False, **_TARGETS),
    "LoRA, all linear": lambda: peft.LoraConfig(r=4, init_lora_weights=False, target_modules="all-linear"),
    "LoRA of embeddings": lambda: peft.LoraConfig(
        r=4, init_lora_weights=False, target_modules=["embed_tokens"]
    ),
    "AdaLoRA": lambda: peft.AdaLoraConfig(
        init_r=4, target_r=2, total_step=10, init_lora_weights=False, **_TARGETS
    ),
    "LoHa": lambda: peft.LoHaConfig(r=4, init_weights=False, **_TARGETS),
    "LoKr": lambda: peft.LoKrConfig(r=4, init_weights=False, **_TARGETS),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=4, init_weights=False, **_TARGETS),
    "VeRA": lambda: peft.VeraConfig(r=4, init_weights=False, target_modules=["q_proj", "o_proj"]),
    "FourierFT": lambda: peft.FourierFTConfig(n_frequency=8, init_weights=False, **_TARGETS),
    "HRA": lambda: peft.HRAConfig(r=4, init_weights=False, **_TARGETS),
    "LN tuning": lambda: peft.LNTuningConfig(target_modules=["input_layernorm"]),
    "prompt tuning": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "p-tuning": lambda: peft.PromptEncoderConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16
    ),
    "prefix tuning": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
}


def _llama(config: Callable[[], Any]) -> nn.Module:
    settings = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return peft.get_peft_model(LlamaForCausalLM(settings), config())


def _bert() -> nn.Module:
    settings = BertConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2
    )
    config = peft.LoraConfig(r=4, init_lora_weights=False, target_modules=["query", "value"])
    return peft.get_peft_model(BertModel(settings), config)


def _two_adapters() -> nn.Module:
    model = _llama(_ON_LLAMA["LoRA"])
    model.add_adapter("other", peft.LoraConfig(r=2, init_lora_weights=False, **_TARGETS))
    model.base_model.set_adapter(["default", "other"])
    return model


def _merged() -> nn.Module:
    model = _llama(_ON_LLAMA["LoRA"])
    model.merge_adapter()
    return model


ROWS = [
    *(
        Row(f"{words}, Llama", partial(_llama, config), _INPUTS, _SIZES)
        for words, config in _ON_LLAMA.items()
    ),
    Row("LoRA, BERT", _bert, _INPUTS, _SIZES),
    Row("LoRA, two adapters", _two_adapters, _INPUTS, _SIZES),
    Row("LoRA, merged", _merged, _INPUTS, _SIZES),
]
