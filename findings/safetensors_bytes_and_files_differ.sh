#!/usr/bin/env bash
# safetensors 0.8.0 with torch 2.13.0 (CPU, Linux, Python 3.11)
#
# The dtypes of block-scaled weights (MXFP4, MXFP8: float4_e2m1fn_x2 and the scales float8_e8m0fnu) are written by
# safetensors.torch.save and save_file alike. load_file reads the file, but load, which takes the same bytes, raises a
# bare KeyError with the name of the dtype in the header: it has a table of its own, which lacks the two.
#
# Seen, for the bytes of one tensor of each dtype:
#     float4_e2m1fn_x2: load_file reads it, load raises KeyError('F4')
#     float8_e8m0fnu: load_file reads it, load raises KeyError('F8_E8M0')
#     float8_e4m3fn: load_file reads it, load reads it
#
# Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy packaging "safetensors==0.8.0"
cat > "$folder/seen.py" <<'PYTHON'
from pathlib import Path

import torch
from safetensors.torch import load, load_file, save

file = Path(__file__).with_name("weights.safetensors")
seen = {}
for name in ("float4_e2m1fn_x2", "float8_e8m0fnu", "float8_e4m3fn"):
    dtype = getattr(torch, name)
    written = save({"t": torch.zeros(2, dtype=torch.uint8).view(dtype)})
    file.write_bytes(written)
    assert load_file(file)["t"].dtype == dtype
    try:
        load(written)
        seen[name] = "reads it"
    except KeyError as error:
        seen[name] = f"raises {error!r}"
    print(f"{name}: load_file reads it, load {seen[name]}")
raise SystemExit([*seen.values()] != ["raises KeyError('F4')", "raises KeyError('F8_E8M0')", "reads it"])
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
