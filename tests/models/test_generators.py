"""Random number generators of all accelerators: seeded, kept and compared."""

import random
from types import SimpleNamespace

import pytest
import torch

from fxlab.models.running import running
from fxlab.models.running.running import Generators, accelerators_in_use, generators_kept, seed_generators
from fxlab.validation.cost import profile


class Accelerator:
    """The functions of the module of a kind of device, for two that only count what they are told."""

    def __init__(self, *, in_use=True, has_generators=False):
        self.in_use, self.states = in_use, [torch.zeros(1, dtype=torch.uint8) for _ in range(2)]
        self.current = 0
        if has_generators:
            self.default_generators = [
                SimpleNamespace(manual_seed=lambda seed, index=index: self._set(index, seed))
                for index in range(2)
            ]

    def is_initialized(self):
        return self.in_use

    def is_available(self):
        return True

    def device_count(self):
        return len(self.states)

    def get_rng_state(self, device):
        return self.states[device.index].clone()

    def set_rng_state(self, state, device):
        self.states[device.index] = state.clone()

    def manual_seed(self, seed):
        self._set(self.current, seed)

    def device(self, device):
        return self._On(self, device.index)

    def _set(self, index, seed):
        self.states[index] = torch.tensor([seed], dtype=torch.uint8)

    class _On:
        def __init__(self, accelerator, index):
            self.accelerator, self.index = accelerator, index

        def __enter__(self):
            self.accelerator.current = self.index

        def __exit__(self, *_):
            self.accelerator.current = 0


@pytest.fixture(params=[False, True], ids=["", "generators"])
def accelerator(request, monkeypatch):
    module = Accelerator(has_generators=request.param)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return module


def test_generators_of_each_device_are_seeded_and_put_back(accelerator):
    before = Generators.now()
    with generators_kept():
        seed_generators(7)
        assert [int(state) for state in accelerator.states] == [7, 7]
        torch.rand(1)
        random.random()
    assert [int(state) for state in accelerator.states] == [0, 0]
    assert before.are(Generators.now())


def test_a_draw_on_any_device_is_seen(accelerator):
    before = Generators.now()
    accelerator.states[1] += 1
    assert not before.are(Generators.now())
    assert before.torch != running.torch_generators_now()


def test_what_nothing_has_used_is_not_asked(monkeypatch):
    assert accelerators_in_use() == [] or torch.accelerator.is_available()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: Accelerator(in_use=False))
    assert accelerators_in_use() == []


def test_draws_of_python_and_numpy_are_seen():
    import numpy as np

    for draw in (random.random, np.random.rand):
        with generators_kept():
            before = Generators.now()
            draw()
            assert not before.are(Generators.now())


def test_a_profile_waits_for_each_device(accelerator, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    profile._Timing(torch.fx.symbolic_trace(torch.nn.ReLU()))._wait()
    assert waited == [torch.device("xpu", 0), torch.device("xpu", 1)]
