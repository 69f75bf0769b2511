"""A graph refuses other settings of torch than those that the model's Python has read."""

import glob
import os
import random
import secrets
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fxlab import symbolic_trace
from fxlab.values.tensors import same_bits

pytestmark = pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")

FOLDER = os.path.dirname(__file__)


class Decides(nn.Module):
    def __init__(self, reads):
        super().__init__()
        self.reads = reads

    def forward(self, x):
        return x * 2 if self.reads() else x * 3


@contextmanager
def called(function, value, before):
    function(value)
    try:
        yield
    finally:
        function(before)


@contextmanager
def variable(name, value):
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


SETTINGS = {
    "environment": (lambda: "FXLAB_OTHER" in os.environ, lambda: variable("FXLAB_OTHER", "1")),
    "variable": (lambda: os.getenv("FXLAB_OTHER", "") == "1", lambda: variable("FXLAB_OTHER", "1")),
    "gradients": (lambda: torch.is_grad_enabled(), torch.no_grad),
    "inference": (lambda: torch.is_inference_mode_enabled(), torch.inference_mode),
    "default dtype": (
        lambda: torch.get_default_dtype() == torch.float32,
        lambda: called(torch.set_default_dtype, torch.float64, torch.float32),
    ),
    "determinism": (
        lambda: torch.are_deterministic_algorithms_enabled(),
        lambda: called(torch.use_deterministic_algorithms, True, False),
    ),
    "precision of products": (
        lambda: torch.get_float32_matmul_precision() == "highest",
        lambda: called(torch.set_float32_matmul_precision, "high", "highest"),
    ),
    "fast path": (
        lambda: torch.backends.mha.get_fastpath_enabled(),
        lambda: called(torch.backends.mha.set_fastpath_enabled, False, True),
    ),
    "flag": (lambda: torch.backends.cudnn.benchmark, lambda: torch.backends.cudnn.flags(benchmark=True)),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda: torch.autocast("cpu", torch.bfloat16)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_graph_refuses_a_setting_that_the_model_would_read_otherwise(name):
    reads, other = SETTINGS[name]
    model, x = Decides(reads), torch.randn(3)
    traced = symbolic_trace(model, (x,))
    assert same_bits(traced(x), model(x))
    with other(), pytest.raises(AssertionError, match="traced for"):
        traced(x)


def test_a_model_that_reads_whether_gradients_are_on_is_traced_as_it_would_run_for_the_caller():
    model, x = Decides(lambda: torch.is_grad_enabled()), torch.randn(3)
    with torch.no_grad():
        traced = symbolic_trace(model, (x,))
        assert not torch.is_grad_enabled()
        assert same_bits(traced(x), model(x))
    with pytest.raises(AssertionError, match=r"traced for torch\.is_grad_enabled\(\) being False only"):
        traced(x)
    (found,) = traced.meta["trace"].of_kind("setting")
    assert "test_setting_reads.py" in found.where


def test_what_the_model_sets_by_itself_is_not_held():
    class Frozen(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                return x * 2 if torch.is_grad_enabled() else x * 3

    x = torch.randn(3)
    traced = symbolic_trace(Frozen(), (x,))
    assert not traced.meta["trace"].of_kind("setting")
    with torch.no_grad():
        assert same_bits(traced(x), x * 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("traced_with", [True, False])
def test_an_encoder_with_padding_gives_the_models_bits_or_refuses(traced_with):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    x, mask = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    with torch.set_grad_enabled(traced_with):
        traced = symbolic_trace(model, {"src": x, "src_key_padding_mask": mask}, check=False)
    agreed = 0
    for other in (mask, mask.flip(1), torch.zeros_like(mask)):
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                expected = model(x, src_key_padding_mask=other)
                try:
                    actual = traced(x, other)
                except AssertionError:
                    continue
                assert same_bits(actual, expected)
                agreed += 1
    assert agreed


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [True, False])
def test_an_encoder_layer_follows_sizes_with_gradients_and_without(gradients):
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.set_grad_enabled(gradients):
        traced = symbolic_trace(model, (torch.randn(2, 3, 8),))
        other = torch.randn(3, 5, 8)
        assert same_bits(traced(other), model(other))
    with torch.set_grad_enabled(not gradients), pytest.raises(AssertionError, match="traced for"):
        traced(other)


def test_a_number_that_a_kernel_reads_out_of_data_is_not_computed_of_zeros():
    class Aligned(nn.Module):
        def forward(self, x, mask):
            return x * 2 if torch._nested_tensor_from_mask_left_aligned(x, mask) else x * 3

    x, mask = torch.randn(2, 3, 4), torch.tensor([[False, True, True], [True, True, True]])
    traced = symbolic_trace(Aligned(), (x, mask), dynamic=False, check=False)
    assert same_bits(traced(x, mask), x * 3)
    with pytest.raises(AssertionError, match="traced for"):
        traced(x, ~torch.zeros_like(mask))


@pytest.mark.parametrize(
    ("reads", "name"),
    [
        (lambda: time.perf_counter() < 0, "time.perf_counter()"),
        (lambda: random.SystemRandom().random() < 0, "os.urandom()"),
        (lambda: secrets.randbelow(5) < 0, "os.urandom()"),
    ],
)
def test_a_number_of_the_clock_or_the_system_is_told_to_be_held(reads, name):
    found = symbolic_trace(Decides(reads), torch.randn(3)).meta["trace"].of_kind("constant")
    assert [(one.what, one.code) for one in found] == [(name, "number-of-system")]


@pytest.mark.parametrize(
    ("reads", "name"),
    [
        (lambda: os.listdir(FOLDER), "os.listdir()"),
        (lambda: os.path.exists(FOLDER), "os.stat()"),
        (lambda: Path(__file__).read_text(), "open()"),
        (lambda: Path(FOLDER).is_dir(), "os.stat()"),
        (lambda: glob.glob(f"{FOLDER}/*"), "os.scandir()"),
        (lambda: np.fromfile(open(__file__), np.uint8, 1).size, "open()"),  # noqa: SIM115
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_answer_of_the_file_system_is_told_to_be_held(reads, name):
    found = symbolic_trace(Decides(reads), torch.randn(3)).meta["trace"].of_kind("constant")
    assert (name, "files-read") in [(one.what, one.code) for one in found]
