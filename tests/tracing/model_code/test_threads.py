"""Nothing that a model computes in another thread, or behind torch's back, becomes a constant."""

import asyncio
import ctypes
import gc
import multiprocessing.dummy
import pickle
import queue
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import TraceError, symbolic_trace
from fxlab.base.garbage import is_frozen
from fxlab.tracing.model_code.unseen_work import TensorsMade

X = torch.linspace(-1, 2, 12).reshape(3, 4)
pytestmark = pytest.mark.filterwarnings("ignore:The traced graph is specialised")


def in_a_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def in_a_pool(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


WAITING = ThreadPoolExecutor(1)  # its thread is there before anything is traced
WAITING.submit(int).result()


def in_a_thread_that_was_there(function):
    return WAITING.submit(function).result()


def in_a_pool_of_multiprocessing(function):
    with multiprocessing.dummy.Pool(1) as pool:
        return pool.apply(function)


def in_an_executor_of_asyncio(function):
    async def run():
        return await asyncio.get_running_loop().run_in_executor(None, function)

    return asyncio.run(run())


def through_queues(function):
    tasks, results = queue.Queue(), queue.Queue()
    threading.Thread(target=lambda: results.put(tasks.get()()), daemon=True).start()
    tasks.put(function)
    return results.get(timeout=20)


WAYS = [
    in_a_thread,
    in_a_pool,
    in_a_thread_that_was_there,
    in_a_pool_of_multiprocessing,
    in_an_executor_of_asyncio,
    through_queues,
]


class Elsewhere(nn.Module):
    """Computes something in another thread."""

    def __init__(self, way, work):
        super().__init__()
        self.way, self.work = way, work
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        result = self.way(lambda: self.work(self, x))
        return x * 3 if result is None else x + result


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_work_in_another_thread_is_refused_in_words(way):
    with pytest.raises(TraceError, match=r"test_threads\.py:\d+") as raised:
        symbolic_trace(Elsewhere(way, lambda _, x: x.relu() * 2), X)
    assert raised.value.code == "other-thread"


def write(model, x):
    model.count.add_(1)


WORK = {
    "a number": lambda _, x: x.sum().item(),
    "numbers": lambda _, x: torch.tensor(x.tolist()),
    "a decision": lambda _, x: bool(x.sum() > 0),
    "numpy": lambda _, x: torch.from_numpy(np.sin(x.numpy())),
    "memory": lambda _, x: torch.from_dlpack(np.from_dlpack(x) * 2),
    "a pickle": lambda _, x: pickle.loads(pickle.dumps(x * 2)),
    "a parameter": lambda model, _: model.weight * 2,
    "a random number": lambda model, x: torch.rand(4),
    "a write": write,
}


@pytest.mark.each_value
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("dynamic", [True, False])
def test_whatever_another_thread_does_is_refused(work, dynamic):
    with pytest.raises(TraceError) as raised:
        symbolic_trace(Elsewhere(in_a_thread_that_was_there, work), X, dynamic=dynamic, check=False)
    assert raised.value.code in ("other-thread", "hidden-tensor")


def test_a_write_in_another_thread_is_refused_though_it_changes_nothing_here():
    def forward(_, x):
        out = torch.zeros_like(x)
        in_a_pool(lambda: out.add_(x.relu()))
        return out

    with pytest.raises(TraceError) as raised:
        symbolic_trace(Elsewhere(lambda work: work(), forward), -X.abs())
    assert raised.value.code in ("other-thread", "hidden-tensor")


def test_threads_that_are_none_of_the_model_s_business_go_on():
    stop, failed = threading.Event(), []

    def work():
        try:
            while not stop.is_set():
                torch.ones(3).sum().item()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        model = Elsewhere(lambda work: work(), lambda _, x: torch.from_numpy(np.sin(x.numpy())))
        assert_agree(symbolic_trace(model, X, check=False), model, X)
    finally:
        stop.set()
        thread.join()
    assert not failed


def scripted(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


def total(x: torch.Tensor) -> float:
    return float(x.sum())


def write_positive(x: torch.Tensor):
    x.relu_()


scripted_total, scripted_write = scripted(total), scripted(write_positive)


def written_by_script(_, x):
    y = x * 1
    scripted_write(y)
    return y


def written_by_numpy(_, x):
    y = x * 1
    y.numpy()[...] = 3
    return y


def of_an_address(_, x):
    return ctypes.cast(x.contiguous().data_ptr(), ctypes.POINTER(ctypes.c_float))[0]


HIDDEN = {
    "numbers of a script": lambda _, x: scripted_total(x),
    "writes of a script": written_by_script,
    "writes of numpy": written_by_numpy,
    "a capsule": lambda _, x: torch.from_dlpack(np.from_dlpack(x * 2)),
    "an address": of_an_address,
    "a storage": lambda _, x: x.untyped_storage()[0],
}


@pytest.mark.parametrize("work", HIDDEN.values(), ids=HIDDEN)
def test_what_torch_does_not_show_is_refused(work):
    with pytest.raises(TraceError):
        symbolic_trace(Elsewhere(lambda function: function(), work), X)


def test_what_a_model_is_given_is_left_as_it_was():
    model = Elsewhere(lambda work: work(), lambda model, x: torch.from_numpy(np.sin(x.numpy())) + model.count)
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    traced = symbolic_trace(model, X)
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert all(after[name] is tensor for name, tensor in before.items())
    held = [X, *after.values(), *traced.buffers()]
    assert {type(tensor) for tensor in held} <= {torch.Tensor, nn.Parameter}
    assert not is_frozen()


class Anything:
    """What a weak proxy may stand for."""


def test_a_weak_proxy_of_nothing_is_no_tensor():
    gc.freeze()  # by somebody else, so that objects are looked at one by one
    proxy = weakref.proxy(Anything())
    try:
        with TensorsMade() as made:
            assert torch.ones(2) in made
            assert X not in made
    finally:
        gc.unfreeze()
    with pytest.raises(ReferenceError):
        isinstance(proxy, torch.Tensor)


def test_tensors_are_young_however_they_are_made_and_whoever_has_put_others_aside():
    before = torch.ones(2)
    for is_put_aside in (False, True):
        if is_put_aside:
            gc.freeze()
        try:
            with TensorsMade() as made:
                young = [in_a_thread(lambda: torch.ones(2)), torch.from_numpy(np.ones(2)), before[:1]]
                assert all(tensor in made for tensor in young)
                assert before not in made
                made.allow({"constants": young[:1]})
                assert young[0] not in made
            assert is_frozen() is is_put_aside
        finally:
            gc.unfreeze()
