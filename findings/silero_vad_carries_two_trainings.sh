#!/usr/bin/env bash
# silero-vad 6.2.3, torch 2.13.0 (CPU, Linux, Python 3.11)
#
# The package carries its detector of speech at 16 kHz as TorchScript (`silero_vad.jit`) and as
# `silero_vad_16k.safetensors`, of the same layers and shapes. They are not the same weights: only the basis of the
# Fourier transform agrees, every trained tensor differs. A port that reads the handier file is another detector
# than the one that `load_silero_vad()` returns: on a vowel their probabilities lie up to 0.2 apart.
#
# Seen (tensors with equal shapes; of these with nearly equal numbers):
#     15 1
#
# Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy packaging safetensors==0.8.0
"$folder/venv/bin/pip" install --quiet --no-deps "silero-vad==6.2.3"
cat > "$folder/seen.py" <<'PYTHON'
from importlib.resources import files

import torch
from safetensors.torch import load_file
from silero_vad import load_silero_vad

scripted = load_silero_vad()._model.state_dict().values()
stored = load_file(str(files("silero_vad") / "data" / "silero_vad_16k.safetensors"))
names = ["stft_conv.weight", *(f"conv{i}.{part}" for i in (1, 2, 3, 4) for part in ("weight", "bias"))]
names += [f"lstm_cell.{part}_{of}" for part in ("weight", "bias") for of in ("ih", "hh")]
names += ["final_conv.weight", "final_conv.bias"]
pairs = [(one, stored[name]) for one, name in zip(scripted, names, strict=True)]
same = sum(one.shape == other.shape for one, other in pairs)
near = sum(one.shape == other.shape and torch.allclose(one, other, atol=0.01) for one, other in pairs)
print("equal shapes, nearly equal numbers:", same, near)
raise SystemExit((same, near) != (15, 1))
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
