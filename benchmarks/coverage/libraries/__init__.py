"""Models of libraries other than transformers, with random weights, in an environment of their own.

The models are rows: a file of them for each library, in this package. What is tried with each is the same for
all: :mod:`~benchmarks.coverage.libraries.rows` says what a row is and which other inputs follow from it.
"""

from benchmarks.coverage.libraries.sweep import LIBRARIES, all_rows

__all__ = ["LIBRARIES", "all_rows"]
