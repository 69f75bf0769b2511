"""The device that the tests run on, its settings, and inputs."""

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device():
    if name := os.environ.get("FXLAB_TEST_DEVICE"):
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None, "this machine has no accelerator; FXLAB_TEST_DEVICE names another device"
    return torch.device(accelerator.type, 0)


@pytest.fixture(autouse=True)
def settings_as_they_were():
    matmul, conv = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = conv
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def nothing_compiled():
    yield
    torch.compiler.reset()


@pytest.fixture
def ids(device):
    return torch.randint(0, 50, (4, 32), generator=torch.Generator().manual_seed(1), device="cpu").to(device)
