"""Ctrl-C at any point, in the middle of a pass or of a trace, leaves everything usable."""

import contextlib
import dis
import os
import random
import signal
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

import fxlab
import fxlab.base.interrupts
from fxlab.base import exchanged
from fxlab.base.exchanged import patched_functions, patched_names
from fxlab.base.interrupts import InterruptsHeld, interrupts_noted
from fxlab.values.tensors import same_bits

POINTS = int(os.environ.get("FXLAB_INTERRUPTS", "12"))
"""How many interrupts are tried in each test; a run by hand may ask for thousands."""


_NEVER_INTERRUPTED = {dis.opmap[name] for name in ("NOP", "LOAD_CONST", "SWAP")}
"""What a line begins with that only says ``try``, or leaves a ``with``: Python handles no signal there."""


class Interrupter:
    """Raises SIGINT, as a kernel does that is interrupted, at a line that is counted from the start."""

    def __init__(self, at=None, within=lambda code: True):
        self.lines, self._at, self._within = 0, at, within

    def __enter__(self):
        self._before = sys.gettrace()  # of a debugger, or of what measures coverage
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _trace(self, frame, event, argument):
        code = frame.f_code
        if event == "line" and self._within(code) and code.co_code[frame.f_lasti] not in _NEVER_INTERRUPTED:
            self.lines += 1
            if self.lines == self._at:
                signal.raise_signal(signal.SIGINT)
        return self._trace


def enters_or_leaves(code):
    """Tell whether code is of a context manager, where an interrupt could leave a mode on."""
    return code.co_name in ("__enter__", "__exit__") or code.co_filename in (
        contextlib.__file__,
        fxlab.base.interrupts.__file__,
        torch.random.__file__,
    )


def interrupted(call, at, **within):
    """Tell whether an interrupt at a line came through, which Python swallows in finalizers."""

    def alone():
        # In a clause of ``except``, Python can go on as if it still handled that error. A generator's own
        # errors end with it; else they were told as the cause of all others in later tests.
        with Interrupter(at, **within):
            call()
        yield

    try:
        next(alone())
    except KeyboardInterrupt:
        return True
    return False


def lines_of(call, **within):
    with Interrupter(**within) as counter:
        call()
    return counter.lines


def points(lines):
    """Return lines to interrupt at, spread over a call, others with each seed."""
    choose = random.Random(int(os.environ.get("FXLAB_SEED", "0")))
    return [choose.randrange(1, lines) for _ in range(POINTS)]


def modes():
    """Return what torch would go on with if something stayed behind."""
    return {
        "functions": torch._C._len_torch_function_stack(),
        "dispatch": torch._C._len_torch_dispatch_stack(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_default_dtype(),
        "call": nn.Module.__call__,
        "apply": vars(Function)["apply"],
        "hooks": (len(_global_forward_hooks), len(_global_forward_pre_hooks)),
        "fakes": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE),
        "proxies": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY),
        "functional": torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize),
        "random": torch.get_rng_state().tolist(),
        "range": range,
        "recursion": sys.getrecursionlimit(),
        "threads": threading.active_count(),
        "exchanged": patched_names(),
    }


def state(module):
    own = {path: dict(vars(m)) for path, m in module.named_modules()}
    attributes = {path: {k: id(v) for k, v in values.items()} for path, values in own.items()}
    tensors = {name: (id(t), t.detach().clone()) for name, t in module.state_dict(keep_vars=True).items()}
    return attributes, tensors


def assert_same_state(before, now):
    assert before[0] == now[0]
    assert before[1].keys() == now[1].keys()
    for name, (identity, bits) in before[1].items():
        assert identity == now[1][name][0]
        assert same_bits(bits, now[1][name][1])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.query, self.key = nn.BatchNorm1d(4), nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x):
        x = self.norm(x)
        with torch.no_grad():
            scale = x.abs().amax(0, keepdim=True)
        return {"product": self.query(x / scale) * self.key(x) / 7.0}


class CountsItsCalls(Model):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


INPUTS = (torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


def step_of(model, inputs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return fxlab.trace_step(model, inputs, loss=lambda output: output["product"].sum(), optimizer=optimizer)


@pytest.mark.often(1)
@pytest.mark.slow
@pytest.mark.parametrize("traced", [fxlab.symbolic_trace, step_of])
@pytest.mark.parametrize("within", [{}, {"within": enters_or_leaves}], ids=["anywhere", "contexts"])
def test_a_trace_that_is_interrupted_leaves_model_and_torch_as_they_were(within, traced):
    model = CountsItsCalls().eval()

    def trace():
        return traced(model, INPUTS)

    code = trace().code
    lines, before, expected = lines_of(trace, **within), modes(), state(model)
    came_through = 0
    for at in points(lines):
        came_through += interrupted(trace, at, **within)
        assert modes() == before, at
        assert_same_state(expected, state(model))
    assert came_through > POINTS // 2
    assert trace().code == code


def test_a_session_that_is_interrupted_is_as_before_or_as_after(model):
    session = fxlab.Session(fxlab.symbolic_trace(model, INPUTS), INPUTS)
    session.apply("fuse-batch-norm1d-in-linear")
    names = [p.name for p in session.applied]

    def switch():
        session.apply("merge-linears")
        session.verdict()
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs)

    lines = lines_of(switch)
    session.undo()
    before, expected, outputs = (
        modes(),
        state(session.original),
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs),
    )
    for at in points(lines):
        interrupted(switch, at)
        assert modes() == before, at
        assert_same_state(expected, state(session.original))
        session.revert("merge-linears")
        assert [p.name for p in session.applied] == names
        assert fxlab.compare_outputs(session.original, session.graph_module, session.inputs).equals(outputs)
    session.apply("merge-linears")
    assert session.verdict().agrees
    session.revert()
    assert session.graph_module is session.original
    assert (
        fxlab.compare_outputs(session.original, session.graph_module, session.inputs)["max_abs_diff"]
        .eq(0)
        .all()
    )


@pytest.mark.parametrize(
    "trace",
    [
        fxlab.symbolic_trace,
        lambda *given: fxlab.trace_step(*given, loss=torch.sum),
        fxlab.compiler.compile_session,
    ],
)
def test_an_interrupt_that_code_in_c_makes_another_exception_of_comes_through(trace):
    @torch.compiler.allow_in_graph
    def swallowing(x):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise TypeError("failed to unpack an argument") from interrupt

    class Swallowing(nn.Module):
        def forward(self, x):
            return swallowing(x)

    with pytest.raises(KeyboardInterrupt):
        trace(Swallowing(), (torch.randn(2, 3),))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_a_hold_inside_another_waits_for_that():
    handler, done = signal.getsignal(signal.SIGINT), []

    def work():
        with InterruptsHeld():
            with InterruptsHeld():
                signal.raise_signal(signal.SIGINT)
            done.append("the outer one")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the outer one"]
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_exchanged_function_is_put_back_wherever_an_interrupt_comes():
    def work():
        with patched_functions(Model, {"forward": lambda own: lambda *given: None}):
            Model.forward(None, None)

    within = {"within": lambda code: code.co_filename == exchanged.__file__ or enters_or_leaves(code)}
    forward = Model.forward
    for at in range(1, lines_of(work, **within) + 1):
        interrupted(work, at, **within)
        assert (Model.forward, patched_names()) == (forward, []), at


@pytest.mark.parametrize("place", ["__enter__", "__exit__"])
def test_an_interrupt_while_a_context_changes_comes_when_that_is_done(place):
    done = []

    class Slow:
        def _change(self, at):
            if at == place:
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.2)
                done.append(at)

        def __enter__(self):
            self._change("__enter__")

        def __exit__(self, *error):
            self._change("__exit__")

    def work():
        with interrupts_noted():
            with Slow():
                pass
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [place]
