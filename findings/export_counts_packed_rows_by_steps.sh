#!/usr/bin/env bash
# torch 2.13.0 (CPU, Linux, Python 3.11)
#
# torch.export (non-strict, its default) takes the rows of a packed sequence to be as many as its time steps: the
# fake kernel of _pack_padded_sequence gives the data the size of the longest sequence, where it has a row for each
# element of all sequences. A model that divides by that size (a mean over all elements, say) is exported without a
# warning, with a constant that is wrong for the very inputs it was exported with. Only its tensors are right.
#
# Seen, for lengths 7, 5 and 2 (14 rows in 7 steps):
#     eager:    rows 14, mean 1.0
#     exported: rows 7, mean 2.0
#
# Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" numpy
cat > "$folder/seen.py" <<'PYTHON'
import torch
from torch.nn.utils.rnn import pack_padded_sequence


class Mean(torch.nn.Module):
    def forward(self, x, lengths):
        rows = pack_padded_sequence(x, lengths, batch_first=True).data
        return rows.shape[0], rows.sum() / rows.shape[0]


given = torch.ones(3, 7, 1), torch.tensor([7, 5, 2])
seen = {}
for name, model in {"eager": Mean(), "exported": torch.export.export(Mean(), given).module()}.items():
    rows, mean = model(*given)
    seen[name] = rows, float(mean)
    print(f"{name}: rows {rows}, mean {float(mean)}")
raise SystemExit(seen != {"eager": (14, 1.0), "exported": (7, 2.0)})
PYTHON
"$folder/venv/bin/python" "$folder/seen.py"
