#!/usr/bin/env bash
# torch 2.13.0 (CPU, Linux, Python 3.11)
#
# torch.distributed.init_process_group puts a sys.excepthook in place that writes "[rank0]: " before each line of a
# traceback, and destroy_process_group leaves it there: an error long after the last group has gone is told to be of
# its rank. What had been installed before, such as a hook that reports errors, is called with a buffer as sys.stderr.
# Each further group, as of tests that make one each, adds another prefix to every line.
#
# Seen, after two groups of one rank, each made and destroyed:
#     is initialized: False, hook is Python's: False
#     [rank0]: [rank0]: ValueError: no group is there any more
#
# Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy
cat > "$folder/seen.py" <<'PYTHON'
import sys

import torch.distributed as dist

plain = sys.excepthook
for _ in range(2):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
print(f"is initialized: {dist.is_initialized()}, hook is Python's: {sys.excepthook is plain}", flush=True)
raise ValueError("no group is there any more")
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" > "$folder/seen.txt" 2>&1 || true
cat "$folder/seen.txt"
grep -qx "is initialized: False, hook is Python's: False" "$folder/seen.txt"
grep -qx "\[rank0\]: \[rank0\]: ValueError: no group is there any more" "$folder/seen.txt"
