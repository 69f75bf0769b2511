"""Models on an accelerator: traced, judged, compared and compiled there, beside the CPU.

``make test-accelerator`` runs these; ``FXLAB_TEST_DEVICE`` names another device, such as ``cpu``.
"""

import copy
import gc
import subprocess
import sys
import time

import pytest
import torch
import transformers as hf
import zoo
from accelerator_models import Model, made
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab.models.running.running import generators_kept, torch_generators_now

pytestmark = pytest.mark.accelerator


def all_passes(session):
    for name in ("MergeLinears", "FuseBatchNorm1dInConv1d"):
        session.apply(getattr(fxlab, name)())
    return session


@pytest.mark.parametrize("tf32", [False, True], ids=["float32", "tf32"])
def test_a_right_pass_agrees_and_a_wrong_one_does_not(device, ids, tf32):
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    session = all_passes(fxlab.Session(made(device), ids))
    assert session.verdict().agrees, session.verdict()

    def smaller(graph_module):
        graph_module.get_submodule("head").weight.data.mul_(1.01)
        return graph_module

    session.apply(fxlab.from_callable(smaller, preserves_computation=True))
    assert not session.verdict().agrees


def test_settings_are_told_with_the_verdict_and_part_of_a_kept_run(device, ids):
    session = all_passes(fxlab.Session(made(device), ids))
    torch.set_float32_matmul_precision("highest")
    assert session.verdict().agrees
    torch.set_float32_matmul_precision("medium")
    verdict = session.verdict()
    assert verdict.agrees, verdict
    assert "matmul" in str(verdict) or "precision" in verdict._repr_html_()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_model_in_half_precision_is_judged(device, ids, dtype):
    session = all_passes(fxlab.Session(made(device).to(dtype), ids))
    assert session.verdict().agrees, session.verdict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_is_judged(device, ids, dtype):
    model = made(device)
    with torch.autocast(device.type, dtype):
        session = all_passes(fxlab.Session(model, ids))
        assert session.verdict().agrees, session.verdict()
        with torch.no_grad():
            expected, got = model(ids), session.original(ids)
    assert got.dtype == expected.dtype == dtype
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit", "resnet", "clip", "whisper"])
def test_architectures_are_traced_bit_for_bit(device, name):
    model = zoo.TEN[name]().eval().to(device)
    inputs = fxlab.example_inputs(model)
    assert all(value.device.type == device.type for value in inputs.values() if torch.is_tensor(value))
    graph = fxlab.symbolic_trace(model, inputs)
    with torch.no_grad():
        expected, got = model(**inputs), graph(**inputs)
    first, second = next(iter(expected.values())), next(iter(got.values()))
    assert torch.equal(first, second)


def test_generators_of_the_accelerator_are_put_back(device, ids):
    model = made(device).train()
    torch.rand(3, device=device)
    before = torch_generators_now()
    session = fxlab.Session(model, ids)
    session.apply(fxlab.MergeLinears())
    session.verdict()
    assert torch_generators_now() == before
    with generators_kept():
        torch.rand(5, device=device)
    assert torch_generators_now() == before


def test_dropout_that_is_on_has_a_verdict(device, ids):
    session = fxlab.Session(made(device).train(), ids)
    session.apply(fxlab.MergeLinears())
    assert session.verdict().agrees, session.verdict()
    assert session.verdict(gradients=True).agrees, session.verdict(gradients=True)


class Scatters(nn.Module):
    """Adds up in an order that changes from run to run on some devices."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, index):
        values = self.first(x) + self.second(x)
        return torch.zeros(7, values.shape[1], device=x.device).index_add(0, index, values)


def test_sums_in_any_order_are_within_their_own_rounding(device):
    torch.manual_seed(0)
    model = Scatters().to(device).eval()
    inputs = {
        "x": torch.randn(20_000, 64, device=device),
        "index": torch.randint(0, 7, (20_000,), device=device),
    }
    session = fxlab.Session(model, inputs)
    verdicts = [session.verdict() for _ in range(3)]
    session.apply(fxlab.MergeLinears())
    verdicts += [session.verdict() for _ in range(3)]
    assert all(verdict.agrees for verdict in verdicts), verdicts


def test_runs_of_two_devices_agree_and_a_mistake_is_named(device, ids, tmp_path):
    torch.backends.cudnn.allow_tf32 = False
    model = made(torch.device("cpu"))
    wrong = copy.deepcopy(model)
    wrong.layers[1].norm.eps = 1e-2
    fxlab.runs.record_run(model, ids.cpu(), tmp_path / "cpu.run")
    fxlab.runs.record_run(copy.deepcopy(model).to(device), ids, tmp_path / "device.run")
    fxlab.runs.record_run(wrong.to(device), ids, tmp_path / "wrong.run")
    right = fxlab.compare(tmp_path / "cpu.run", tmp_path / "device.run")
    assert right.agrees, right
    assert right.first is None
    found = fxlab.compare(tmp_path / "cpu.run", tmp_path / "wrong.run")
    assert not found.agrees
    assert str(found.first).startswith("layers.1"), found.first
    with torch.no_grad():
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        fxlab.runs.record_run(copy.deepcopy(model).to(device), ids, tmp_path / "tf32.run")
    rounded = fxlab.compare(tmp_path / "cpu.run", tmp_path / "tf32.run")
    assert rounded.first is None, rounded
    assert "precision" in str(rounded) or "tf32" in str(rounded).lower() or device.type == "cpu", rounded


def test_models_on_two_devices_are_compared(device, ids):
    torch.backends.cudnn.allow_tf32 = False
    model = made(torch.device("cpu"))
    moved, wrong = copy.deepcopy(model).to(device), copy.deepcopy(model).to(device)
    wrong.layers[2].norm.eps = 1e-2
    right = fxlab.compare(model, moved, ids.cpu(), candidate_inputs=ids)
    assert right.agrees, right
    found = fxlab.compare(model, wrong, ids.cpu(), candidate_inputs=ids)
    assert str(found.first).startswith("layers.2"), found.first


def test_a_training_step_is_traced_and_judged(device, ids):
    model = made(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = fxlab.trace_step(
        model,
        {"ids": ids},
        loss=lambda output, inputs: F.cross_entropy(output.flatten(0, 1), inputs["ids"].flatten() % 10),
        optimizer=optimizer,
    )
    session = fxlab.Session(step)
    session.apply(fxlab.ActivationCheckpointing("layers.*"))
    verdict = session.verdict()
    assert verdict.agrees, verdict
    memory = fxlab.memory(step)
    assert memory.peak > 0


def test_memory_of_a_step_is_what_the_device_measures(device, ids):
    if device.type != "cuda":
        pytest.skip("the device does not count its memory")
    torch.manual_seed(0)
    model = Model(512).to(device)
    ids = ids.repeat(4, 8)
    step = fxlab.trace_step(model, {"ids": ids}, loss=lambda output: output.square().mean())
    told = fxlab.memory(step).peak
    inputs = fxlab.Session(step).inputs
    with torch.no_grad():
        step(**inputs) if isinstance(inputs, dict) else step(*inputs)
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(**inputs) if isinstance(inputs, dict) else step(*inputs)
        torch.cuda.synchronize()
        temporary = torch.cuda.max_memory_allocated() - held
    given = sum(p.numel() * p.element_size() for p in model.parameters()) + sum(
        b.numel() * b.element_size() for b in model.buffers()
    )
    assert temporary + given == pytest.approx(told, rel=0.1)


def test_generated_code_is_judged(device, ids):
    model = made(device)
    session = fxlab.compiler.compile_session(model, ids)
    session.generate_code()
    assert session.verdict().agrees, session.verdict()
    assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None


def test_stages_of_training_are_judged(device, ids):
    model = made(device).train()
    session = fxlab.compiler.compile_session(model, ids, training=True)
    verdicts = session.verdicts() if hasattr(session, "verdicts") else [session.verdict()]
    assert all(verdict.agrees for verdict in verdicts), verdicts


def test_a_model_that_is_compiled_by_torch_is_recorded(device, ids):
    model = made(device)
    with fxlab.compiler.record_compile() as record:
        got = torch.compile(model)(ids)
    assert record.story() is not None
    verdicts = [session.verdict() for session in record.sessions.values()]
    assert verdicts
    assert all(verdict.agrees for verdict in verdicts), "\n".join(map(str, verdicts))
    assert got.device.type == device.type


def test_generate_gives_the_tokens_of_eager(device):
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        num_key_value_heads=1, vocab_size=100,
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).eval().to(device)
    prompt = torch.randint(0, 100, (2, 5), device=device)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    session = fxlab.Session(model, {"input_ids": prompt})
    session.apply(fxlab.MergeLinears())
    model.compile(backend=fxlab.as_backend(session))
    assert torch.equal(model.generate(prompt, **options), expected)


def test_parts_of_a_model_on_two_devices(device, ids):
    class Offloaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 64).to(device), nn.Linear(64, 64)

        def forward(self, x):
            return self.second(self.first(x).cpu())

    torch.manual_seed(0)
    session = fxlab.Session(Offloaded().eval(), torch.randn(3, 64, device=device))
    assert session.verdict().agrees


def test_times_wait_for_the_device(device):
    if device.type == "cpu":
        pytest.skip("calls of the CPU return when they have ended")
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).to(device).eval()
    x = torch.randn(8192, 4096, device=device)
    with torch.no_grad():
        model(x)
        torch.accelerator.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            model(x)
        torch.accelerator.synchronize()
        measured = (time.perf_counter() - begin) / 5
    table = fxlab.profile(fxlab.symbolic_trace(model, x), x)
    seconds = table.select_dtypes("number").filter(like="time").sum().max()
    print(table.columns.tolist(), measured)
    assert seconds > 0


def test_memory_of_the_device_is_given_back(device, ids):
    if device.type != "cuda":
        pytest.skip("the device does not count its memory")

    def used():
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def once():
        session = all_passes(fxlab.Session(made(device), ids))
        session.verdict()
        fxlab.first_divergence(session.original, session.graph_module, session.inputs)
        fxlab.compare(session.graph_module, session.original, ids)

    once()
    gc.collect()
    before = used()
    for _ in range(3):
        once()
    gc.collect()
    assert used() <= before


def test_a_default_device_is_no_mode_that_changes_numbers(device):
    script = """
import torch, fxlab
from torch import nn
torch.set_default_device("%s")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).eval()
session = fxlab.Session(model, torch.randn(2, 8))
session.apply(fxlab.RemoveDeadCode())
verdict = session.verdict()
assert verdict.agrees, verdict
assert "mode" not in str(verdict), verdict
fxlab.inspect(session)
"""
    done = subprocess.run(
        [sys.executable, "-c", script % device], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
