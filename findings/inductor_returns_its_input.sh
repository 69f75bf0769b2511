#!/usr/bin/env bash
# torch 2.13.0 (CPU, Linux, Python 3.11)
#
# torch.compile's Inductor takes `x + torch.zeros(...)` for `x` and returns the very input: a caller who writes into
# the result writes into what he gave. Eager returns a new tensor, as does a compiled `x + 0.0`, whose zero is no
# tensor. Values agree, so a comparison of values sees nothing.
#
# Seen (is the result the input itself?):
#     eager: False
#     compiled, zeros as a tensor: True
#     compiled, zero as a number: False
#
# Exits with 1 if that changes. Needs a C++ compiler, as Inductor does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy
cat > "$folder/seen.py" <<'PYTHON'
import torch


def as_tensor(x):
    return x + torch.zeros(4)


def as_number(x):
    return x + 0.0


x = torch.ones(4)
seen = (as_tensor(x) is x, torch.compile(as_tensor)(x) is x, torch.compile(as_number)(x) is x)
print("the input itself: eager, compiled with a tensor, compiled with a number:", *seen)
raise SystemExit(seen != (False, True, False))
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
