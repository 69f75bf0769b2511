#!/usr/bin/env bash
# torch 2.13.0 (CPU, Linux, Python 3.11)
#
# `module.compile(backend=...)` compiles nothing, without a word, where the module's own `forward` is one of
# torch: nn.Sequential, nn.Linear, nn.TransformerEncoderLayer. `torch.compile(module, backend=...)` does compile
# these, and `compile()` compiles a class that writes the same `forward` itself. Dynamo skips files of torch unless
# it begins with one of their functions; `compile()` begins with `_call_impl`, which is not wrapped for this.
#
# Seen:
#     Sequential.compile(): 0 graphs
#     torch.compile(Sequential): 1 graph
#     own class.compile(): 1 graph
#
# Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy
cat > "$folder/seen.py" <<'PYTHON'
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


def graphs(make):
    torch.compiler.reset()
    found = []

    def backend(graph_module, inputs):
        found.append(graph_module)
        return graph_module.forward

    make(backend)(torch.ones(2, 4))
    return len(found)


def in_place(module):
    def make(backend):
        module.compile(backend=backend)
        return module

    return make


sequential = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
seen = (
    graphs(in_place(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))),
    graphs(lambda backend: torch.compile(sequential, backend=backend)),
    graphs(in_place(Own())),
)
print("Sequential.compile(), torch.compile(Sequential), own class.compile():", *seen, "graphs")
raise SystemExit(seen != (0, 1, 1))
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
