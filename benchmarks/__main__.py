"""Run all comparisons and print a table."""

import pandas as pd
import torch
from tqdm import tqdm
from transformers.utils import logging

from benchmarks import compare_nodes, drawing, import_time, passes, tracing
from benchmarks.measure import measured


def main() -> None:
    """Measure each comparison, one after the other."""
    logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    comparisons = [
        c for suite in (import_time, tracing, passes, compare_nodes, drawing) for c in suite.comparisons()
    ]
    rows = [measured(comparison) for comparison in tqdm(comparisons)]
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
