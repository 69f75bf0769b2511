"""Make the reports of ``gallery.md``: ``python docs/make_gallery.py FOLDER``.

Each is what a person has after a few lines: a model at full size with random weights, passes that are on, and
all that the report measures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, ResNetConfig, ResNetModel

import fxlab


def bert() -> fxlab.Session:
    """BERT-base, its attention written out, with what makes it fewer and larger products."""
    session = fxlab.Session(BertModel(BertConfig(attn_implementation="eager")).eval())
    session.apply("merge-linears")
    session.apply("fuse-attention")
    return session


def resnet() -> fxlab.Session:
    """ResNet-50 with its batch norms folded; two batches in training give these some statistics."""
    model = ResNetModel(ResNetConfig())
    with torch.no_grad():
        for _ in range(2):
            model(torch.randn(4, 3, 64, 64))
    session = fxlab.Session(model.eval())
    session.apply("fuse-batch-norm2d-in-conv2d")
    return session


def llama() -> fxlab.Session:
    """Llama 3 8B on the meta device: 16 GB of weights that nobody has to have."""
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    session = fxlab.Session(model)
    session.apply("merge-linears")
    return session


def compiled() -> fxlab.Session:
    """What torch.compile does to two layers of BERT, with a pass of one's own that is careless."""

    def careless(graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.erf.default):
            node.target = torch.ops.aten.tanh.default

    config = BertConfig(num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=256)
    model = BertModel(config).eval()
    options = {"post_grad_custom_post_pass": careless}
    return fxlab.compiler.compile_session(model, fxlab.example_inputs(model), options=options)


REPORTS: dict[str, Callable[[], fxlab.Session]] = {
    "bert": bert,
    "resnet": resnet,
    "llama": llama,
    "compiled": compiled,
}


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in REPORTS.items():
        torch.manual_seed(0)
        fxlab.report(make(), path=folder / f"{name}.html")


if __name__ == "__main__":
    main()
