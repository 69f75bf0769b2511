#!/usr/bin/env bash
# torch 2.13.0 (CPU with AVX-512, Linux, Python 3.11)
#
# Recurrent layers of float32 in eager mode, in `eval()`, on one thread give other bits if nothing is to be
# trained, and it is not the same switch for each: an `nn.LSTM` does under `torch.no_grad()`, but not with frozen
# parameters (`requires_grad_(False)`); an `nn.GRU` does with frozen parameters, but not under `no_grad`. Each run is
# repeated exactly. One who compares a model in use with numbers stored in training sees three quarters of the
# elements differ, and freezing or `no_grad` in the reference may be why.
#
# Seen (elements of 16,384 that differ from a run with gradients: again, under no_grad, frozen):
#     LSTM: 0 13823 0
#     GRU: 0 0 13877
#
# Exits with 1 if which of them differ changes; the counts depend on the processor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy
cat > "$folder/seen.py" <<'PYTHON'
import torch
from torch import nn

torch.set_num_threads(1)


def differ(cls):
    torch.manual_seed(0)
    x, model = torch.randn(4, 16, 256), cls(256, 256, batch_first=True).eval()
    first, again = model(x)[0].detach(), model(x)[0].detach()
    with torch.no_grad():
        alone = model(x)[0]
    frozen = model.requires_grad_(False)(x)[0]
    return [int((first != other).sum()) for other in (again, alone, frozen)]


seen = differ(nn.LSTM), differ(nn.GRU)
print("again, no_grad, frozen: LSTM, GRU:", *seen)
raise SystemExit([[count > 0 for count in row] for row in seen] != [[False, True, False], [False, False, True]])
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
