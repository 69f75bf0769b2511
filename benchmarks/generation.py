"""Generation with ``as_backend`` and eagerly: ``python -m benchmarks.generation`` writes ``generation.csv``.

Tiny models with random weights generate greedily, once to trace and then in turns with the model itself.
Tokens have to be equal; a time is a ratio to eager, the median of the rounds. ``forward`` is that of one call
without a cache.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
import transformers as hf
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.measure import seconds

PASSES = ("merge-linears", "fuse-attention")
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}
TEXT = {**SIZES, "hidden_size": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 16}
TOKENS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0, "decoder_start_token_id": 1}


def t5() -> Any:
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes))


def whisper() -> Any:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 96}.items()
    }
    sizes = {"d_model": 64, "max_source_positions": 20, "vocab_size": 100, "num_mel_bins": 8, **TOKENS}
    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(**sides, **sizes))


def bert_to_bert() -> Any:
    decoder = hf.BertConfig(**TEXT, is_decoder=True, add_cross_attention=True)
    encoder = hf.BertModel(hf.BertConfig(**TEXT))
    return hf.EncoderDecoderModel(encoder=encoder, decoder=hf.BertLMHeadModel(decoder))


MODELS: dict[str, Callable[[], Any]] = {
    "Llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)),
    "GPT-2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100)),
    "Qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED)),
    "Mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**GROUPED, num_local_experts=4)),
    "Gemma 3 (window of 16)": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(**GROUPED, sliding_window=16, layer_types=["sliding_attention", "full_attention"])
    ),
    "T5": t5,
    "Whisper": whisper,
    "BERT to BERT": bert_to_bert,
}


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing the table; all by default")
    parser.add_argument("--steps", type=int, default=256, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows = [
        row
        for name in tqdm(options.names or MODELS, unit="model")
        for row in rows_of(name, options.steps, options.rounds)
    ]
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if not options.names:
        write(table)


def rows_of(name: str, steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row without passes, and one with those that are measured."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for key, value in TOKENS.items():
        setattr(model.config, key, value)
        setattr(model.generation_config, key, value)
    given = {"inputs": torch.randint(2, 100, (2, 8))}
    if name == "Whisper":
        given = {"input_features": torch.randn(2, 8, 40)}
    if name != "Whisper":
        model.set_attn_implementation("eager")
    asked = {**given, "do_sample": False, "min_new_tokens": steps, "max_new_tokens": steps}
    session = fxlab.Session(model, traced_inputs(model, given))
    eager = copy.deepcopy(model)
    model.compile(backend=fxlab.as_backend(session))
    once = traced_inputs(model, given)
    for passes in ((), PASSES):
        for pass_ in passes:
            session.apply(pass_)
        expected = eager.generate(**asked)
        is_same = torch.equal(model.generate(**asked), expected)
        ratios = [
            seconds(lambda: model.generate(**asked)) / seconds(lambda: eager.generate(**asked))
            for _ in range(rounds)
        ]
        with torch.no_grad():
            model(**once)
            forward = statistics.median(
                seconds(lambda: model(**once)) / seconds(lambda: eager(**once)) for _ in range(5 * rounds)
            )
        yield {
            "model": name,
            "passes": ", ".join(passes),
            "tokens": "equal" if is_same else "different",
            "ratio": statistics.median(ratios),
            "from": min(ratios),
            "to": max(ratios),
            "forward": forward,
        }


def traced_inputs(model: Any, given: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return what the session traces: one run without a cache."""
    inputs: dict[str, Any] = {"use_cache": False}
    inputs[model.main_input_name] = next(iter(given.values()))
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(2, 100, (2, 3))
    return inputs


def write(table: pd.DataFrame) -> None:
    """Write the table, and the row of the page."""
    equal, ratio, forward = int((table["tokens"] == "equal").sum()), table["ratio"], table["forward"]
    figure = (
        f"{equal} of {len(table)} runs give eager's own tokens, in {ratio.min():.2f} to {ratio.max():.2f} of "
        f"its time; one forward call takes {forward.min():.2f} to {forward.max():.2f}"
    )
    measured.write("python -m benchmarks.generation", figure, {"generation": table})


if __name__ == "__main__":
    main()
